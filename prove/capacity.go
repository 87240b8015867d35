package prove

import (
	"context"
	"fmt"
	"slices"
	"time"

	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/testbed"
	"isolane.dev/isolane/results"
)

// A capacity is the median of some runs, after a warm-up run.
const (
	capacityRuns  = 3
	capacityTries = 8
)

// unknown returns the probes of this boot's cells whose capacity is still to be measured.
func (r *runner) unknown(s *results.Session) (all []scenario.Probe, err error) {
	for _, c := range results.EveryCell(s) {
		if _, here := r.Layouts[c.Name]; !here {
			continue
		}
		probes, err := r.Scenario.ProbesOf(r.Scenario.Conditions(*c), r.Kinds.Probes)
		if err != nil {
			return nil, err
		}
		for _, p := range r.NotLeftOut(c.Name, probes) {
			share, ok := p.Probe.(testbed.Relative)
			_, known := r.Capacity[p.Name]
			if ok && share.Part() > 0 && !known &&
				!slices.ContainsFunc(all, func(o scenario.Probe) bool { return o.Name == p.Name }) {
				all = append(all, p)
			}
		}
	}
	return all, nil
}

// calibrate measures in the baseline the capacities of which loads are shares, and stores them.
func (r *runner) calibrate(ctx context.Context, o Options, s *results.Session,
	probes []scenario.Probe) error {
	if len(probes) == 0 {
		return nil
	}
	baseline := s.Cells[slices.IndexFunc(s.Cells, func(c results.Cell) bool { return c.Baseline })]
	if _, here := r.Layouts[baseline.Name]; !here {
		return fmt.Errorf("%w: the capacity of %s is measured in %s, which wants another boot: measure there first",
			ErrInput, probes[0].Name, baseline.Name)
	}
	for _, p := range probes {
		found, err := r.capacityOf(ctx, o, p, baseline)
		if err != nil {
			return err
		}
		r.Capacity[p.Name] = found.Rate
		s.Capacities = append(s.Capacities, found)
		s.Notes = append(s.Notes, capacityNote(found))
		if err = results.Write(o.Dir, *s); err != nil {
			return err
		}
	}
	return nil
}

// capacityOf measures one capacity.
func (r *runner) capacityOf(ctx context.Context, o Options, p scenario.Probe, baseline results.Cell) (
	results.Capacity, error) {
	found := results.Capacity{Probe: p.Name, Cell: baseline.Name}
	share := p.Probe.(testbed.Relative) // unknown has checked that
	p.Probe = share.Saturating()
	last := "no figure"
	for try, warm := 0, false; len(found.Runs) < capacityRuns; try++ {
		if try == capacityTries {
			return found, fmt.Errorf("the capacity of %s in %s: expected %d runs that count, found %d of %d; the "+
				"last void one: %s", p.Name, baseline.Name, capacityRuns, len(found.Runs), try, last)
		}
		if o.Progress != nil {
			o.Progress(Progress{Cell: baseline.Name, Capacity: p.Name, Done: try, Runs: max(try, capacityRuns) + 1,
				Left: time.Duration(max(1, 1+capacityRuns-try)) * r.EstimateOf([]scenario.Probe{p})})
		}
		r.Draw = fmt.Sprintf("capacity %d", try+1)
		run, err := r.runOnly(ctx, baseline, p, r.Mode)
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

// runOnly makes a run of a cell with one probe instead of the cell's own. It uses the runner itself and no
// copy, because a run may make pods and lanes anew, which later runs use.
func (r *runner) runOnly(ctx context.Context, c results.Cell, p scenario.Probe, m scenario.Mode) (results.Run,
	error) {
	whole := r.Mode
	r.Mode, r.Only = m, &p
	defer func() { r.Mode, r.Only = whole, nil }()
	return r.Run(ctx, c)
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
