package prove

import (
	"slices"
	"testing"

	"isolane.dev/isolane/results"
)

// A void run is made again at the end of its block, twice at most; none of the warm-up block, and none in
// which a probe failed.
func TestAgain(t *testing.T) {
	first := []slot{{block: 1, cell: "a"}, {block: 1, cell: "b"}, {block: 2, cell: "a"}}
	made := func(todo []slot, i int, void ...string) []slot {
		run := results.Run{Block: todo[i].block, Again: todo[i].again, Void: void, Measured: make([]results.Measurement, 2)}
		return again(slices.Clone(todo), i, run, 2)
	}
	todo := made(first, 0, "steal")
	want := []slot{first[0], first[1], {1, "a", 1, 0}, first[2]}
	if !slices.Equal(todo, want) {
		t.Errorf("%v, want %v", todo, want)
	}
	todo = made(todo, 2, "steal")
	if todo = made(todo, 3, "steal"); len(todo) != 5 || todo[3] != (slot{1, "a", 2, 0}) {
		t.Errorf("%v", todo)
	}
	if got := made(first, 0); !slices.Equal(got, first) {
		t.Errorf("%v after a run that counts", got)
	}
	failed := results.Run{Block: 1, Void: []string{"echo: it ended"}, Measured: make([]results.Measurement, 1)}
	if got := again(slices.Clone(first), 0, failed, 2); !slices.Equal(got, first) {
		t.Errorf("%v after %+v", got, failed)
	}
	if got := made([]slot{{block: 0, cell: "a"}}, 0, "steal"); len(got) != 1 {
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
			if s.block != block {
				t.Fatalf("block %d holds a run of block %d", block, s.block)
			}
			names = append(names, s.cell)
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
