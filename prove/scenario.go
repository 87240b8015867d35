package prove

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/noise"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/sched"
)

// APIVersion is that of scenarios. v1alpha1 had the windows of a mode by metric.
const APIVersion = "isolane.dev/v1alpha2"

// The levels of the factors.
const (
	Floating = "floating" // anywhere on the platform's CPUs
	Pinned   = "pinned"   // a cpuset of its own, and nothing else: what CPU managers do
	Lane     = "lane"     // all that Isolane does

	Quiet = "quiet"
	Noisy = "noisy"
)

// Scenario is a matrix of conditions and the probes to run in each cell, as its YAML file says.
type Scenario struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   Metadata     `json:"metadata"`
	Spec       ScenarioSpec `json:"spec"`

	programs []string // on the host that it needs
}

// Metadata names a scenario.
type Metadata struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

// ScenarioSpec is the body of a scenario.
type ScenarioSpec struct {
	Factors  Factors   `json:"factors"`
	Baseline string    `json:"baseline"`
	Cells    []string  `json:"cells,omitempty"` // all combinations when absent
	Lane     lane.Spec `json:"lane"`            // what the application asks for
	// CongestionControl is TCP's algorithm on both sides, "" leaves the host's.
	CongestionControl string           `json:"congestionControl,omitempty"`
	Client            Client           `json:"client"`
	Neighbours        []noise.Stressor `json:"neighbours"`
	Probes            []ProbeSpec      `json:"probes"`
	Modes             map[string]Mode  `json:"modes"` // quick, standard, proof
	Aims              *results.Aims    `json:"aims,omitempty"`
	Published         PublishedSpec    `json:"published"`
}

// Factors are the conditions that vary between cells, each with its levels.
type Factors struct {
	Placement []string `json:"placement"`
	Noise     []string `json:"noise"`
	Path      []string `json:"path"`
}

// Client is how the outside client is scheduled, in every cell alike.
type Client struct {
	Policy   sched.Policy `json:"policy"`
	Priority int          `json:"priority"`
}

// ProbeSpec is one measurement of each run. In YAML the settings of its driver stand beside name and kind.
type ProbeSpec struct {
	Name, Kind string
	probe.Probe

	settings []byte // as JSON, until they are read
}

// UnmarshalJSON leaves the settings to the driver, which Parse knows.
func (p *ProbeSpec) UnmarshalJSON(data []byte) (err error) {
	var all map[string]any
	if err = json.Unmarshal(data, &all); err != nil {
		return err
	}
	for key, into := range map[string]*string{"name": &p.Name, "kind": &p.Kind} {
		*into, _ = all[key].(string)
		delete(all, key)
	}
	p.settings, err = json.Marshal(all)
	return err
}

// MarshalJSON writes the settings with all defaults filled in.
func (p ProbeSpec) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(p.Probe)
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	if err = json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	all["name"], all["kind"] = p.Name, p.Kind
	return json.Marshal(all)
}

// Mode is how much is measured.
type Mode struct {
	Blocks  int               `json:"blocks"`  // counted; one more is run first and dropped
	Windows map[string]Window `json:"windows"` // by kind of probe
}

// Window is how long a probe measures, and what it drops before.
type Window struct {
	Warmup  quantity.Duration `json:"warmup"`
	Measure quantity.Duration `json:"measure"`
}

// PublishedSpec are the figures of somebody else for the same conditions.
type PublishedSpec struct {
	Source  string            `json:"source"`
	Figures []PublishedFigure `json:"figures"`
}

// PublishedFigure is one of them.
type PublishedFigure struct {
	Cell      string  `json:"cell"`
	Metric    string  `json:"metric"`
	Percent   float64 `json:"percent"`
	Qualifier string  `json:"qualifier"`
}

// Parse reads a scenario; name is the file's, for errors. Unknown fields are errors.
func Parse(name string, r io.Reader, kinds []probe.Driver) (Scenario, error) {
	data, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return Scenario{}, fmt.Errorf("%s: %w", name, err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return Scenario{}, fmt.Errorf("%s: empty: expected a document of kind Scenario", name)
	}
	var s Scenario
	if err = probe.Decode(data, &s); err == nil {
		err = s.readProbes(kinds)
	}
	if err == nil {
		err = s.validate()
	}
	if err != nil {
		return Scenario{}, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

func (s Scenario) validate() error {
	switch {
	case s.APIVersion != APIVersion || s.Kind != "Scenario":
		return fmt.Errorf("apiVersion, kind: expected %s Scenario, found %q %q", APIVersion, s.APIVersion,
			s.Kind)
	case s.Metadata.Name == "":
		return errors.New("metadata.name: missing")
	case len(s.Spec.Probes) == 0:
		return errors.New("spec.probes: at least one is needed")
	}
	for _, check := range []func() error{s.validateFactors, s.validateCells, s.validateModes} {
		if err := check(); err != nil {
			return err
		}
	}
	if err := enforce.Refuse([]lane.Lane{{Metadata: lane.Metadata{Name: s.Metadata.Name},
		Spec: s.Spec.Lane}}); err != nil {
		return err
	}
	if err := s.Spec.Lane.Validate(); err != nil {
		return fmt.Errorf("spec.lane: %w", err)
	}
	if s.Spec.Lane.Cgroup.Path != "" {
		return errors.New("spec.lane.cgroup.path: expected none, what runs in this lane is started by the session")
	}
	for i, n := range s.Spec.Neighbours {
		if err := n.Validate(); err != nil {
			return fmt.Errorf("spec.neighbours[%d].%w", i, err)
		}
	}
	if len(s.Spec.Neighbours) == 0 && slices.Contains(s.Spec.Factors.Noise, Noisy) {
		return errors.New("spec.neighbours: the factor noise has the level noisy, but nobody makes noise")
	}
	if c := s.Spec.Client; c.Policy != "" && (!c.Policy.IsRealTime() || c.Priority < 1 || c.Priority > 98) {
		return fmt.Errorf("spec.client: expected policy fifo or rr and a priority of 1-98, found %q %d", c.Policy,
			c.Priority)
	}
	return nil
}

func (s Scenario) validateFactors() error {
	f := s.Spec.Factors
	for _, factor := range []struct {
		name   string
		levels []string
		known  []string
	}{
		{"placement", f.Placement, []string{Floating, Pinned, Lane}},
		{"noise", f.Noise, []string{Quiet, Noisy}},
		{"path", f.Path, nil}, // the drivers know them
	} {
		if len(factor.levels) == 0 {
			return fmt.Errorf("spec.factors.%s: at least one level is needed", factor.name)
		}
		seen := map[string]bool{}
		for _, l := range factor.levels {
			if factor.known != nil && !slices.Contains(factor.known, l) {
				return fmt.Errorf("spec.factors.%s: %q is unknown: expected %s", factor.name, l,
					strings.Join(factor.known, ", "))
			}
			if seen[l] {
				return fmt.Errorf("spec.factors.%s: %q is listed twice", factor.name, l)
			}
			seen[l] = true
		}
	}
	return nil
}

func (s Scenario) validateCells() error {
	if !slices.ContainsFunc(s.AllCells(), func(c results.Cell) bool { return c.Name == s.Spec.Baseline }) {
		return fmt.Errorf("spec.baseline: %q is none of the combinations of the factors", s.Spec.Baseline)
	}
	if _, err := s.cells(s.Spec.Cells); err != nil {
		return fmt.Errorf("spec.cells: %w", err)
	}
	if err := s.validateAims(); err != nil {
		return err
	}
	for i, f := range s.Spec.Published.Figures {
		if _, err := s.cells([]string{f.Cell, s.Spec.Baseline}); err != nil {
			return fmt.Errorf("spec.published.figures[%d].cell: %w", i, err)
		}
		if !slices.Contains(kindsOfMetrics(), f.Metric) {
			return fmt.Errorf("spec.published.figures[%d].metric: expected rtt or throughput, found %q", i, f.Metric)
		}
	}
	return nil
}

func kindsOfMetrics() []string { return []string{"rtt", "throughput"} }

func (s Scenario) validateAims() error {
	if s.Spec.Aims == nil {
		return nil
	}
	if _, err := s.cells([]string{s.Spec.Aims.Cell, s.Spec.Baseline}); err != nil {
		return fmt.Errorf("spec.aims.cell: %w", err)
	}
	for i, g := range s.Spec.Aims.Goals {
		switch {
		case !slices.Contains(kindsOfMetrics(), g.Metric):
			return fmt.Errorf("spec.aims.goals[%d].metric: expected rtt or throughput, found %q", i, g.Metric)
		case g.Statistic != "" && (g.Statistic != results.P999 || g.Metric != "rtt"):
			return fmt.Errorf("spec.aims.goals[%d].statistic: expected none, or p99.9 of rtt, found %q", i,
				g.Statistic)
		case !(g.Percent > 0) || g.Percent > 1e6:
			return fmt.Errorf("spec.aims.goals[%d].percent: expected more than 0 and at most 1000000, found %g", i,
				g.Percent)
		}
	}
	return nil
}

// readProbes has each probe's driver read its settings, and collects the programs that the scenario needs.
func (s *Scenario) readProbes(kinds []probe.Driver) error {
	if slices.Contains(s.Spec.Factors.Noise, Noisy) {
		s.programs = append(s.programs, noise.Program)
	}
	seen := map[string]bool{}
	for i, p := range s.Spec.Probes {
		if p.Name == "" || seen[p.Name] {
			return fmt.Errorf("spec.probes[%d].name: %q is missing or listed twice", i, p.Name)
		}
		seen[p.Name] = true
		kind, err := probe.Find(kinds, p.Kind)
		if err != nil {
			return fmt.Errorf("spec.probes[%d].kind: %w", i, err)
		}
		if s.Spec.Probes[i].Probe, err = kind.Read(p.settings); err != nil {
			return fmt.Errorf("spec.probes[%d] (%s): %w", i, p.Name, err)
		}
		for _, program := range kind.Programs() {
			if !slices.Contains(s.programs, program) {
				s.programs = append(s.programs, program)
			}
		}
	}
	return nil
}

func (s Scenario) validateModes() error {
	for name, m := range s.Spec.Modes {
		if !slices.Contains([]string{"quick", "standard", "proof"}, name) {
			return fmt.Errorf("spec.modes: %q is unknown: expected quick, standard, proof", name)
		}
		if m.Blocks < 1 || m.Blocks > 1000 {
			return fmt.Errorf("spec.modes.%s.blocks: expected 1-1000, found %d", name, m.Blocks)
		}
		for kind := range m.Windows {
			if !slices.ContainsFunc(s.Spec.Probes, func(p ProbeSpec) bool { return p.Kind == kind }) {
				return fmt.Errorf("spec.modes.%s.windows.%s: no probe of this kind", name, kind)
			}
		}
		for i, p := range s.Spec.Probes {
			c := m.conditions(p)
			if err := cmp.Or(c.Validate(), p.Validate(c)); err != nil {
				return fmt.Errorf("spec.probes[%d] (%s), spec.modes.%s.windows.%s: %w", i, p.Name, name, p.Kind, err)
			}
		}
	}
	if len(s.Spec.Modes) == 0 {
		return errors.New("spec.modes: at least one is needed")
	}
	return nil
}

// conditions are those of a probe in this mode.
func (m Mode) conditions(p ProbeSpec) probe.Conditions {
	w := m.Windows[p.Kind]
	return probe.Conditions{Name: p.Name, Warmup: w.Warmup.Duration(), Window: w.Measure.Duration()}
}

// AllCells returns all combinations of the factors.
func (s Scenario) AllCells() []results.Cell {
	var cells []results.Cell
	for _, path := range s.Spec.Factors.Path {
		for _, placement := range s.Spec.Factors.Placement {
			for _, loudness := range s.Spec.Factors.Noise {
				name := loudness + "-" + placement + "-" + path
				cells = append(cells, results.Cell{Name: name, Placement: placement, Noise: loudness, Path: path,
					Baseline: name == s.Spec.Baseline, Published: s.published(name)})
			}
		}
	}
	return cells
}

func (s Scenario) published(cell string) []results.Published {
	var all []results.Published
	for _, f := range s.Spec.Published.Figures {
		if f.Cell == cell {
			all = append(all, results.Published{Metric: f.Metric, Percent: f.Percent, Qualifier: f.Qualifier,
				Source: s.Spec.Published.Source})
		}
	}
	return all
}

// cells returns the cells of the given names in the order of the names: those of the scenario for
// none, all combinations for "all". The baseline must be among them, since all others are compared
// with it.
func (s Scenario) cells(names []string) ([]results.Cell, error) {
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
		switch {
		case i < 0:
			return nil, fmt.Errorf("%q is none of the combinations of the factors (noise-placement-path)", name)
		case slices.ContainsFunc(cells, func(c results.Cell) bool { return c.Name == name }) &&
			name != s.Spec.Baseline:
			return nil, fmt.Errorf("%q is listed twice", name)
		}
		cells = append(cells, all[i])
	}
	if !slices.ContainsFunc(cells, func(c results.Cell) bool { return c.Baseline }) {
		return nil, fmt.Errorf("the baseline %q is missing", s.Spec.Baseline)
	}
	return cells, nil
}

// CheckCells says whether the names are cells of the scenario, with the baseline among them.
func (s Scenario) CheckCells(names []string) error {
	_, err := s.cells(names)
	return err
}
