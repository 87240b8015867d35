package schedule

import (
	"slices"
	"testing"

	"isolane.dev/isolane/results"
)

// A void run is made again at the end of its block, twice at most; none of the warm-up block, and none in
// which a probe failed.
func TestRepeat(t *testing.T) {
	first := []Slot{{Block: 1, Cell: "a"}, {Block: 1, Cell: "b"}, {Block: 2, Cell: "a"}}
	made := func(todo []Slot, i int, void ...string) []Slot {
		run := results.Run{Block: todo[i].Block, Again: todo[i].Again, Void: void, Measured: make([]results.Measurement, 2)}
		return Repeat(slices.Clone(todo), i, run, 2)
	}
	todo := made(first, 0, "steal")
	want := []Slot{first[0], first[1], {1, "a", 1, 0}, first[2]}
	if !slices.Equal(todo, want) {
		t.Errorf("%v, want %v", todo, want)
	}
	todo = made(todo, 2, "steal")
	if todo = made(todo, 3, "steal"); len(todo) != 5 || todo[3] != (Slot{1, "a", 2, 0}) {
		t.Errorf("%v", todo)
	}
	if got := made(first, 0); !slices.Equal(got, first) {
		t.Errorf("%v after a run that counts", got)
	}
	failed := results.Run{Block: 1, Void: []string{"echo: it ended"}, Measured: make([]results.Measurement, 1)}
	if got := Repeat(slices.Clone(first), 0, failed, 2); !slices.Equal(got, first) {
		t.Errorf("%v after %+v", got, failed)
	}
	if got := made([]Slot{{Block: 0, Cell: "a"}}, 0, "steal"); len(got) != 1 {
		t.Errorf("the warm-up block: %v", got)
	}
}

func TestSchedule(t *testing.T) {
	cells := []string{"a", "b", "c", "d", "e", "f"}
	got := schedule(cells, 10, 42)
	if !slices.Equal(got, schedule(cells, 10, 42)) {
		t.Error("the same seed gives another order")
	}
	if slices.Equal(got, schedule(cells, 10, 43)) {
		t.Error("another seed gives the same order")
	}
	first := map[string]int{}
	for block := range 11 {
		var names []string
		for _, s := range got[block*6 : block*6+6] {
			if s.Block != block {
				t.Fatalf("block %d holds a run of block %d", block, s.Block)
			}
			names = append(names, s.Cell)
		}
		first[names[0]]++
		slices.Sort(names)
		if !slices.Equal(names, cells) {
			t.Errorf("block %d runs %v", block, names)
		}
	}
	if len(first) < 3 {
		t.Errorf("the order hardly varies: first places %v", first)
	}
}

// An interrupted block is measured again as a whole, and nothing else is.
func TestRemaining(t *testing.T) {
	s := results.Session{Scenario: results.Scenario{Blocks: 2, Seed: 5}, Cells: []results.Cell{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	all, _ := Remaining(s, Boots{})
	if len(all) != 9 {
		t.Fatalf("%d runs, want 9", len(all))
	}
	for _, k := range all[:4] {
		s.Runs = append(s.Runs, results.Run{Block: k.Block, Cell: k.Cell})
	}
	// two more runs of a cell are not those of the other two
	s.Runs = append(s.Runs, results.Run{Block: all[3].Block, Cell: all[3].Cell}, results.Run{Block: all[3].Block, Cell: all[3].Cell})
	DropCut(&s, Boots{}, func(string) int { return 0 })
	rest, _ := Remaining(s, Boots{})
	if len(rest) != 6 || rest[0] != all[3] || s.Runs[3].Dropped != Cut || s.Runs[2].Dropped != "" {
		t.Errorf("left are %v, runs %+v", rest, s.Runs)
	}
}

// So is the last block where a void run was still to be made again, and not where it was twice, or would not be.
func TestRemainingAgain(t *testing.T) {
	s := results.Session{Scenario: results.Scenario{Blocks: 1, Seed: 5}, Cells: []results.Cell{{Name: "a"}, {Name: "b"}}}
	measured := make([]results.Measurement, 1)
	for i, c := range []struct {
		again    []results.Run // of cell a in block 1, beside the first void one
		measured []results.Measurement
		left     int
	}{
		{nil, measured, 2},
		{[]results.Run{{Again: 1, Void: []string{"steal"}}}, measured, 2},
		{[]results.Run{{Again: 1}}, measured, 0},
		{[]results.Run{{Again: 1, Void: []string{"steal"}}, {Again: 2, Void: []string{"steal"}}}, measured, 0},
		{nil, nil, 0}, // its probe failed
	} {
		s.Runs = nil
		for _, cell := range []string{"a", "b"} {
			s.Runs = append(s.Runs, results.Run{Cell: cell, Void: []string{"steal"}, Measured: measured})
		}
		s.Runs = append(s.Runs, results.Run{Block: 1, Cell: "a", Void: []string{"steal"}, Measured: c.measured},
			results.Run{Block: 1, Cell: "b", Measured: measured})
		for _, run := range c.again {
			run.Block, run.Cell, run.Measured = 1, "a", c.measured
			s.Runs = append(s.Runs, run)
		}
		DropCut(&s, Boots{}, func(string) int { return 1 })
		if left, _ := Remaining(s, Boots{}); len(left) != c.left || c.left > 0 != (s.Runs[3].Dropped == Cut) || s.Runs[0].Dropped != "" {
			t.Errorf("case %d: left are %v, runs %+v", i, left, s.Runs)
		}
	}
}
