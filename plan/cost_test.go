package plan_test

import (
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
