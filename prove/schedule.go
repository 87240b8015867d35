package prove

import "math/rand/v2"

// slot is one run to be made: the cell in that place of that block.
type slot struct {
	block int // 0 is the warm-up block
	cell  string
}

// schedule lists all runs in order: block after block, each with all cells in a random order that
// the seed repeats. Blocks 1 to blocks count; block 0 warms the machine up and is dropped.
func schedule(cells []string, blocks int, seed uint64) []slot {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // G404: a repeatable order is wanted
	var slots []slot
	for block := range blocks + 1 {
		for _, i := range random.Perm(len(cells)) {
			slots = append(slots, slot{block, cells[i]})
		}
	}
	return slots
}
