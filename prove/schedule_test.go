package prove

import (
	"slices"
	"testing"
)

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
