package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// maxFailures is how many runs may fail before a session gives up.
const maxFailures = 3

// failing counts the failed runs of a session, to end it if the others would fail too.
type failing struct {
	cells  int             // of the session
	seen   map[string]bool // those that had a run: whether one gave a figure
	inARow int             // runs without any figure
	failed map[string]int  // by probe: runs none of which gave a figure; -1: one did
}

// NewFailing returns the counts for a session that measures that many cells in this boot.
func NewFailing(cells int) *failing {
	return &failing{cells: cells, seen: map[string]bool{}, failed: map[string]int{}}
}

// Add says why it makes no sense to continue after this run: several in a row gave no figure, or each cell
// had its turn and a probe failed in all its runs. Once a cell has given figures, those that never did do not
// count: they are void by themselves, and the others go on.
func (f *failing) Add(run results.Run, probes []scenario.Probe) error {
	for _, m := range run.Measured {
		f.failed[m.Name] = -1
	}
	good := f.seen[run.Cell] || len(run.Measured) > 0
	f.seen[run.Cell] = good
	switch {
	case len(run.Measured) > 0:
		f.inARow = 0
	case good || !slices.Contains(slices.Collect(maps.Values(f.seen)), true):
		f.inARow++
	}
	if f.inARow == maxFailures {
		return fmt.Errorf("%d runs in a row measured nothing; the last: %s", maxFailures, run.Void[0])
	}
	if len(run.Measured) == len(probes) {
		return nil
	}
	name := probes[len(run.Measured)].Name // they run in this order, up to one that fails
	for _, why := range run.Void {
		if !strings.HasPrefix(why, name+": ") || f.failed[name] < 0 {
			continue
		}
		if f.failed[name]++; f.failed[name] >= maxFailures && len(f.seen) == f.cells {
			return fmt.Errorf("probe %s failed in all of its %d runs; the last: %s", name, f.failed[name], why)
		}
		break
	}
	return nil
}

// Counts fails if all runs of a session are void, or all measurements of a probe: then the session lacks what
// it was made for. Overload and a late client do not count, because they say something about the machine. For
// a lane in force that is recorded.
func Counts(s results.Session, probes []scenario.Probe) error {
	if s.Lane != nil || len(s.Runs) == 0 {
		return nil
	}
	if !slices.ContainsFunc(s.Runs, results.Run.Used) {
		return fmt.Errorf("no run counts; the last is void: %s", strings.Join(s.Runs[len(s.Runs)-1].Void, "; "))
	}
	for _, p := range probes {
		void, found := "", p.Optional
		for _, r := range s.Runs {
			for _, m := range r.Measured {
				if m.Name == p.Name && r.Used() {
					void = strings.Join(m.Void, "; ")
					found = found || len(m.Void) == len(m.Overloaded)+len(m.Late)
				}
			}
		}
		if void != "" && !found {
			return fmt.Errorf("no measurement of %s counts; the last is void: %s", p.Name, void)
		}
	}
	return nil
}
