package prove

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/schedule"
	"isolane.dev/isolane/results"

	"sigs.k8s.io/yaml"
)

// newSession returns a new session, or with Resume the stored one. Its cells are those of around: the
// scenario, or the part of it that can be varied around a lane in force.
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
		return results.Session{}, fmt.Errorf("%w: scenario %s has no mode %s, only %s", ErrInput,
			o.Scenario.Metadata.Name, o.Mode, strings.Join(slices.Sorted(maps.Keys(o.Scenario.Spec.Modes)), ", "))
	}
	cells, err := around.Cells(around.Named(o.Cells, o.Mode))
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

// enter starts or continues the session in this boot.
func (r *runner) enter(o Options, s *results.Session, now results.Environment) error {
	var err error
	if r.boots, err = schedule.NewBoots(r.Scenario, s.Environment, now); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	if o.Resume && now.CPUModel != s.Environment.CPUModel {
		return fmt.Errorf("%s: measured on another machine (%s)", o.Dir, s.Environment.CPUModel)
	}
	r.LeftOut = s.LeftOut
	all := r.Scenario.Spec.Probes
	schedule.DropCut(s, r.boots, func(cell string) int { return len(r.NotLeftOut(cell, all)) })
	r.boots.Number = schedule.PlaceOf(s, now)
	due, later := schedule.Remaining(*s, r.boots)
	searches := slices.ContainsFunc(s.Searches, func(q results.Search) bool {
		return slices.ContainsFunc(q.Cells, func(d results.Searched) bool {
			return !d.Settled && r.boots.Here(d.Cells[0])
		})
	})
	if awaits := r.boots.Awaits(*s, later); len(awaits) > 0 && !searches && len(due) == 0 {
		e := &schedule.AwaitsError{Cells: len(s.Cells), Awaits: awaits}
		if o.Resume {
			e.Dir = o.Dir
		}
		return e
	}
	if o.Resume {
		if err = r.boots.TakeUp(o.Dir, s, now); err != nil {
			return err
		}
	}
	s.Notes = append(s.Notes, r.boots.Alike(s.Notes)...)
	return nil
}
