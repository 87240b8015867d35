package prove

import (
	"fmt"
	"slices"
	"time"

	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"

	"sigs.k8s.io/yaml"
)

// newSession is a fresh session, or with Resume the stored one. Its cells are those of around: the scenario,
// or what of it can be varied around a lane in force.
func newSession(o Options, around scenario.Scenario, now results.Environment) (results.Session, error) {
	if o.Resume {
		s, err := results.Read(o.Dir)
		if err == nil && s.Complete {
			err = fmt.Errorf("%w: %s: the session is complete", ErrInput, o.Dir)
		}
		s.Stopped = nil
		return s, err
	}
	mode, ok := o.Scenario.Spec.Modes[o.Mode]
	if !ok {
		return results.Session{}, fmt.Errorf("%w: scenario %s has no mode %s", ErrInput, o.Scenario.Metadata.Name,
			o.Mode)
	}
	cells, err := around.Cells(o.Cells)
	if err != nil {
		return results.Session{}, err
	}
	metrics, err := around.Metrics()
	if err != nil {
		return results.Session{}, err
	}
	source, err := yaml.Marshal(o.Scenario)
	if err != nil {
		return results.Session{}, err
	}
	return results.Session{
		Scenario: results.Scenario{Name: o.Scenario.Metadata.Name, Title: o.Scenario.Metadata.Title, Mode: o.Mode,
			Blocks: mode.Blocks, Boots: mode.Boots, Seed: o.Seed, Source: string(source), Excluded: around.Excluded(),
			Aims: around.Spec.Aims, Published: around.Published(), Doubts: around.Doubts()},
		Factors: around.Factors(), Metrics: metrics,
		Environment: now, Started: time.Now(), Cells: cells,
		Searches: newSearches(around, mode, o.Cells),
	}, nil
}

// dropCutBlock marks the runs of a block that has not all cells of its group, or in which void runs were
// still to be made again. A block that was cut is measured again as a whole: its cells are compared with each
// other, so they must stand close together in time.
func (r *runner) dropCutBlock(s *results.Session) {
	groups, cells := map[string]string{}, map[string]int{}
	for _, c := range s.Cells {
		groups[c.Name] = r.boots.group(c)
		cells[groups[c.Name]]++
	}
	type block struct {
		number int
		group  string
	}
	in := func(run results.Run) block { return block{run.Block, groups[run.Cell]} }
	last := map[slot]results.Run{}
	for _, run := range s.Runs {
		if run.Dropped != cut {
			last[slot{block: run.Block, cell: run.Cell}] = run
		}
	}
	made := map[block]int{}
	for _, run := range last {
		if !owed(run, len(r.Kept(run.Cell, r.Scenario.Spec.Probes))) {
			made[in(run)]++
		}
	}
	for i, run := range s.Runs {
		if made[in(run)] < cells[groups[run.Cell]] {
			s.Runs[i].Dropped = cut
		}
	}
}

// cut is why runs of an interrupted block are not used.
const cut = "interrupted block, measured again"

// remaining are the runs that are still to be made: those of this boot, and those that wait for another. The
// blocks of each group are spread over the boots of the session in shares. A share is measured in one boot,
// unless that ends before, after all groups have those before it: so that boots of different levels take
// turns. Each boot has a warm-up block of its own.
func remaining(s results.Session, b boots) (now, later []slot) {
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
	done, here := map[slot]bool{}, map[share]bool{}
	for _, r := range s.Runs {
		if r.Dropped == cut || r.Block == 0 && r.Boot != b.number {
			continue
		}
		done[slot{block: r.Block, cell: r.Cell}] = true
		if r.Block > 0 && r.Boot == b.number {
			here[share{groups[r.Cell], s.Scenario.Share(r.Block)}] = true
		}
	}
	left, next := map[share][]slot{}, max(1, s.Scenario.Boots)
	warm := map[string][]slot{} // by group
	for _, group := range order {
		for _, k := range schedule(names[group], s.Scenario.Blocks, s.Scenario.Seed) {
			k.share = s.Scenario.Share(k.block)
			switch {
			case done[slot{block: k.block, cell: k.cell}]:
			case k.block == 0:
				warm[group] = append(warm[group], k)
			default:
				left[share{group, k.share}] = append(left[share{group, k.share}], k)
				next = min(next, k.share)
			}
		}
	}
	for _, group := range order {
		had := false // a share before, in this boot
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
