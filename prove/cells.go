package prove

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/programs"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// byName reports whether cells are asked for by name.
func byName(cells []string) bool { return len(cells) > 0 && !slices.Equal(cells, []string{"all"}) }

// layOut plans each cell of this boot. A cell that this machine cannot have is left out with the reason,
// unless it is the baseline or was asked for by name.
func (r *runner) layOut(ctx context.Context, h host.Host, placed plan.Placement, s *results.Session,
	asked bool) error {
	q := layout.Request{Host: h, Placed: placed, Conditions: r.Scenario.Conditions,
		Outside: r.Scenario.Networked(), Pods: r.Pods != nil}
	if r.InForce != nil {
		q.InForce = r.InForce.Lane.CPUs
	}
	q.Cells = slices.DeleteFunc(results.EveryCell(s), func(c *results.Cell) bool { return !r.boots.Here(*c) })
	var impossible map[string]error
	var err error
	if r.Layouts, impossible, err = layout.Plan(q); err != nil {
		return err
	}
	if err = r.needs(ctx, h, results.EveryCell(s), impossible); err != nil {
		return err
	}
	for _, c := range s.Cells {
		if why := impossible[c.Name]; why != nil && (asked || c.Baseline) {
			return fmt.Errorf("cell %s: %w", c.Name, why)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(impossible)) {
		why := impossible[name].Error()
		if m, ok := errors.AsType[*MissingError](impossible[name]); ok {
			why += ": " + m.Remedy
		}
		s.Scenario.Excluded = append(s.Scenario.Excluded, results.Excluded{Cell: name,
			Because: "not on this machine: " + why})
	}
	s.Cells = slices.DeleteFunc(s.Cells, func(c results.Cell) bool { return impossible[c.Name] != nil })
	dropCells(s, impossible)
	return nil
}

// needs adds the cells of this boot that this host cannot have: a command of their needs fails, or the kernel
// or programs lack their path.
func (r *runner) needs(ctx context.Context, h host.Host, cells []*results.Cell, impossible map[string]error,
) error {
	seen := map[string]error{}
	once := func(key string, find func() error) error {
		if _, known := seen[key]; !known {
			seen[key] = find()
		}
		return seen[key]
	}
	for _, c := range cells {
		if _, here := r.Layouts[c.Name]; !here {
			continue
		}
		given := r.Scenario.Conditions(*c)
		probes, why := r.Scenario.ProbesOf(given, r.Kinds.Probes) // in a lane in force there is one instance
		why = cmp.Or(why, r.lacksPrograms(probes))
		if r.Scenario.Networked() {
			why = cmp.Or(why, once("path "+given.Path, func() error { return r.LacksPath(given.Path) }),
				r.LacksEnds(h, given))
		}
		for _, n := range given.Needs {
			try := func() error { return programs.RunAll(ctx, given.Limit, [][]string{n.Run}) }
			if once(strings.Join(n.Run, "\x00"), try) != nil {
				why = errors.New(n.Else)
				break
			}
		}
		if ctx.Err() != nil {
			return interrupted(ctx, ctx.Err())
		}
		if why != nil {
			impossible[c.Name] = why
			delete(r.Layouts, c.Name)
		}
	}
	return nil
}

// lacksPrograms fails with a *MissingError if this host lacks a program of a cell's probes.
func (r *runner) lacksPrograms(probes []scenario.Probe) error {
	for _, p := range probes {
		if err := installed(p.Programs(r.Kinds.Probes)); err != nil && !p.Optional {
			return err
		}
	}
	return nil
}

// excludedNotes says which combinations are no cells, grouped by reason.
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
