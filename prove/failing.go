package prove

import (
	"fmt"
	"strings"

	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// maxFailures is how many runs may fail before a session gives up.
const maxFailures = 3

// failing counts the runs of a session that failed, to end it where the others would fail as well.
type failing struct {
	cells  int             // of the session
	seen   map[string]bool // those that had a run
	inARow int             // runs without any figure
	failed map[string]int  // runs of a probe of which none gave a figure; -1: one did
}

// add says why it makes no sense to go on after this run: several in a row gave no figure, or each cell had
// its turn and a probe failed in all its runs.
func (f *failing) add(run results.Run, probes []scenario.Probe) error {
	f.seen[run.Cell] = true
	for _, m := range run.Measured {
		f.failed[m.Name] = -1
	}
	if f.inARow++; len(run.Measured) > 0 {
		f.inARow = 0
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
