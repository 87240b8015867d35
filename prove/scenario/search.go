package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Search looks for the point up to which something holds, among the levels of a factor or the values of a
// probe's setting.
type Search struct {
	Name   string             `json:"name"`
	Kind   results.SearchKind `json:"kind"`
	Factor string             `json:"factor,omitempty"` // for smallest: its levels are numbers
	// Probe makes the load for highest and bounds, by a setting; absent: rate.
	Probe   string           `json:"probe,omitempty"`
	Setting string           `json:"setting,omitempty"`
	From    float64          `json:"from,omitempty"`
	To      float64          `json:"to,omitempty"`
	Width   quantity.Percent `json:"width,omitempty"` // of the bracket; absent: 5%
	// Cells in which the search is made, separately; for smallest, any of those that differ only in its factor.
	Cells []string    `json:"cells"`
	Goal  *SearchGoal `json:"goal,omitempty"` // for smallest and highest
}

// SearchGoal is a figure to be reached: AtMost, AtLeast, or at least Percent of another.
type SearchGoal struct {
	Metric    string      `json:"metric"`
	Statistic string      `json:"statistic,omitempty"` // p50, p99.9, max: of samples
	AtMost    factor.Name `json:"atMost,omitempty"`    // in the metric's unit: 10ms, 1Gbit/s, 200
	AtLeast   factor.Name `json:"atLeast,omitempty"`
	Percent   float64     `json:"percent,omitempty"`
	Of        factor.Name `json:"of,omitempty"`
}

// Trials says how long a mode's searches try.
type Trials struct {
	Trial quantity.Duration `json:"trial"` // one trial, without warm-up
	Sum   quantity.Duration `json:"sum"`   // decides about a point if half of it may miss
	Long  quantity.Duration `json:"long"`  // the same if a twentieth may miss
}

// UnmarshalJSON leaves the usual times where none are given.
func (t *Trials) UnmarshalJSON(data []byte) error {
	type plain Trials
	*t = Trials{usualTrial, usualSum, usualLong}
	return probe.Decode(data, (*plain)(t))
}

// The limits of a search.
const (
	maxLoad   = 1e9
	maxWidth  = 10 // times
	minWidth  = 0.001
	maxTrials = 1000 // that decide about a point
)

// The trials of RFC 9971 as CSIT makes them, and of a goal that may be missed in 5% of the time.
const (
	usualTrial = quantity.Duration(time.Second)
	usualSum   = 21 * usualTrial
	usualLong  = 60 * usualTrial
)

// readSearches fills in the defaults of searches, and checks what they refer to.
func (s *Scenario) readSearches(kinds Drivers) error {
	made := len(s.Spec.Searches) == 0
	for name, m := range s.Spec.Modes {
		if m.Searches == nil {
			continue
		}
		if len(s.Spec.Searches) == 0 {
			return fmt.Errorf("spec.modes.%s.searches: expected none, or spec.searches that it makes", name)
		}
		made = true
		t := *m.Searches
		if t.Trial == 0 || t.Sum < t.Trial || t.Long < t.Sum || t.Long/t.Trial > maxTrials {
			return fmt.Errorf("spec.modes.%s.searches: expected trial above 0, sum and long, each at least the one "+
				"before, and at most %d trials, found %s, %s, %s", name, maxTrials, t.Trial, t.Sum, t.Long)
		}
	}
	if !made {
		return errors.New("spec.modes: expected searches in one of them: spec.searches are made in no other mode")
	}
	for i := range s.Spec.Searches {
		q := &s.Spec.Searches[i]
		before := s.Spec.Searches[:i]
		if err := factor.CheckName(q.Name); err != nil {
			return fmt.Errorf("spec.searches[%d].name: %w", i, err)
		}
		if slices.ContainsFunc(before, func(o Search) bool { return o.Name == q.Name }) {
			return fmt.Errorf("spec.searches[%d].name: %q is listed twice", i, q.Name)
		}
		if err := s.readSearch(q, kinds); err != nil {
			return fmt.Errorf("spec.searches[%d] (%s).%w", i, q.Name, err)
		}
	}
	return nil
}

func (s *Scenario) readSearch(q *Search, kinds Drivers) error {
	if len(q.Cells) == 0 {
		return errors.New("cells: at least one is needed")
	}
	for _, name := range q.Cells {
		if err := s.has(name); err != nil {
			return fmt.Errorf("cells: %w", err)
		}
	}
	switch q.Kind {
	case results.Smallest:
		if q.Probe != "" || q.Setting != "" || q.From != 0 || q.To != 0 || q.Width != 0 {
			return errors.New("kind: smallest takes factor, cells and goal")
		}
		if err := s.readFactorSearch(*q); err != nil {
			return err
		}
	case results.Highest, results.Bounds:
		if q.Factor != "" {
			return fmt.Errorf("factor: %s varies the setting of a probe", q.Kind)
		}
		if err := s.readLoadSearch(q, kinds); err != nil {
			return err
		}
	default:
		return fmt.Errorf("kind: %q: expected smallest, highest or bounds", q.Kind)
	}
	seen := map[string]bool{}
	for _, cell := range q.Cells {
		name, _ := s.Varied(*q, cell)
		if seen[name] {
			return fmt.Errorf("cells: %s is listed twice", name)
		}
		seen[name] = true
	}
	if q.Kind == results.Bounds {
		if q.Goal != nil {
			return errors.New("goal: bounds has its own three")
		}
	} else if err := s.readGoal(*q); err != nil {
		return fmt.Errorf("goal%w", err)
	}
	return s.validateTrials(*q, kinds)
}

func (s *Scenario) readFactorSearch(q Search) error {
	k := slices.IndexFunc(s.Spec.Factors, func(f Factor) bool { return f.Name == q.Factor })
	if k < 0 {
		return fmt.Errorf("factor: %q is no factor", q.Factor)
	}
	if _, ok := s.Spec.Factors[k].Factor.(factor.PerBoot); ok {
		return fmt.Errorf("factor: %s: expected one that changes while the machine runs", q.Factor)
	}
	for _, l := range s.Spec.Factors[k].Levels() {
		if v, err := strconv.ParseFloat(l.Name, 64); err != nil || !positive(v) {
			return fmt.Errorf("factor: %s: level %q is no number", q.Factor, l.Name)
		}
	}
	for _, name := range q.Cells {
		if _, cells := s.Varied(q, name); len(cells) == 0 {
			return fmt.Errorf("cells: %s has no level of factor %s", name, q.Factor)
		}
	}
	return nil
}

func (s *Scenario) readLoadSearch(q *Search, kinds Drivers) error {
	q.Setting, q.Width = cmp.Or(q.Setting, "rate"), cmp.Or(q.Width, 0.05)
	if !(q.From > 0 && q.From < q.To && q.To <= maxLoad) {
		return fmt.Errorf("from: expected more than 0, less than to, and to at most %g, "+
			"found %g and %g", maxLoad, q.From, q.To)
	}
	if !(q.Width >= minWidth && q.Width <= maxWidth) {
		return fmt.Errorf("width: expected %g%% to %g%%, found %g%%", 100*minWidth, 100.0*maxWidth, 100*q.Width)
	}
	for _, name := range q.Cells {
		for _, load := range []float64{q.From, q.To} {
			p, err := s.Trial(*q, s.cell(name), load, kinds)
			if err != nil {
				return err
			}
			if p.Metrics(p.Name)[0].Loop != results.Open {
				return fmt.Errorf("probe: %s: expected an open loop: a closed one offers no load, it takes what it "+
					"gets", q.Probe)
			}
		}
	}
	return nil
}

// cell returns the cell of that name, which must exist.
func (s Scenario) cell(name string) results.Cell {
	all := s.AllCells()
	return all[slices.IndexFunc(all, func(c results.Cell) bool { return c.Name == name })]
}

// Varied returns the cells that differ from one only in the factor of a search, and their common name.
func (s Scenario) Varied(q Search, cell string) (name string, cells []results.Cell) {
	like := s.cell(cell)
	if q.Factor == "" {
		return cell, []results.Cell{like}
	}
	others := func(c results.Cell) map[string]string {
		levels := maps.Clone(c.Levels)
		delete(levels, q.Factor)
		return levels
	}
	for _, c := range s.AllCells() {
		if _, ok := c.Levels[q.Factor]; ok && maps.Equal(others(c), others(like)) {
			cells = append(cells, c)
		}
	}
	return s.nameOf(others(like)), cells
}

// Trial returns the probe that tries a search at a point of a cell.
func (s Scenario) Trial(q Search, c results.Cell, point float64, kinds Drivers) (Probe, error) {
	given := s.Conditions(c)
	name := q.Probe
	if q.Factor != "" {
		name = s.probeWith(q.Goal.Metric)
	} else {
		all := map[string]map[string]any{}
		maps.Copy(all, given.Probes)
		fields := maps.Clone(all[name])
		if fields == nil {
			fields = map[string]any{}
		}
		if q.Setting == "rate" {
			fields["share"] = nil // the point takes its place
		}
		fields[q.Setting] = point
		all[name], given.Probes = fields, all
	}
	probes, err := s.ProbesOf(given, kinds.Probes)
	if err != nil {
		return Probe{}, fmt.Errorf("setting: %w", err)
	}
	k := slices.IndexFunc(probes, func(p Probe) bool { return p.Name == name })
	if k < 0 {
		return Probe{}, fmt.Errorf("probe: %q is no probe", name)
	}
	return probes[k], nil
}

// probeWith returns the name of the probe that has the metric; "" for none.
func (s Scenario) probeWith(metric string) string {
	for _, p := range s.Spec.Probes {
		if slices.ContainsFunc(p.Metrics(p.Name), func(m results.Metric) bool { return m.Name == metric }) {
			return p.Name
		}
	}
	return ""
}

// MetricOf returns the metric of a search's goal.
func (s Scenario) MetricOf(q Search) (m results.Metric, ok bool) {
	if q.Goal == nil {
		return m, false
	}
	for _, p := range s.Spec.Probes {
		for _, m := range p.Metrics(p.Name) {
			if m.Name == q.Goal.Metric && (q.Probe == "" || q.Probe == p.Name) {
				return m, true
			}
		}
	}
	return m, false
}

// validateTrials checks that the modes' trials can be made.
func (s *Scenario) validateTrials(q Search, kinds Drivers) error {
	for _, name := range slices.Sorted(maps.Keys(s.Spec.Modes)) {
		m := s.Spec.Modes[name]
		if m.Searches == nil {
			continue
		}
		for _, cell := range q.Cells {
			_, cells := s.Varied(q, cell)
			for _, c := range cells {
				p, err := s.Trial(q, c, q.From, kinds)
				if err != nil {
					return err
				}
				given := m.Try().Conditions(p)
				if err := cmp.Or(given.Validate(), p.Validate(given)); err != nil {
					return fmt.Errorf("probe: %s, spec.modes.%s.searches: %w", p.Name, name, err)
				}
			}
		}
		if q.Goal == nil || q.Goal.Statistic == "" || q.Setting != "rate" {
			continue
		}
		quantile, _ := lane.Quantile(q.Goal.Statistic) // it was checked when read
		need := stats.SamplesFor(quantile)
		if found := q.From * m.Searches.Trial.Duration().Seconds(); quantile < 1 && found < float64(need) {
			return fmt.Errorf("from: %s needs %d samples, a trial of %s at %g has %.0f (spec.modes.%s.searches)",
				q.Goal.Statistic, need, m.Searches.Trial, q.From, found, name)
		}
	}
	return nil
}

// Try returns the mode with the windows of its searches' trials.
func (m Mode) Try() Mode {
	windows := map[string]Window{}
	for kind, w := range m.Windows {
		w.Measure = m.Searches.Trial
		windows[kind] = w
	}
	m.Windows = windows
	return m
}
