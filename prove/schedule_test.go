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
	void := results.Run{Void: []string{"steal"}, Measured: make([]results.Measurement, 2)}
	todo := again(slices.Clone(first), 0, void, 2)
	want := []slot{first[0], first[1], {1, "a", 1}, first[2]}
	if !slices.Equal(todo, want) {
		t.Errorf("%v, want %v", todo, want)
	}
	todo = again(todo, 2, void, 2)
	if todo = again(todo, 3, void, 2); len(todo) != 5 || todo[3] != (slot{1, "a", 2}) {
		t.Errorf("%v", todo)
	}
	failed := results.Run{Void: []string{"echo: it ended"}, Measured: make([]results.Measurement, 1)}
	for _, r := range []results.Run{{}, failed} {
		if got := again(slices.Clone(first), 0, r, 2); !slices.Equal(got, first) {
			t.Errorf("%v after %+v", got, r)
		}
	}
	if got := again([]slot{{block: 0, cell: "a"}}, 0, void, 2); len(got) != 1 {
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
