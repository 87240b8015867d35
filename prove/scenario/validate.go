package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"isolane.dev/isolane/enforce/merge"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

func (s *Scenario) validate(kinds Drivers) error {
	if err := factor.CheckName(s.Metadata.Name); err != nil {
		return fmt.Errorf("metadata.name: %w", err)
	}
	if strings.Contains(s.Metadata.Name, "/") { // it is part of a directory's name
		return fmt.Errorf("metadata.name: expected no /, found %q", s.Metadata.Name)
	}
	for _, check := range []func() error{s.validateCells, s.independent, s.wired, s.validateFigures,
		s.validateLane} {
		if err := check(); err != nil {
			return err
		}
	}
	if c := s.Spec.Client; c.Policy != "" && (!c.Policy.IsRealTime() || c.Priority < 1 || c.Priority > 98) {
		return fmt.Errorf("spec.client: expected policy fifo or rr and a priority of 1-98, found %q %d", c.Policy,
			c.Priority)
	}
	if b := s.StealPercent(); b < 0 || b > 100 {
		return fmt.Errorf("spec.stealBudget: expected 0-100 percent of a CPU, found %g", b)
	}
	return s.validateModes(kinds)
}

func (s Scenario) validateLane() error {
	check := func(spec lane.Spec) error {
		l := lane.Lane{Metadata: lane.Metadata{Name: s.Metadata.Name}, Spec: spec}
		switch err := merge.Refuse(nil, []lane.Lane{l}); {
		case spec.Network.Path != "":
			return errors.New("spec.network.path: expected none, the factor path varies it")
		case err != nil:
			return err
		case len(spec.Objective.Bounds()) > 0:
			return errors.New("spec.objective: expected none, only --lane judges that of a lane: use spec.aims")
		case spec.Cgroup.Path != "":
			return errors.New("spec.cgroup.path: expected none, what runs in this lane is started by the session")
		}
		return spec.Validate()
	}
	if err := check(s.Spec.Lane); err != nil {
		return fmt.Errorf("spec.lane: %w", err)
	}
	for _, c := range s.AllCells() {
		given := s.Conditions(c)
		if err := check(given.Lane); err != nil {
			return fmt.Errorf("cell %s: the lane with its levels: %w", c.Name, err)
		}
		if given.Instances > 1 && (len(given.Ends.Client) > 0 || given.Distance != factor.AnyDistance) {
			return fmt.Errorf("cell %s: ends, distance: expected neither where there are %d instances", c.Name,
				given.Instances)
		}
		if most := s.Spec.Lane.CPUs.Share; given.Instances > 0 && most > 0 && given.Lane.CPUs.Share > most {
			return fmt.Errorf("cell %s: share: %d: expected at most %d, as spec.lane.cpus.share says", c.Name,
				given.Lane.CPUs.Share, most)
		}
	}
	return nil
}

func (s *Scenario) validateCells() error {
	all := s.AllCells()
	switch {
	case len(all) == 1 && s.Spec.Baseline == "":
		s.Spec.Baseline = all[0].Name
		all = s.AllCells()
	case len(all) > 1 && s.Spec.Baseline == "":
		return fmt.Errorf("spec.baseline: missing: expected the cell that the others are compared with, such as %q",
			all[0].Name)
	}
	for i, c := range all {
		if slices.ContainsFunc(all[:i], func(o results.Cell) bool { return o.Name == c.Name }) {
			return fmt.Errorf("spec.factors: two cells have the name %q", c.Name)
		}
	}
	if err := s.reached(); err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(c results.Cell) bool { return c.Baseline }) {
		return fmt.Errorf("spec.baseline: %w", s.noCell(s.Spec.Baseline))
	}
	if _, err := s.Cells(s.Spec.Cells); err != nil {
		return fmt.Errorf("spec.cells: %w", err)
	}
	for _, mode := range slices.Sorted(maps.Keys(s.Spec.Modes)) {
		if _, err := s.Cells(s.Named(nil, mode)); err != nil {
			return fmt.Errorf("spec.modes.%s.moreCells: %w", mode, err)
		}
	}
	return nil
}

// reached rejects a factor that matters nowhere, and an exclusion that excludes nothing: neither can be what
// the author meant.
func (s Scenario) reached() error {
	all, rules := s, s.Spec.Exclude
	all.Spec.Exclude = nil
	cells := all.AllCells()
	for i, f := range s.Spec.Factors {
		if !slices.ContainsFunc(cells, func(c results.Cell) bool { return c.Levels[f.Name] != "" }) {
			return fmt.Errorf("spec.factors[%d] (%s).where: no combination of the factors before it is so", i, f.Name)
		}
	}
	for i, e := range rules {
		if !slices.ContainsFunc(cells, func(c results.Cell) bool { return holds(e.Where, c.Levels) }) {
			return fmt.Errorf("spec.exclude[%d].where: no combination of the factors is so", i)
		}
	}
	return nil
}

// independent rejects two factors that set the same condition to different values: the cell would be named by
// both and have one of them. A factor may refine an earlier one that its where names.
func (s Scenario) independent() error {
	for _, c := range s.AllCells() {
		for i, f := range s.Spec.Factors {
			for _, before := range s.Spec.Factors[:i] {
				_, both := c.Levels[before.Name]
				_, refines := f.Where[before.Name]
				if _, ok := c.Levels[f.Name]; ok && both && !refines && !s.commute(before, f, c) {
					return fmt.Errorf("spec.factors[%d] (%s): level %s sets what %s of %s sets too, in cell %s: expected "+
						"factors that set different things", i, f.Name, c.Levels[f.Name], c.Levels[before.Name],
						before.Name, c.Name)
				}
			}
		}
	}
	return nil
}

// commute reports whether two factors make the same conditions of a cell in either order. Commands run in the
// order of their factors, and do not count.
func (s Scenario) commute(a, b Factor, cell results.Cell) bool {
	set := func(first, second Factor) factor.Conditions {
		c := factor.Conditions{Lane: s.Spec.Lane}
		first.Set(&c, cell.Levels[first.Name])
		second.Set(&c, cell.Levels[second.Name])
		c.Before, c.After, c.Needs = nil, nil, nil
		return c
	}
	return reflect.DeepEqual(set(a, b), set(b, a))
}

// wired rejects a level of the way to the client if no probe has a client: it would change nothing.
func (s Scenario) wired() error {
	for i, f := range s.Spec.Factors {
		for _, l := range f.Levels() {
			var c factor.Conditions
			f.Set(&c, l.Name)
			if (c.Path != "" || c.Distance != factor.AnyDistance) && !s.Networked() {
				return fmt.Errorf("spec.factors[%d] (%s): level %s is about the way to the client, and no probe has a "+
					"client: it would change nothing", i, f.Name, l.Name)
			}
		}
	}
	return nil
}

// validateFigures checks what refers to metrics.
func (s Scenario) validateFigures() error {
	metrics, err := s.Metrics()
	if err != nil {
		return err
	}
	find := func(name string) (results.Metric, error) {
		k := slices.IndexFunc(metrics, func(m results.Metric) bool { return m.Name == name })
		if k < 0 {
			return results.Metric{}, fmt.Errorf("metric: %q: expected one of %s", name, namesOf(metrics))
		}
		return metrics[k], nil
	}
	if err := s.validatePublished(find); err != nil {
		return err
	}
	if s.Spec.Aims == nil {
		return nil
	}
	if err := s.has(s.Spec.Aims.Cell); err != nil {
		return fmt.Errorf("spec.aims.cell: %w", err)
	}
	if len(s.Spec.Aims.Goals) == 0 {
		return errors.New("spec.aims.goals: at least one is needed")
	}
	seen := map[results.Goal]bool{}
	for i, g := range s.Spec.Aims.Goals {
		g.Against = cmp.Or(g.Against, s.Spec.Baseline)
		m, err := find(g.Metric)
		unknown := s.has(g.Against)
		switch {
		case err != nil:
			return fmt.Errorf("spec.aims.goals[%d].%w", i, err)
		case unknown != nil:
			return fmt.Errorf("spec.aims.goals[%d].against: %w", i, unknown)
		case g.Against == s.Spec.Aims.Cell:
			return fmt.Errorf("spec.aims.goals[%d].against: expected another cell than that of the aims, %q", i,
				s.Spec.Aims.Cell)
		case g.Statistic != "" && (g.Statistic != "p99" && g.Statistic != "p99.9" || !m.Sampled):
			return fmt.Errorf("spec.aims.goals[%d].statistic: expected none, or p99 or p99.9 of a metric with "+
				"samples, found %q", i, g.Statistic)
		case !(g.Percent > 0) || g.Percent > 1e6:
			return fmt.Errorf("spec.aims.goals[%d].percent: expected more than 0 and at most 1000000, found %g", i,
				g.Percent)
		case seen[g]:
			return fmt.Errorf("spec.aims.goals[%d]: this aim is listed twice", i)
		}
		seen[g] = true
	}
	return nil
}

func (s Scenario) validatePublished(find func(string) (results.Metric, error)) error {
	for i, from := range s.Spec.Published {
		for k, f := range from.Figures {
			if err := s.validateFigure(f, find); err != nil {
				return fmt.Errorf("spec.published[%d].figures[%d].%w", i, k, err)
			}
		}
		for k, u := range from.Unanswered {
			where := fmt.Sprintf("spec.published[%d].unanswered[%d]", i, k)
			if (u.Cell == "") == (u.Row == "") || u.Row != "" && !isRow(u.Row) || strings.TrimSpace(u.Because) == "" {
				return fmt.Errorf("%s: expected row or cell, and because: the reason, which is printed", where)
			}
			if err := s.has(u.Cell); u.Cell != "" && err != nil {
				return fmt.Errorf("%s.cell: %w", where, err)
			}
		}
	}
	return nil
}

// validateFigure checks a published figure. An error begins with the field.
func (s Scenario) validateFigure(f PublishedFigure, find func(string) (results.Metric, error)) error {
	if err := s.has(f.Cell); err != nil {
		return fmt.Errorf("cell: %w", err)
	}
	m, err := find(f.Metric)
	if err != nil {
		return err
	}
	unknown := s.has(cmp.Or(f.Against, s.Spec.Baseline))
	switch {
	case unknown != nil:
		return fmt.Errorf("against: %w", unknown)
	case f.Against != "" && f.Percent == 0:
		return errors.New("against: expected a percent, which is of this cell")
	case !results.IsStatistic(f.Statistic) || f.Statistic != "" && !m.Sampled:
		return fmt.Errorf("statistic: expected none, or min, mean, max or p and a percentile of a metric with "+
			"samples, found %q", f.Statistic)
	case !positive(f.Percent) && !positive(f.Value):
		return errors.New("percent, value: expected one above 0")
	case f.Row != "" && !isRow(f.Row):
		return fmt.Errorf("row: %.60q: expected SCENARIO:LINE or SCENARIO:LINE:METRIC of a published table", f.Row)
	}
	return nil
}

// isRow reports whether a name can be that of a row of a published table.
func isRow(name string) bool {
	parts := strings.Split(name, ":")
	return len(parts) >= 2 && len(parts) <= 3 && !slices.Contains(parts, "")
}

func (s Scenario) validateModes(kinds Drivers) error {
	for name, m := range s.Spec.Modes {
		if !slices.Contains([]string{"quick", "standard", "proof"}, name) {
			return fmt.Errorf("spec.modes: %q is unknown: expected quick, standard, proof", name)
		}
		if m.Blocks < 1 || m.Blocks > 1000 {
			return fmt.Errorf("spec.modes.%s.blocks: expected 1-1000, found %d", name, m.Blocks)
		}
		if m.Boots < 0 || m.Boots > m.Blocks {
			return fmt.Errorf("spec.modes.%s.boots: expected 1-%d, one block a boot at least, found %d", name,
				m.Blocks, m.Boots)
		}
		for kind := range m.Windows {
			if !slices.ContainsFunc(s.Spec.Probes, func(p Probe) bool { return p.Kind == kind }) {
				return fmt.Errorf("spec.modes.%s.windows.%s: no probe of this kind", name, kind)
			}
		}
		for _, cell := range s.AllCells() {
			probes, err := s.ProbesOf(s.Conditions(cell), kinds.Probes)
			if err != nil {
				return err
			}
			for i, p := range probes {
				c := m.Conditions(p)
				if err := cmp.Or(c.Validate(), p.Validate(c)); err != nil {
					return fmt.Errorf("spec.probes[%d] (%s), spec.modes.%s.windows.%s: %w", i, p.Name, name, p.Kind, err)
				}
			}
		}
	}
	if len(s.Spec.Modes) == 0 {
		return errors.New("spec.modes: at least one is needed")
	}
	return nil
}

// Conditions returns the conditions of a probe in this mode.
func (m Mode) Conditions(p Probe) probe.Conditions {
	w := m.Windows[p.Kind]
	return probe.Conditions{Name: p.Name, Warmup: w.Warmup.Duration(), Window: w.Measure.Duration()}
}

// validateOptional rejects what would depend on whether a machine can run an optional probe.
func (s *Scenario) validateOptional(Drivers) error {
	optional := s.optional()
	refuse := func(field, name string) error {
		if !optional[name] {
			return nil
		}
		return fmt.Errorf("%s: %q: expected a metric of a probe that is not optional: it is missing where that is "+
			"left out", field, name)
	}
	var errs []error
	for i, name := range s.Spec.Primary {
		errs = append(errs, refuse(fmt.Sprintf("spec.primary[%d]", i), name))
	}
	for i, m := range s.Spec.Means {
		for _, name := range m.Of {
			errs = append(errs, refuse(fmt.Sprintf("spec.means[%d].of", i), name))
		}
	}
	if s.Spec.Aims != nil {
		for i, g := range s.Spec.Aims.Goals {
			errs = append(errs, refuse(fmt.Sprintf("spec.aims.goals[%d].metric", i), g.Metric))
		}
	}
	for i, q := range s.Spec.Searches {
		errs = append(errs, refuse(fmt.Sprintf("spec.searches[%d].probe", i), q.Probe))
		if q.Goal != nil {
			errs = append(errs, refuse(fmt.Sprintf("spec.searches[%d].goal.metric", i), q.Goal.Metric))
		}
	}
	if !slices.ContainsFunc(s.Spec.Probes, func(p Probe) bool { return !p.Optional }) {
		errs = append(errs, errors.New("spec.probes: expected one that is not optional"))
	}
	return cmp.Or(errs...)
}
