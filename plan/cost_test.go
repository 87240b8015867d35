package plan_test

import (
	"cmp"
	"testing"

	"isolane.dev/isolane/plan"
)

// What a search cannot prove it says in the words of the cost table.
func TestCostInWords(t *testing.T) {
	cost, bound := plan.Cost{NUMACrossings: 3, BlockLost: 4}, plan.Cost{NUMACrossings: 1, SharedCores: 2}
	if got := cost.String() + "; " + cost.Above(bound); got != "3 NUMA crossings, 4 CPUs off the largest free block; at most 2 NUMA crossings could be saved" {
		t.Error(got)
	}
}

// Of changes those of a kind that comes first cost less, of one kind those that leave more, and unknown ones most.
func TestPrice(t *testing.T) {
	dear := []plan.Price{{Kind: 1}, {Kind: 6, Left: 8}, {Kind: 6, Left: 2}, {Kind: 7, Left: 9}, {}}
	for i, p := range dear {
		for k, o := range dear {
			if got := cmp.Compare(p.Compare(o), 0); got != cmp.Compare(i, k) {
				t.Errorf("%+v against %+v: %d", p, o, got)
			}
		}
	}
}
