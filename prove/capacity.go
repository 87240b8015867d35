package prove

import (
	"context"
	"fmt"
	"slices"
	"time"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// relative is a probe whose load may be a share of what the application carries at most.
type relative interface {
	Part() float64                         // the share, such as 0.5; 0: the load is a number
	At(capacity float64) probe.Probe       // with that share of a capacity per second
	Saturating() probe.Probe               // asks as much as is carried
	Carried(m results.Measurement) float64 // per second, of a measurement of Saturating
}

// A capacity is the median of some runs, after one that warms up.
const (
	capacityRuns  = 3
	capacityTries = 8
)

// probesOf are the probes of a run.
func (r *runner) probesOf(c results.Cell, given factor.Conditions) ([]scenario.Probe, error) {
	if r.only != nil {
		return []scenario.Probe{*r.only}, nil
	}
	probes, err := r.scenario.ProbesOf(given, r.kinds.Probes)
	probes = r.kept(c.Name, probes)
	for i := range probes {
		probes[i] = r.loaded(probes[i])
	}
	return probes, err
}

// loaded is a probe with the load that its share is.
func (r *runner) loaded(p scenario.Probe) scenario.Probe {
	if s, ok := p.Probe.(relative); ok && s.Part() > 0 {
		p.Probe = s.At(r.capacity[p.Name])
	}
	return p
}

// unknown are the probes of the cells of this boot whose capacity is still to be measured.
func (r *runner) unknown(s *results.Session) (all []scenario.Probe, err error) {
	for _, c := range everyCell(s) {
		if _, here := r.layouts[c.Name]; !here {
			continue
		}
		probes, err := r.scenario.ProbesOf(r.scenario.Conditions(*c), r.kinds.Probes)
		if err != nil {
			return nil, err
		}
		for _, p := range r.kept(c.Name, probes) {
			share, ok := p.Probe.(relative)
			_, known := r.capacity[p.Name]
			if ok && share.Part() > 0 && !known &&
				!slices.ContainsFunc(all, func(o scenario.Probe) bool { return o.Name == p.Name }) {
				all = append(all, p)
			}
		}
	}
	return all, nil
}

// calibrate measures, in the baseline, the capacities of which loads are shares, and stores them.
func (r *runner) calibrate(ctx context.Context, o Options, s *results.Session,
	probes []scenario.Probe) error {
	if len(probes) == 0 {
		return nil
	}
	baseline := s.Cells[slices.IndexFunc(s.Cells, func(c results.Cell) bool { return c.Baseline })]
	if _, here := r.layouts[baseline.Name]; !here {
		return fmt.Errorf("%w: the capacity of %s is measured in %s, which wants another boot: measure there first",
			ErrInput, probes[0].Name, baseline.Name)
	}
	for _, p := range probes {
		found, err := r.capacityOf(ctx, o, p, baseline)
		if err != nil {
			return err
		}
		r.capacity[p.Name] = found.Rate
		s.Capacities = append(s.Capacities, found)
		s.Notes = append(s.Notes, capacityNote(found))
		if err = results.Write(o.Dir, *s); err != nil {
			return err
		}
	}
	return nil
}

// capacityOf measures one.
func (r *runner) capacityOf(ctx context.Context, o Options, p scenario.Probe, baseline results.Cell) (
	results.Capacity, error) {
	found := results.Capacity{Probe: p.Name, Cell: baseline.Name}
	share := p.Probe.(relative) // unknown has looked
	p.Probe = share.Saturating()
	one := *r
	one.only = &p
	last := "no figure"
	for try, warm := 0, false; len(found.Runs) < capacityRuns; try++ {
		if try == capacityTries {
			return found, fmt.Errorf("the capacity of %s in %s: expected %d runs that count, found %d of %d; the "+
				"last void one: %s", p.Name, baseline.Name, capacityRuns, len(found.Runs), try, last)
		}
		if o.Progress != nil {
			o.Progress(Progress{Cell: baseline.Name, Capacity: p.Name, Done: try, Runs: 1 + capacityRuns,
				Left: time.Duration(max(1, 1+capacityRuns-try)) * one.estimateOf([]scenario.Probe{p})})
		}
		run, err := one.run(ctx, baseline)
		if err != nil {
			return found, interrupted(ctx, err)
		}
		if len(run.Void) > 0 || len(run.Measured) == 0 {
			last = append(run.Void, last)[0]
			continue
		}
		m := run.Measured[0]
		rate := share.Carried(m)
		switch {
		case len(m.Void) > 0 || rate <= 0:
			last = append(m.Void, last)[0]
			continue
		case !warm:
			warm = true
			continue
		}
		found.Runs = append(found.Runs, rate)
		limits, err := r.atLimit(p.Name, m, true) // a closed loop has no goal to come near to
		if err != nil {
			return found, err
		}
		if len(limits) > 0 {
			found.Limit = limits[0]
		}
	}
	sorted := slices.Sorted(slices.Values(found.Runs))
	found.Rate = sorted[len(sorted)/2]
	return found, nil
}

func capacityNote(c results.Capacity) string {
	least, most := slices.Min(c.Runs), slices.Max(c.Runs)
	note := fmt.Sprintf("The loads of %s are shares of %.6g/s: what it carries in a closed loop in %s, the "+
		"median of %d runs (%.6g to %.6g/s).", c.Probe, c.Rate, c.Cell, len(c.Runs), least, most)
	if c.Limit != "" {
		note += " The application may carry more: " + c.Limit + "."
	}
	return note
}
