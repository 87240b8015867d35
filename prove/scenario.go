package prove

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/noise"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/sched"
)

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

// ProbeSpec is one measurement of each run.
type ProbeSpec struct {
	Name      string            `json:"name"`
	Kind      string            `json:"kind"` // the probe: echo or iperf3
	Protocol  string            `json:"protocol"`
	Payload   quantity.Bytes    `json:"payload,omitempty"`
	Mode      string            `json:"mode,omitempty"`
	Gap       quantity.Duration `json:"gap,omitempty"`
	Rate      float64           `json:"rate,omitempty"` // messages per second
	Wait      string            `json:"wait,omitempty"`
	Direction string            `json:"direction,omitempty"`
	Write     quantity.Bytes    `json:"write,omitempty"`
}

// Mode is how much is measured.
type Mode struct {
	Blocks           int               `json:"blocks"` // counted; one more is run first and dropped
	Warmup           quantity.Duration `json:"warmup"`
	RTT              quantity.Duration `json:"rtt"`
	ThroughputWarmup quantity.Duration `json:"throughputWarmup"`
	Throughput       quantity.Duration `json:"throughput"`
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
func Parse(name string, r io.Reader) (Scenario, error) {
	data, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return Scenario{}, fmt.Errorf("%s: %w", name, err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return Scenario{}, fmt.Errorf("%s: empty: expected a document of kind Scenario", name)
	}
	var s Scenario
	if err = yaml.UnmarshalStrict(data, &s); err != nil {
		text := strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: ")
		return Scenario{}, fmt.Errorf("%s: %s", name, strings.TrimPrefix(text, "json: "))
	}
	if err = s.validate(); err != nil {
		return Scenario{}, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

func (s Scenario) validate() error {
	switch {
	case s.APIVersion != results.APIVersion || s.Kind != "Scenario":
		return fmt.Errorf("apiVersion, kind: expected %s Scenario, found %q %q", results.APIVersion, s.APIVersion,
			s.Kind)
	case s.Metadata.Name == "":
		return errors.New("metadata.name: missing")
	case len(s.Spec.Probes) == 0:
		return errors.New("spec.probes: at least one is needed")
	}
	for _, check := range []func() error{s.validateFactors, s.validateCells, s.validateProbes, s.validateModes} {
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
				return fmt.Errorf("spec.factors.%s: %q stands there twice", factor.name, l)
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
	for i, f := range s.Spec.Published.Figures {
		if _, err := s.cells([]string{f.Cell, s.Spec.Baseline}); err != nil {
			return fmt.Errorf("spec.published.figures[%d].cell: %w", i, err)
		}
		if f.Metric != "rtt" && f.Metric != "throughput" {
			return fmt.Errorf("spec.published.figures[%d].metric: expected rtt or throughput, found %q", i, f.Metric)
		}
	}
	return nil
}

func (s Scenario) validateProbes() error {
	seen := map[string]bool{}
	for i, p := range s.Spec.Probes {
		if p.Name == "" || seen[p.Name] {
			return fmt.Errorf("spec.probes[%d].name: %q is missing or stands there twice", i, p.Name)
		}
		seen[p.Name] = true
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
		for i, p := range s.Spec.Probes {
			if err := p.settings(m).Validate(); err != nil {
				return fmt.Errorf("spec.probes[%d] (%s) in mode %s: %w", i, p.Name, name, err)
			}
		}
	}
	if len(s.Spec.Modes) == 0 {
		return errors.New("spec.modes: at least one is needed")
	}
	return nil
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
			return nil, fmt.Errorf("%q stands there twice", name)
		}
		cells = append(cells, all[i])
	}
	if !slices.ContainsFunc(cells, func(c results.Cell) bool { return c.Baseline }) {
		return nil, fmt.Errorf("the baseline %q is missing", s.Spec.Baseline)
	}
	return cells, nil
}

// whole is a size as an int; one that does not fit is too large for every probe, which says so.
func whole(b quantity.Bytes) int { return int(min(b, math.MaxInt32)) }

// settings are those of the probe in a mode, without the address.
func (p ProbeSpec) settings(m Mode) probe.Settings {
	s := probe.Settings{
		Name: p.Name, Protocol: p.Protocol, PayloadBytes: whole(p.Payload), Mode: p.Mode, RatePerSecond: p.Rate,
		Gap: p.Gap.Duration(), Wait: p.Wait, Direction: p.Direction, WriteBytes: whole(p.Write),
		Warmup: m.Warmup.Duration(), Window: m.RTT.Duration(),
	}
	if p.Kind == "iperf3" {
		s.Warmup, s.Window = m.ThroughputWarmup.Duration(), m.Throughput.Duration()
	}
	return s
}

// CheckCells says whether the names are cells of the scenario, with the baseline among them.
func (s Scenario) CheckCells(names []string) error {
	_, err := s.cells(names)
	return err
}

// Programs are the programs that the scenario needs on the host.
func (s Scenario) Programs() []string {
	var programs []string
	if slices.Contains(s.Spec.Factors.Noise, Noisy) {
		programs = append(programs, noise.Program)
	}
	for _, p := range s.Spec.Probes {
		if p.Kind == "iperf3" && !slices.Contains(programs, p.Kind) {
			programs = append(programs, p.Kind)
		}
	}
	return programs
}
