package prove

import (
	"math/rand/v2"
	"slices"

	"isolane.dev/isolane/results"
)

// slot is one run to be made: the cell in that place of that block.
type slot struct {
	block int // 0 is the warm-up block
	cell  string
	again int // how many void runs there were in its place
	share int // of the boots over which the blocks are spread
}

// retries is how often a void run is made again. The rule is the same for all cells and known before the
// first run: a machine on which one cell is void more often than the others would leave few blocks that have
// both.
const retries = 2

// owed says whether a run is to be made again: where it is void, unless a probe failed in it, as it would
// again.
func owed(run results.Run, probes int) bool {
	return run.Block > 0 && run.Again < retries && len(run.Void) > 0 && len(run.Measured) >= probes
}

// again has the run of slot i made once more at the end of its block, where that is owed.
func again(todo []slot, i int, run results.Run, probes int) []slot {
	if !owed(run, probes) {
		return todo
	}
	k := todo[i]
	end := i + 1
	for end < len(todo) && todo[end].block == k.block {
		end++
	}
	k.again++
	return slices.Insert(todo, end, k)
}

// schedule lists all runs in order: block after block, each with all cells in a random order that
// the seed repeats. Blocks 1 to blocks count; block 0 warms the machine up and is dropped.
func schedule(cells []string, blocks int, seed uint64) []slot {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // G404: a repeatable order is wanted
	var slots []slot
	for block := range blocks + 1 {
		for _, i := range random.Perm(len(cells)) {
			slots = append(slots, slot{block: block, cell: cells[i]})
		}
	}
	return slots
}
