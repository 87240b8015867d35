// Package audit has the findings of an audit of a machine, as JSON and as text. Package audit/rules makes
// them.
package audit

import (
	"errors"

	"isolane.dev/isolane/cpuset"
)

// APIVersion and Kind head the JSON document.
const (
	APIVersion = "isolane.dev/v1alpha2"
	Kind       = "Audit"
)

// Severity says how bad a finding is.
type Severity int

// The severities.
const (
	None  Severity = iota // does not matter to this class
	Info                  // worth knowing
	Warn                  // costs latency at times
	Fault                 // the lane is not isolated as it should be
)

func (s Severity) String() string { return [...]string{"none", "info", "warn", "fault"}[s] }

// MarshalText returns the name of a severity, for JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the severity from which on somebody wants to act: warn or fault.
func (s *Severity) UnmarshalText(text []byte) error {
	level, known := map[string]Severity{"warn": Warn, "fault": Fault}[string(text)]
	if *s = level; !known {
		return errors.New("expected warn or fault")
	}
	return nil
}

// Severities has a severity for each class of workload: a thread that polls and never sleeps (DPDK, VPP), a
// real-time thread that sleeps and must wake up in time, and throughput.
type Severities struct {
	PollMode   Severity `json:"pollMode"`
	RealTime   Severity `json:"realTime"`
	Throughput Severity `json:"throughput"`
}

// Worst returns the severity for the class to which it matters most.
func (s Severities) Worst() Severity { return max(s.PollMode, s.RealTime, s.Throughput) }

// Capped limits severities. It is for a machine without lanes, where nothing is broken yet.
func (s Severities) Capped(most Severity) Severities {
	return Severities{min(s.PollMode, most), min(s.RealTime, most), min(s.Throughput, most)}
}

// Finding is one thing that is not as it should be.
type Finding struct {
	Rule     string     `json:"rule"`
	Title    string     `json:"title"`
	Severity Severity   `json:"severity"` // the worst of the classes
	Classes  Severities `json:"classes"`
	CPUs     cpuset.Set `json:"cpus"` // affected CPUs; empty: the whole machine
	// Requested is what the command line or a file asks for, if that differs from what is in force.
	Requested string   `json:"requested,omitempty"`
	InForce   string   `json:"inForce"`
	Evidence  []string `json:"evidence,omitempty"` // the files and entries, all of them
	Impact    string   `json:"impact"`             // what it typically costs, or what is at stake
	Fix       string   `json:"fix,omitempty"`      // at run time
	FixAtBoot string   `json:"fixAtBoot,omitempty"`
	Source    string   `json:"source"` // the kernel document with the reason
}

// Report is the result of an audit.
type Report struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Hostname   string     `json:"hostname"`
	CPUs       cpuset.Set `json:"cpus"`       // of the lanes
	LaneSource string     `json:"laneSource"` // what says which CPUs belong to lanes
	Readiness  bool       `json:"readiness"`  // there are no lanes; CPUs are those that lanes could have
	Findings   []Finding  `json:"findings"`   // the worst first
	Passed     []string   `json:"passed"`     // rules without a finding
	NeedLanes  []string   `json:"needLanes"`  // rules that do not apply to a machine without lanes
	Unknown    []Unknown  `json:"unknown"`    // rules that the source has no files for
	Warnings   []string   `json:"warnings"`   // from reading the machine
}

// Unknown is a rule that could not be checked.
type Unknown struct {
	Rule    string `json:"rule"`
	Missing string `json:"missing"` // the file that it needs
}

// Worst returns the severity of the worst finding, which is the first.
func (r Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return None
	}
	return r.Findings[0].Severity
}
