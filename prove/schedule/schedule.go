// Package schedule decides which runs of a session come when, over blocks and boots, repeats void runs, and
// decides when to give up. It reads and writes no file.
package schedule

import (
	"math/rand/v2"
	"slices"

	"isolane.dev/isolane/results"
)

// Slot is one run to be made: a cell, at its place in a block.
type Slot struct {
	Block int // 0 is the warm-up block
	Cell  string
	Again int // how many void runs there were in its place
	share int // of the boots over which the blocks are spread
}

// retries is how often a void run is repeated. The rule is the same for all cells and fixed before the first
// run. If one cell were void more often than the others without it, few blocks would have both.
const retries = 2

// owed reports whether a run is to be repeated: if it is void, unless a probe failed in it, as it would
// again.
func owed(run results.Run, probes int) bool {
	return run.Block > 0 && run.Again < retries && len(run.Void) > 0 && len(run.Measured) >= probes
}

// Repeat adds the run of slot i to the end of its block once more, if that is owed.
func Repeat(todo []Slot, i int, run results.Run, probes int) []Slot {
	if !owed(run, probes) {
		return todo
	}
	k := todo[i]
	end := i + 1
	for end < len(todo) && todo[end].Block == k.Block {
		end++
	}
	k.Again++
	return slices.Insert(todo, end, k)
}

// schedule lists all runs in order: block after block, each with all cells in a random order that depends
// only on the seed. Blocks 1 to blocks count; block 0 warms the machine up and is dropped.
func schedule(cells []string, blocks int, seed uint64) []Slot {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a repeatable order is wanted
	var slots []Slot
	for block := range blocks + 1 {
		for _, i := range random.Perm(len(cells)) {
			slots = append(slots, Slot{Block: block, Cell: cells[i]})
		}
	}
	return slots
}

// DropCut marks the runs of blocks that lack cells of their group, or in which void runs were still to be
// repeated. probes says how many probes a cell has. An incomplete block is measured again as a whole: its
// cells are compared with each other, so they must be close together in time.
func DropCut(s *results.Session, b Boots, probes func(cell string) int) {
	groups, cells := map[string]string{}, map[string]int{}
	for _, c := range s.Cells {
		groups[c.Name] = b.group(c)
		cells[groups[c.Name]]++
	}
	type block struct {
		number int
		group  string
	}
	in := func(run results.Run) block { return block{run.Block, groups[run.Cell]} }
	last := map[Slot]results.Run{}
	for _, run := range s.Runs {
		if run.Dropped != Cut {
			last[Slot{Block: run.Block, Cell: run.Cell}] = run
		}
	}
	made := map[block]int{}
	for _, run := range last {
		if !owed(run, probes(run.Cell)) {
			made[in(run)]++
		}
	}
	for i, run := range s.Runs {
		if made[in(run)] < cells[groups[run.Cell]] {
			s.Runs[i].Dropped = Cut
		}
	}
}

// Cut is why runs of an interrupted block are not used.
const Cut = "interrupted block, measured again"

// Remaining returns the runs that are still to be made: those of this boot, and those that wait for another.
// The blocks of each group are divided into shares, one per boot. A share is measured in one boot, unless
// that ends early, and only after all groups have their earlier shares, so that boots of different levels
// alternate. Each boot has its own warm-up block.
func Remaining(s results.Session, b Boots) (now, later []Slot) {
	type share struct {
		group  string
		number int
	}
	groups, names, order := map[string]string{}, map[string][]string{}, []string{}
	for _, c := range s.Cells {
		group := b.group(c)
		if groups[c.Name] = group; names[group] == nil {
			order = append(order, group)
		}
		names[group] = append(names[group], c.Name)
	}
	done, here := map[Slot]bool{}, map[share]bool{}
	for _, r := range s.Runs {
		if r.Dropped == Cut || r.Block == 0 && r.Boot != b.Number {
			continue
		}
		done[Slot{Block: r.Block, Cell: r.Cell}] = true
		if r.Block > 0 && r.Boot == b.Number {
			here[share{groups[r.Cell], s.Scenario.Share(r.Block)}] = true
		}
	}
	left, next := map[share][]Slot{}, max(1, s.Scenario.Boots)
	warm := map[string][]Slot{} // by group
	for _, group := range order {
		for _, k := range schedule(names[group], s.Scenario.Blocks, s.Scenario.Seed) {
			k.share = s.Scenario.Share(k.Block)
			switch {
			case done[Slot{Block: k.Block, Cell: k.Cell}]:
			case k.Block == 0:
				warm[group] = append(warm[group], k)
			default:
				left[share{group, k.share}] = append(left[share{group, k.share}], k)
				next = min(next, k.share)
			}
		}
	}
	for _, group := range order {
		had := false // an earlier share, in this boot
		for number := range max(1, s.Scenario.Boots) {
			in := share{group, number}
			if due := left[in]; number == next && len(due) > 0 && group == b.booted() && (here[in] || !had) {
				now = slices.Concat(warm[group], due)
			} else {
				later = append(later, due...)
			}
			had = had || here[in]
		}
	}
	return now, later
}
