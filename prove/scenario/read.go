package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/guest"
)

// readFactors lets each factor's driver read its settings.
func (s *Scenario) readFactors(kinds Drivers) error {
	cells := []map[string]string{{}}
	for i := range s.Spec.Factors {
		f := &s.Spec.Factors[i]
		at := fmt.Sprintf("spec.factors[%d]", i)
		before := s.Spec.Factors[:i]
		if err := factor.CheckName(f.Name); err != nil {
			return fmt.Errorf("%s.name: %w", at, err)
		}
		if slices.ContainsFunc(before, func(o Factor) bool { return o.Name == f.Name }) {
			return fmt.Errorf("%s.name: %q is listed twice", at, f.Name)
		}
		if f.Kind == "" {
			f.Kind = f.Name
		}
		kind, err := probe.Find(kinds.Factors, f.Kind)
		if err != nil {
			return fmt.Errorf("%s.kind: %w", at, err)
		}
		if f.Factor, err = kind.Read(f.settings); err != nil {
			return fmt.Errorf("%s (%s): %w", at, f.Name, err)
		}
		if err = known(f.Where, before); err != nil {
			return fmt.Errorf("%s (%s).where: %w", at, f.Name, err)
		}
		if cells = f.vary(cells); cells == nil {
			return fmt.Errorf("%s: expected at most %d combinations", at, maxCells)
		}
	}
	for i, e := range s.Spec.Exclude {
		if err := known(e.Where, s.Spec.Factors); err != nil {
			return fmt.Errorf("spec.exclude[%d].where: %w", i, err)
		}
		if len(e.Where) == 0 || strings.TrimSpace(e.Because) == "" {
			return fmt.Errorf("spec.exclude[%d]: expected where, and because: the reason, which is printed", i)
		}
	}
	return nil
}

// known returns an error unless the factors have these levels.
func known(where Where, factors []Factor) error {
	for name, levels := range where {
		k := slices.IndexFunc(factors, func(f Factor) bool { return f.Name == name })
		if k < 0 {
			return fmt.Errorf("%q is no factor before this one", name)
		}
		for _, l := range levels {
			if !slices.ContainsFunc(factors[k].Levels(), func(o results.Level) bool { return o.Name == string(l) }) {
				return fmt.Errorf("%s has no level %q", name, l)
			}
		}
	}
	return nil
}

// readProbes lets each probe's driver read its settings.
func (s *Scenario) readProbes(kinds Drivers) error {
	if len(s.Spec.Probes) == 0 {
		return errors.New("spec.probes: at least one is needed")
	}
	seen := map[string]bool{}
	for i := range s.Spec.Probes {
		p := &s.Spec.Probes[i]
		if err := factor.CheckName(p.Name); err != nil {
			return fmt.Errorf("spec.probes[%d].name: %w", i, err)
		}
		if seen[p.Name] {
			return fmt.Errorf("spec.probes[%d].name: %q is listed twice", i, p.Name)
		}
		seen[p.Name] = true
		kind, err := probe.Find(kinds.Probes, p.Kind)
		if err != nil {
			return fmt.Errorf("spec.probes[%d].kind: %w", i, err)
		}
		if p.Probe, err = kind.Read(p.settings); err != nil {
			return fmt.Errorf("spec.probes[%d] (%s): %w", i, p.Name, err)
		}
	}
	for _, c := range s.AllCells() {
		given := s.Conditions(c)
		probes, err := s.ProbesOf(given, kinds.Probes)
		if err != nil {
			return fmt.Errorf("cell %s: %w", c.Name, err)
		}
		for _, p := range probes {
			if why := p.Cannot(given); why != "" && !p.Optional {
				return fmt.Errorf("spec.probes (%s): cell %s: %s: expected optional: true, which leaves it out there",
					p.Name, c.Name, why)
			}
		}
	}
	return nil
}

// onHost is a probe that cannot run in a guest.
type onHost interface {
	OnHost() (because string) // "": it can
}

// Cannot says why a probe cannot run under these conditions on any machine; "" if it can.
func (p Probe) Cannot(c factor.Conditions) string {
	if _, ok := p.Probe.(probe.Merger); !ok && c.Instances > 1 {
		return fmt.Sprintf("kind %s measures one instance of the application only, not %d", p.Kind, c.Instances)
	}
	if h, ok := p.Probe.(onHost); ok && c.Guest.Runtime != "" {
		if why := h.OnHost(); why != "" {
			return why
		}
	}
	if c.Guest.Runtime != guest.VM || p.Inside() {
		return ""
	}
	if _, _, can := p.InMachine(); !can {
		return fmt.Sprintf("kind %s has an application that cannot run in a virtual machine", p.Kind)
	}
	if len(c.Ends.Application) > 0 {
		return "what is at the application's end of the wire cannot run in a virtual machine"
	}
	return ""
}

// inMachine is a probe whose application can run in a virtual machine with the host's programs.
type inMachine interface {
	// InMachine returns programs that it runs there, and kernel modules that it needs. can is false if its
	// settings do not allow it.
	InMachine() (programs, modules []string, can bool)
}

// InMachine reports whether the application can run in a virtual machine, and what it needs there.
func (p Probe) InMachine() (programs, modules []string, can bool) {
	if m, is := p.Probe.(inMachine); is {
		return m.InMachine()
	}
	return nil, nil, false
}

// ProbesOf returns the probes of a cell, with the settings that its levels change.
func (s Scenario) ProbesOf(c factor.Conditions, kinds []probe.Driver) ([]Probe, error) {
	probes := slices.Clone(s.Spec.Probes)
	for name, fields := range c.Probes {
		i := slices.IndexFunc(probes, func(p Probe) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("a level sets fields of probe %q, which there is not", name)
		}
		p := &probes[i]
		settings, err := with(json.RawMessage(p.settings), fields)
		if err != nil {
			return nil, err
		}
		kind, err := probe.Find(kinds, p.Kind)
		if err != nil {
			return nil, err
		}
		if p.Probe, err = kind.Read(settings); err != nil {
			return nil, fmt.Errorf("probe %s: %w", name, err)
		}
	}
	for _, p := range probes {
		if a, is := p.Probe.(among); is {
			if err := a.Among(max(1, c.Instances)); err != nil {
				return nil, fmt.Errorf("probe %s: %w", p.Name, err)
			}
		}
	}
	return probes, nil
}

// among is a probe whose settings may need several instances of the application.
type among interface{ Among(instances int) error }

// Metrics returns what the runs measure: primary metrics first, and means before the first of their parts.
func (s Scenario) Metrics() ([]results.Metric, error) {
	var all []results.Metric
	for _, p := range s.Spec.Probes {
		all = append(all, p.Metrics(p.Name)...)
	}
	for i, mean := range s.Spec.Means {
		first := slices.IndexFunc(all, func(m results.Metric) bool { return slices.Contains(mean.Of, m.Name) })
		if err := factor.CheckName(mean.Name); err != nil {
			return nil, fmt.Errorf("spec.means[%d].name: %w", i, err)
		}
		if first < 0 {
			return nil, fmt.Errorf("spec.means[%d].of: expected names of metrics, found %q", i, mean.Of)
		}
		m, short := all[first], []string{}
		for _, name := range mean.Of {
			k := slices.IndexFunc(all, func(m results.Metric) bool { return m.Name == name })
			if k < 0 || all[k].Sampled || all[k].Unit != m.Unit || all[k].Better != m.Better {
				return nil, fmt.Errorf("spec.means[%d].of: %q: expected a metric in %s with one value a run", i, name,
					m.Unit)
			}
			short = append(short, all[k].Short)
		}
		m.Name, m.MeanOf, m.Short, m.About = mean.Name, mean.Of, "", "Geometric mean of "+strings.Join(short,
			" and ")
		all = slices.Insert(all, first, m)
	}
	for i, m := range all {
		if slices.ContainsFunc(all[:i], func(o results.Metric) bool { return o.Name == m.Name }) {
			return nil, fmt.Errorf("spec.probes, spec.means: two metrics have the name %q", m.Name)
		}
	}
	primary := s.Spec.Primary
	if len(primary) == 0 {
		primary = firstOfEach(all, s.optional())
	}
	ordered := []results.Metric{}
	for i, name := range primary {
		if slices.Contains(primary[:i], name) {
			return nil, fmt.Errorf("spec.primary[%d]: %q is listed twice", i, name)
		}
		k := slices.IndexFunc(all, func(m results.Metric) bool { return m.Name == name })
		if k < 0 {
			return nil, fmt.Errorf("spec.primary[%d]: %q: expected one of %s", i, name, namesOf(all))
		}
		m := all[k]
		m.Role = results.Primary
		ordered, all = append(ordered, m), slices.Delete(all, k, k+1)
	}
	return append(ordered, all...), nil
}

// optional returns the metrics of optional probes.
func (s Scenario) optional() map[string]bool {
	names := map[string]bool{}
	for _, p := range s.Spec.Probes {
		if p.Optional {
			for _, m := range p.Metrics(p.Name) {
				names[m.Name] = true
			}
		}
	}
	return names
}

// firstOfEach returns the first metric of each quantity, leaving out costs, checks and optional probes.
func firstOfEach(all []results.Metric, optional map[string]bool) (names []string) {
	seen := map[string]bool{}
	for _, m := range all {
		if m.Role == "" && !seen[m.Quantity] && !optional[m.Name] {
			seen[m.Quantity] = true
			names = append(names, m.Name)
		}
	}
	return names
}

func namesOf(all []results.Metric) string {
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// needs is a probe whose settings say which program it needs.
type needs interface {
	Needs() (program, debian string)
}

// Program is a program that must be on the host.
type Program struct{ Name, Package string } // Debian's

// Programs returns the programs on the host that the probes and the levels of these cells need, without those
// of optional probes.
func (s Scenario) Programs(cells []results.Cell, kinds []probe.Driver) []Program {
	var all []Program
	add := func(more ...Program) {
		for _, p := range more {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	for _, f := range s.Spec.Factors {
		for _, c := range cells {
			for _, name := range f.Programs(c.Levels[f.Name]) {
				from := name
				if other, ok := f.Factor.(probe.Packaged); ok {
					from = other.Package(name)
				}
				add(Program{name, from})
			}
		}
	}
	for _, p := range s.Spec.Probes {
		if !p.Optional {
			add(p.Programs(kinds)...)
		}
	}
	return all
}

// Programs returns the programs that the probe needs.
func (p Probe) Programs(kinds []probe.Driver) (all []Program) {
	kind, err := probe.Find(kinds, p.Kind)
	if err != nil {
		return nil // it was checked when read
	}
	for _, name := range kind.Programs() {
		all = append(all, Program{name, probe.Package(kind, name)})
	}
	if n, ok := p.Probe.(needs); ok {
		if name, debian := n.Needs(); name != "" {
			all = append(all, Program{name, debian})
		}
	}
	return all
}

// Networked reports whether some probe measures from outside.
func (s Scenario) Networked() bool {
	return slices.ContainsFunc(s.Spec.Probes, func(p Probe) bool { return !p.Inside() })
}

// Doubts says what is wrong with somebody else's figures.
func (s Scenario) Doubts() []results.Doubt {
	var all []results.Doubt
	for _, from := range s.Spec.Published {
		for _, text := range from.Doubts {
			all = append(all, results.Doubt{Source: from.Source, Text: text})
		}
	}
	return all
}

// Published returns somebody else's figures.
func (s Scenario) Published() []results.Published {
	var all []results.Published
	for _, from := range s.Spec.Published {
		for _, f := range from.Figures {
			if f.Against != "" {
				continue
			}
			all = append(all, results.Published{Cell: f.Cell, Metric: f.Metric, Percent: f.Percent, Value: f.Value,
				Statistic: f.Statistic, Qualifier: f.Qualifier, Source: from.Source})
		}
	}
	return all
}

// positive reports whether a percentage or a figure is possible.
func positive(v float64) bool { return v > 0 && v <= 1e18 && !math.IsNaN(v) }
