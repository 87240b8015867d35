// Package scenario reads what is to be measured: the cells of a matrix of factors, the probes that run in
// each, and figures that are aimed at or were published. docs/scenarios.md is the reference of the format.
package scenario

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/sched"
)

// APIVersion is the version of scenarios. v1alpha1 had windows by metric, v1alpha2 three factors.
const APIVersion = "isolane.dev/v1alpha3"

// Scenario is a matrix of conditions and the probes to run in each cell, as its YAML file says.
type Scenario struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`

	fixed factor.Conditions // of all cells; their levels are applied on top
}

// Metadata names a scenario.
type Metadata struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

// Spec is the body of a scenario.
type Spec struct {
	Factors  []Factor    `json:"factors"` // the cells are their combinations, named by their levels
	Exclude  []Exclusion `json:"exclude,omitempty"`
	Baseline string      `json:"baseline"`
	Cells    []string    `json:"cells,omitempty"` // all combinations when absent
	Lane     lane.Spec   `json:"lane"`            // what the application asks for
	// CongestionControl is TCP's algorithm on both sides; "" is the host's.
	CongestionControl string `json:"congestionControl,omitempty"`
	Client            Client `json:"client,omitzero"`
	// StealBudget is how much of a measured CPU's time, in percent, the hypervisor may take before a run is
	// void. Absent: UsualStealBudget.
	StealBudget *float64 `json:"stealBudget,omitempty"`
	Probes      []Probe  `json:"probes"`
	Means       []Mean   `json:"means,omitempty"`
	// metrics of the verdict; absent: the first of each quantity
	Primary   []string          `json:"primary,omitempty"`
	Modes     map[string]Mode   `json:"modes"` // quick, standard, proof
	Aims      *results.Aims     `json:"aims,omitempty"`
	Published []PublishedSource `json:"published,omitempty"`
	Searches  []Search          `json:"searches,omitempty"`
}

// UsualStealBudget is the budget of a scenario without one, in percent.
const UsualStealBudget = 5.0

// StealPercent returns the budget in effect.
func (s Scenario) StealPercent() float64 {
	if s.Spec.StealBudget == nil {
		return UsualStealBudget
	}
	return *s.Spec.StealBudget
}

// Factor is something that differs between the cells. In YAML its driver's settings are beside these.
type Factor struct {
	Name    string // its name in this scenario
	Kind    string // of its driver; absent: its name
	Where   Where  // levels of earlier factors with which alone it matters; with others it has no level
	Without bool   // where it matters there are cells without a level of it too
	factor.Factor

	settings []byte // as JSON, until they are read
}

// Where names levels, by factor.
type Where map[string][]factor.Name

// Exclusion leaves out the cells with these levels.
type Exclusion struct {
	Where   Where  `json:"where"`
	Because string `json:"because"`
}

// Client says how the outside client is scheduled, the same in every cell.
type Client struct {
	Policy   sched.Policy `json:"policy"`
	Priority int          `json:"priority"`
}

// Probe is one measurement of each run. In YAML its driver's settings stand beside these fields.
type Probe struct {
	Name, Kind string
	// Optional probes are left out if they cannot run: for lack of a program or of something in the kernel, or
	// in a guest.
	Optional bool
	probe.Probe

	settings []byte // as JSON
}

// Mean is a metric of its own: the geometric mean of others, over the runs in which all of them count.
type Mean struct {
	Name string   `json:"name"`
	Of   []string `json:"of"`
}

// Mode says how much is measured.
type Mode struct {
	Blocks int `json:"blocks"` // that count; a further one is run first, and after each boot, and dropped
	// Boots is over how many boots of each level the blocks are spread; 0 is one.
	Boots   int               `json:"boots,omitempty"`
	Windows map[string]Window `json:"windows"` // by kind of probe
	// MoreCells are measured in addition to those of the scenario, if none are named.
	MoreCells []string `json:"moreCells,omitempty"`
	// Searches are made in this mode; nil: none.
	Searches *Trials `json:"searches,omitempty"`
}

// Window says how long a probe measures, and what it drops before.
type Window struct {
	Warmup  quantity.Duration `json:"warmup"`
	Measure quantity.Duration `json:"measure"`
}

// PublishedSource has somebody else's figures for the same conditions.
type PublishedSource struct {
	Source  string            `json:"source"`
	Figures []PublishedFigure `json:"figures"`
	Doubts  []string          `json:"doubts,omitempty"` // sentences: what is wrong with these figures
	// Differs has sentences: how the conditions differ from this scenario's, on any machine.
	Differs    []string     `json:"differs,omitempty"`
	Unanswered []Unanswered `json:"unanswered,omitempty"`
}

// Unanswered are rows of a published table without a cell, or the rows of a cell that a session may lack.
type Unanswered struct {
	Row     string `json:"row,omitempty"`  // as in PublishedFigure
	Cell    string `json:"cell,omitempty"` // instead of Row
	Because string `json:"because"`
}

// PublishedFigure is one of the figures, in percent of the baseline cell's or in the unit of its metric.
type PublishedFigure struct {
	Cell      string  `json:"cell"`
	Metric    string  `json:"metric"`
	Percent   float64 `json:"percent,omitempty"`
	Value     float64 `json:"value,omitempty"`
	Statistic string  `json:"statistic,omitempty"` // min, mean, max or p99 of samples; "": what is compared
	Qualifier string  `json:"qualifier,omitempty"`
	// Against is the cell that Percent refers to, if not the baseline. Only `report --answers` shows it.
	Against string `json:"against,omitempty"`
	// Row names the row of a published table that it is from: SCENARIO:LINE, or SCENARIO:LINE:METRIC, where LINE
	// is the source's, or * for any. Several rows are the ends of a range.
	Row string `json:"row,omitempty"`
}

// beside removes some fields from a map in JSON, and returns the rest.
func beside(data []byte, fields map[string]any) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := probe.Decode(data, &all); err != nil {
		return nil, err
	}
	for key, into := range fields {
		if text, ok := all[key]; ok {
			if err := probe.Decode(text, into); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
		}
		delete(all, key)
	}
	return json.Marshal(all)
}

// with adds fields to settings; nil removes one.
func with(settings any, fields map[string]any) ([]byte, error) {
	data, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	if err = json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for key, v := range fields {
		all[key] = v
		if v == nil {
			delete(all, key)
		}
	}
	return json.Marshal(all)
}

// UnmarshalJSON leaves the settings to the driver, which Parse knows.
func (p *Probe) UnmarshalJSON(data []byte) (err error) {
	p.settings, err = beside(data, map[string]any{"name": (*factor.Name)(&p.Name), "kind": &p.Kind,
		"optional": &p.Optional})
	return err
}

// MarshalJSON writes the settings with all defaults filled in.
func (p Probe) MarshalJSON() ([]byte, error) {
	fields := map[string]any{"name": p.Name, "kind": p.Kind}
	if p.Optional {
		fields["optional"] = true
	}
	return with(p.Probe, fields)
}

// UnmarshalJSON leaves the settings to the driver, which Parse knows.
func (f *Factor) UnmarshalJSON(data []byte) (err error) {
	f.settings, err = beside(data, map[string]any{"name": (*factor.Name)(&f.Name), "kind": &f.Kind,
		"where": &f.Where, "without": &f.Without})
	return err
}

// MarshalJSON writes the settings.
func (f Factor) MarshalJSON() ([]byte, error) {
	fields := map[string]any{"name": f.Name, "kind": f.Kind}
	if len(f.Where) > 0 {
		fields["where"] = f.Where
	}
	if f.Without {
		fields["without"] = true
	}
	return with(f.Factor, fields)
}

// Drivers are the kinds that a scenario may name.
type Drivers struct {
	Factors []factor.Driver
	Probes  []probe.Driver
}

// Parse reads a scenario. name is the file's, for errors. Unknown fields are errors.
func Parse(name string, r io.Reader, kinds Drivers) (Scenario, error) {
	data, err := read(r)
	if err != nil {
		return Scenario{}, fmt.Errorf("%s: %w", name, err)
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	var s Scenario
	if yaml.Unmarshal(data, &head) == nil && (head.APIVersion != APIVersion || head.Kind != "Scenario") {
		err = fmt.Errorf("apiVersion, kind: expected %s Scenario, found %q %q", APIVersion, head.APIVersion,
			head.Kind)
	} else {
		err = probe.Decode(data, &s)
	}
	for _, step := range []func(Drivers) error{s.readFactors, s.readProbes, s.validate, s.readSearches,
		s.validateOptional} {
		if err == nil {
			err = step(kinds)
		}
	}
	if err != nil {
		return Scenario{}, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}
