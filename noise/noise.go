// Package noise is the noisy neighbours: stress-ng, and the work that it reports.
//
// It builds the command line and reads the report. The caller starts the program, and decides on which CPUs
// it may run.
package noise

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	"sigs.k8s.io/yaml"
)

// Program is the program that makes the noise; its package in Debian has the same name.
const Program = "stress-ng"

// Stressor is one kind of work, by stress-ng's name for it (stress-ng(1)).
type Stressor struct {
	Name    string            `json:"name"`              // cpu, malloc, vm
	Options map[string]string `json:"options,omitempty"` // method: sqrt stands for --cpu-method sqrt
}

// Validate checks a stressor.
func (s Stressor) Validate() error {
	word := regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	if !word.MatchString(s.Name) {
		return fmt.Errorf("name: %q is not the name of a stressor", s.Name)
	}
	for option := range s.Options {
		if !word.MatchString(option) {
			return fmt.Errorf("options: %q is not the name of an option", option)
		}
	}
	return nil
}

// Argv returns the command line of neighbours that keep cpus CPUs busy, with one instance of each stressor
// per CPU, until they are told to end. Their report goes to the file report.
func Argv(stressors []Stressor, cpus int, report string) []string {
	argv := []string{Program, "--quiet", "--timeout", "0", "--metrics", "--yaml", report}
	for _, s := range stressors {
		argv = append(argv, "--"+s.Name, strconv.Itoa(cpus))
		for option, value := range s.Options {
			argv = append(argv, "--"+s.Name+"-"+option, value)
		}
	}
	return argv
}

// Delivered reads stress-ng's report: bogo operations per second of real time, by stressor.
func Delivered(report []byte) (map[string]float64, error) {
	var r struct {
		Metrics []struct {
			Stressor string  `json:"stressor"`
			Rate     float64 `json:"bogo-ops-per-second-real-time"`
		} `json:"metrics"`
	}
	// Only the metrics are read: stress-ng 0.19 writes a line into its build-info that is not valid YAML.
	if at := bytes.Index(report, []byte("\nmetrics:")); at >= 0 {
		report = report[at+1:]
	}
	if err := yaml.Unmarshal(report, &r); err != nil {
		return nil, fmt.Errorf("%s report: %w", Program, err)
	}
	if len(r.Metrics) == 0 {
		return nil, fmt.Errorf("%s report: expected metrics, found none", Program)
	}
	delivered := map[string]float64{}
	for _, m := range r.Metrics {
		delivered[m.Stressor] += m.Rate
	}
	return delivered, nil
}
