package prove

import (
	"fmt"
	"slices"
	"time"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"

	"sigs.k8s.io/yaml"
)

// newSession is a fresh session, or with Resume the stored one without the block that was cut. Its cells are
// those of around: the scenario, or what of it can be varied around a lane in force.
func newSession(o Options, around scenario.Scenario, h host.Host) (results.Session, error) {
	if o.Resume {
		return resume(o, h)
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
			Blocks: mode.Blocks, Seed: o.Seed, Source: string(source), Excluded: around.Excluded(),
			Aims: around.Spec.Aims, Published: around.Published(), Doubts: around.Doubts()},
		Factors: around.Factors(), Metrics: metrics,
		Environment: environment(h, o.Versions), Started: time.Now(), Cells: cells,
		Searches: newSearches(around, mode, o.Cells),
	}, nil
}

// resume takes up the session in o.Dir. A block that was cut is measured again as a whole: its
// cells are compared with each other, so they must stand close together in time.
func resume(o Options, h host.Host) (results.Session, error) {
	s, err := results.Read(o.Dir)
	if err != nil {
		return s, err
	}
	if s.Complete {
		return s, fmt.Errorf("%w: %s: the session is complete", ErrInput, o.Dir)
	}
	now := environment(h, o.Versions)
	if now.Kernel != s.Environment.Kernel || now.Online != s.Environment.Online ||
		now.CPUModel != s.Environment.CPUModel {
		return s, fmt.Errorf("%s: measured on another machine or kernel (%s, CPUs %s)", o.Dir, s.Environment.Kernel,
			s.Environment.Online)
	}
	if now.BootID != s.Environment.BootID {
		s.Notes = append(s.Notes, "The machine was rebooted within the session.")
	}
	dropCutBlock(&s)
	return s, nil
}

// dropCutBlock marks the runs of a block that has not all its cells.
func dropCutBlock(s *results.Session) {
	byBlock := map[int]int{}
	for _, r := range s.Runs {
		if r.Dropped != cut {
			byBlock[r.Block]++
		}
	}
	for i, r := range s.Runs {
		if byBlock[r.Block] < len(s.Cells) && r.Dropped != cut {
			s.Runs[i].Dropped = cut
		}
	}
}

// cut is why runs of an interrupted block are not used.
const cut = "interrupted block, measured again"

// remaining are the runs that are still to be made.
func remaining(s results.Session) []slot {
	var names []string
	for _, c := range s.Cells {
		names = append(names, c.Name)
	}
	done := map[slot]bool{}
	for _, r := range s.Runs {
		if r.Dropped != cut {
			done[slot{r.Block, r.Cell}] = true
		}
	}
	return slices.DeleteFunc(schedule(names, s.Scenario.Blocks, s.Scenario.Seed),
		func(k slot) bool { return done[k] })
}
