// Package noise is the noisy neighbours: stress-ng and hackbench, and the work that they report.
//
// It builds the command line and reads the report. The caller starts the program, and decides on which CPUs
// it may run.
package noise

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Program is the program that makes the noise; its package in Debian has the same name.
const Program = "stress-ng"

// Stressor is one kind of work, by stress-ng's name for it (stress-ng(1)), or hackbench (hackbench(8)).
type Stressor struct {
	Name string `json:"name"` // cpu, malloc, vm
	// Options are the program's: method: sqrt stands for --cpu-method sqrt, and loops: 100 for hackbench
	// --loops=100.
	Options map[string]string `json:"options,omitempty"`
}

// Validate checks a stressor.
func (s Stressor) Validate() error {
	word := regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	if !word.MatchString(s.Name) {
		return fmt.Errorf("name: %q is not the name of a stressor", s.Name)
	}
	for option, value := range s.Options {
		if !word.MatchString(option) {
			return fmt.Errorf("options: %q is not the name of an option", option)
		}
		if s.Name == Hackbench && strings.ContainsAny(value, " \t\n*?[") {
			return fmt.Errorf("options: %s: %q: expected one word", option, value)
		}
	}
	return nil
}

// Programs returns the programs that do this work.
func Programs(stressors []Stressor) (all []string) {
	for _, s := range stressors {
		if s.Name == Hackbench && !slices.Contains(all, Hackbench) {
			all = append(all, Hackbench)
		} else if s.Name != Hackbench && !slices.Contains(all, Program) {
			all = append(all, Program)
		}
	}
	return all
}

// Package returns the Debian package of one of Programs.
func Package(program string) string {
	if program == Hackbench {
		return "rt-tests"
	}
	return program
}

// Argv returns the command line of neighbours that keep cpus CPUs busy, with one instance of each stressor
// per CPU, until SIGTERM. Their report goes to the file report. dir is for their files.
func Argv(stressors []Stressor, cpus int, report, dir string) []string {
	stress := []string{Program, "--quiet", "--timeout", "0", "--metrics", "--yaml", report, "--temp-path", dir}
	argv := stress
	for _, s := range stressors {
		if s.Name == Hackbench {
			continue
		}
		argv = append(argv, "--"+s.Name, strconv.Itoa(cpus))
		for option, value := range s.Options {
			argv = append(argv, "--"+s.Name+"-"+option, value)
		}
	}
	i := slices.IndexFunc(stressors, func(s Stressor) bool { return s.Name == Hackbench })
	if i < 0 {
		return argv
	}
	if len(argv) == len(stress) {
		argv = nil
	}
	return withHackbench(stressors[i], cpus, report, argv)
}

// Delivered reads the report: stress-ng's bogo operations and hackbench's runs per second of real time, by
// stressor.
func Delivered(report []byte) (map[string]float64, error) {
	report, rate, err := runs(report)
	if err != nil {
		return nil, err
	}
	delivered := map[string]float64{}
	if rate > 0 {
		delivered[Hackbench] = rate
	}
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
	if len(r.Metrics) == 0 && rate == 0 {
		return nil, fmt.Errorf("%s report: expected metrics, found none", Program)
	}
	for _, m := range r.Metrics {
		delivered[m.Stressor] += m.Rate
	}
	return delivered, nil
}
