package prove

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/results"
)

// layOut plans each cell of this boot. A cell whose lane this machine cannot have is left out with the
// reason, unless it is the baseline or was asked for.
func (r *runner) layOut(ctx context.Context, h host.Host, placed plan.Placement, s *results.Session,
	asked bool) error {
	q := layout.Request{Host: h, Placed: placed, Conditions: r.scenario.Conditions,
		Outside: r.scenario.Networked()}
	if r.inForce != nil {
		q.InForce = r.inForce.Lane.CPUs
	}
	q.Cells = slices.DeleteFunc(everyCell(s), func(c *results.Cell) bool { return !r.boots.here(*c) })
	var impossible map[string]error
	var err error
	if r.layouts, impossible, err = layout.Plan(q); err != nil {
		return err
	}
	if err = r.needs(ctx, s.Cells, impossible); err != nil {
		return err
	}
	for _, c := range s.Cells {
		if why := impossible[c.Name]; why != nil && (asked || c.Baseline) {
			return fmt.Errorf("cell %s: %w", c.Name, why)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(impossible)) {
		s.Scenario.Excluded = append(s.Scenario.Excluded, results.Excluded{Cell: name,
			Because: "not on this machine: " + impossible[name].Error()})
	}
	s.Cells = slices.DeleteFunc(s.Cells, func(c results.Cell) bool { return impossible[c.Name] != nil })
	dropCells(s, impossible)
	return nil
}

// needs runs what cells of this boot need to succeed, and adds those that this host cannot have.
func (r *runner) needs(ctx context.Context, cells []results.Cell, impossible map[string]error) error {
	seen := map[string]error{}
	for _, c := range cells {
		if _, here := r.layouts[c.Name]; !here {
			continue
		}
		for _, n := range r.scenario.Conditions(c).Needs {
			key := strings.Join(n.Run, "\x00")
			if _, ran := seen[key]; !ran {
				seen[key] = runAll(ctx, [][]string{n.Run})
			}
			if ctx.Err() != nil {
				return interrupted(ctx, ctx.Err())
			}
			if seen[key] != nil {
				impossible[c.Name] = errors.New(n.Else)
				delete(r.layouts, c.Name)
				break
			}
		}
	}
	return nil
}

// excludedNotes say which combinations are no cells, those of one reason together.
func excludedNotes(all []results.Excluded) (notes []string) {
	for i, e := range all {
		same := func(o results.Excluded) bool { return o.Because == e.Because }
		if slices.ContainsFunc(all[:i], same) {
			continue
		}
		which, more := e.Cell+" is no cell", 0
		for _, o := range all[i+1:] {
			if same(o) {
				more++
				which = fmt.Sprintf("%s and %d more are no cells", e.Cell, more)
			}
		}
		notes = append(notes, which+": "+e.Because)
	}
	return notes
}

// settlePaths replaces a path that this kernel cannot do by the baseline's, and says so.
func (r *runner) settlePaths(s *results.Session) error {
	fallback, varied := "", r.scenario.PathFactor()
	for _, c := range s.Cells {
		if c.Baseline {
			fallback = r.scenario.Conditions(c).Path
		}
	}
	for _, c := range everyCell(s) {
		if !r.boots.here(*c) {
			continue
		}
		wanted := r.scenario.Conditions(*c).Path
		path, err := r.path(wanted)
		if err != nil {
			return fmt.Errorf("%w: cell %s: %w", ErrInput, c.Name, err)
		}
		sp, ok := path.(supporter)
		if !ok {
			continue
		}
		if err := sp.Supported(); err != nil {
			c.InForce = map[string]string{varied: fallback}
			note := fmt.Sprintf("%v: its cells ran on %s instead", err, fallback)
			if !slices.Contains(s.Notes, note) {
				s.Notes = append(s.Notes, note)
			}
		}
	}
	return nil
}
