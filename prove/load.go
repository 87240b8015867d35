package prove

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/scenarios"
)

// Scenarios are those that come with the program: what `isolane scenarios -o json` prints.
type Scenarios struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"` // Scenarios
	Scenarios  []scenario.Metadata `json:"scenarios"`
}

// List lists the scenarios that come with the program.
func List(kinds scenario.Drivers) (Scenarios, error) {
	list := Scenarios{APIVersion: plan.APIVersion, Kind: "Scenarios", Scenarios: []scenario.Metadata{}}
	all, err := Own(kinds)
	for _, s := range all {
		list.Scenarios = append(list.Scenarios, s.Metadata)
	}
	return list, err
}

// Own returns the scenarios that come with the program.
func Own(kinds scenario.Drivers) (all []scenario.Scenario, err error) {
	files, err := scenarios.Files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		s, err := Load(strings.TrimSuffix(f.Name(), ".yaml"), kinds)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Write prints a line for each scenario.
func (l Scenarios) Write(w io.Writer) {
	for _, s := range l.Scenarios {
		fmt.Fprintf(w, "%-10s %s\n", s.Name, s.Title)
	}
}

// Load reads one of the program's own scenarios, or a file.
func Load(name string, kinds scenario.Drivers) (scenario.Scenario, error) {
	if f, err := scenarios.Files.Open(name + ".yaml"); err == nil {
		defer f.Close()
		return scenario.Parse(name, f, kinds)
	}
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return scenario.Scenario{}, fmt.Errorf("%s is neither a scenario nor a file: isolane scenarios lists them",
			name)
	}
	if err != nil {
		return scenario.Scenario{}, err
	}
	defer f.Close()
	return scenario.Parse(name, f, kinds)
}
