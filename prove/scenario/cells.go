package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/results"
)

// maxCells is how many combinations a scenario may have.
const maxCells = 1000

// combinations returns all cells, and the excluded ones with the reason. The first factor varies fastest.
func (s Scenario) combinations() (cells []results.Cell, excluded []results.Excluded) {
	all := []map[string]string{{}}
	for _, f := range s.Spec.Factors {
		all = f.vary(all)
	}
	for _, levels := range all {
		name := s.nameOf(levels)
		k := slices.IndexFunc(s.Spec.Exclude, func(e Exclusion) bool { return holds(e.Where, levels) })
		if k >= 0 {
			excluded = append(excluded, results.Excluded{Cell: name, Because: s.Spec.Exclude[k].Because})
			continue
		}
		c := results.Cell{Name: name, Levels: levels, Baseline: name == s.Spec.Baseline}
		c.Commands = len(s.Conditions(c).Before) > 0
		cells = append(cells, c)
	}
	return cells, excluded
}

// vary gives cells the levels of a factor if it matters to them, and keeps those that may be without one. It
// returns nil if that makes too many.
func (f Factor) vary(cells []map[string]string) (more []map[string]string) {
	for k, l := range f.Levels() {
		for _, c := range cells {
			matters := holds(f.Where, c)
			if k == 0 && (f.Without || !matters) {
				more = append(more, c)
			}
			if matters {
				c = maps.Clone(c)
				c[f.Name] = l.Name
				more = append(more, c)
			}
		}
		if len(more) > maxCells {
			return nil
		}
	}
	return more
}

// holds reports whether a cell has, for each factor, one of the levels.
func holds(where Where, cell map[string]string) bool {
	for name, levels := range where {
		if !slices.Contains(levels, factor.Name(cell[name])) {
			return false
		}
	}
	return true
}

// nameOf joins the levels in the order of the factors.
func (s Scenario) nameOf(levels map[string]string) string {
	var parts []string
	for _, f := range s.Spec.Factors {
		if l, ok := levels[f.Name]; ok {
			parts = append(parts, l)
		}
	}
	if len(parts) == 0 {
		return s.Metadata.Name
	}
	return strings.Join(parts, "-")
}

// AllCells returns all combinations of the factors that are not excluded.
func (s Scenario) AllCells() []results.Cell {
	cells, _ := s.combinations()
	return cells
}

// Excluded returns the combinations that are no cells.
func (s Scenario) Excluded() []results.Excluded {
	_, excluded := s.combinations()
	return excluded
}

// Cells returns the cells with the given names, in that order; without names those of the scenario, with
// "all" all combinations. The baseline must be among them, because all others are compared with it.
func (s Scenario) Cells(names []string) ([]results.Cell, error) {
	all := s.AllCells()
	if len(names) == 0 {
		names = s.Spec.Cells
	}
	if len(names) == 0 || len(names) == 1 && names[0] == "all" {
		return all, nil
	}
	var cells []results.Cell
	for _, name := range names {
		i := slices.IndexFunc(all, func(c results.Cell) bool { return c.Name == name })
		if i < 0 {
			return nil, s.noCell(name)
		}
		if slices.ContainsFunc(cells, func(c results.Cell) bool { return c.Name == name }) {
			return nil, fmt.Errorf("%q is listed twice", name)
		}
		cells = append(cells, all[i])
	}
	if !slices.ContainsFunc(cells, func(c results.Cell) bool { return c.Baseline }) {
		return nil, fmt.Errorf("the baseline %q is missing", s.Spec.Baseline)
	}
	return cells, nil
}

// Named returns the names of the cells of a session in a mode: those asked for, else those of the scenario
// with the mode's own. No names mean all.
func (s Scenario) Named(asked []string, mode string) []string {
	if len(asked) > 0 || len(s.Spec.Cells) == 0 {
		return asked
	}
	return slices.Concat(s.Spec.Cells, s.Spec.Modes[mode].MoreCells)
}

// has returns an error unless there is a cell of that name.
func (s Scenario) has(name string) error {
	if slices.ContainsFunc(s.AllCells(), func(c results.Cell) bool { return c.Name == name }) {
		return nil
	}
	return s.noCell(name)
}

// noCell says why there is no cell of that name.
func (s Scenario) noCell(name string) error {
	for _, e := range s.Excluded() {
		if e.Cell == name {
			return fmt.Errorf("%q is excluded: %s", name, e.Because)
		}
	}
	if len(s.Spec.Factors) == 0 {
		return fmt.Errorf("%q: without factors there is one cell, %q, named as the scenario", name, s.Metadata.Name)
	}
	var factors []string
	for _, f := range s.Spec.Factors {
		factors = append(factors, f.Name)
	}
	return fmt.Errorf("%q is none of the combinations of the factors (%s)", name, strings.Join(factors, "-"))
}

// Conditions returns the conditions of a cell.
func (s Scenario) Conditions(c results.Cell) factor.Conditions {
	conditions := s.fixed
	conditions.Lane = s.Spec.Lane
	conditions.Probes = nil
	conditions.Before, conditions.After = slices.Clone(s.fixed.Before), slices.Clone(s.fixed.After)
	conditions.Needs = slices.Clone(s.fixed.Needs)
	for _, f := range s.Spec.Factors {
		if level, ok := c.Levels[f.Name]; ok {
			f.Set(&conditions, level)
		}
	}
	return conditions
}

// Factors describes the factors for the results.
func (s Scenario) Factors() []results.Factor {
	all := []results.Factor{}
	for _, f := range s.Spec.Factors {
		_, perBoot := f.Factor.(factor.PerBoot)
		all = append(all, results.Factor{Name: f.Name, Levels: f.Levels(), Quiet: f.Quiet(),
			Outside: f.Outside(), PerBoot: perBoot})
	}
	return all
}

// Beside returns the scenario around a lane in force, with only those factors that change nothing of the
// application. In all others the cells are like the baseline, except for the path if one is given. Searches
// are made in the lane, except those that would vary it.
func (s Scenario) Beside(spec lane.Spec, path string) Scenario {
	var fixed factor.Conditions
	var kept []Factor
	levels := map[string]string{}
	for _, c := range s.AllCells() {
		for _, f := range s.Spec.Factors {
			level, ok := c.Levels[f.Name]
			switch {
			case !c.Baseline || !ok:
			case f.Outside():
				f.Where = nil
				kept = append(kept, f)
				levels[f.Name] = cmp.Or(f.Quiet(), level)
			default:
				f.Set(&fixed, level)
			}
		}
	}
	spec.Cgroup = lane.Cgroup{} // what a scenario has in its lane, it starts itself
	fixed.Place, fixed.Instances = factor.InLane, 0
	if path != "" {
		fixed.Path, fixed.VLAN = path, lane.VLAN{} // the scenario's tags belong to its own path
	}
	around := s
	around.Spec.Factors, around.Spec.Lane, around.fixed = kept, spec, fixed
	around.Spec.Exclude, around.Spec.Cells, around.Spec.Published, around.Spec.Aims = nil, nil, nil, nil
	around.Spec.Baseline = around.nameOf(levels)
	around.Spec.Searches = nil
	for _, q := range s.Spec.Searches {
		if q.Factor == "" || slices.ContainsFunc(kept, func(f Factor) bool { return f.Name == q.Factor }) {
			around.Spec.Searches = append(around.Spec.Searches, s.searchBeside(q, around, levels))
		}
	}
	return around
}

// searchBeside makes a search in those cells around a lane in force that are like its own, each once.
func (s Scenario) searchBeside(q Search, around Scenario, base map[string]string) Search {
	seen := map[string]bool{}
	var cells []string
	for _, name := range q.Cells {
		levels := maps.Clone(base)
		for of, level := range s.cell(name).Levels {
			if _, ok := levels[of]; ok {
				levels[of] = level
			}
		}
		cell := around.nameOf(levels)
		if varied, _ := around.Varied(q, cell); !seen[varied] {
			seen[varied] = true
			cells = append(cells, cell)
		}
	}
	q.Cells = cells
	return q
}
