// Package audit is what an audit of a machine says: its findings, as JSON and as text. audit/rules makes
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
	None  Severity = iota // of no concern to this class
	Info                  // worth knowing
	Warn                  // costs latency now and then
	Fault                 // the lane is not isolated as it should be
)

func (s Severity) String() string { return [...]string{"none", "info", "warn", "fault"}[s] }

// MarshalText makes a severity its name in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name of a severity from which on somebody wants to act: warn or fault.
func (s *Severity) UnmarshalText(text []byte) error {
	level, known := map[string]Severity{"warn": Warn, "fault": Fault}[string(text)]
	if *s = level; !known {
		return errors.New("expected warn or fault")
	}
	return nil
}

// Severities are those for the classes of workload: a thread that polls and never sleeps (DPDK, VPP),
// a real-time thread that sleeps and must wake up in time, and throughput.
type Severities struct {
	PollMode   Severity `json:"pollMode"`
	RealTime   Severity `json:"realTime"`
	Throughput Severity `json:"throughput"`
}

// Worst is that of the class to which it matters most.
func (s Severities) Worst() Severity { return max(s.PollMode, s.RealTime, s.Throughput) }

// Capped is for a machine without lanes: nothing is broken yet.
func (s Severities) Capped(most Severity) Severities {
	return Severities{min(s.PollMode, most), min(s.RealTime, most), min(s.Throughput, most)}
}

// Finding is one thing that is not as it should be.
type Finding struct {
	Rule     string     `json:"rule"`
	Title    string     `json:"title"`
	Severity Severity   `json:"severity"` // the worst of the classes
	Classes  Severities `json:"classes"`
	CPUs     cpuset.Set `json:"cpus"` // affected by it; empty: the whole machine
	// Requested is what the command line or a file asks for, where that is not what is in force.
	Requested string   `json:"requested,omitempty"`
	InForce   string   `json:"inForce"`
	Evidence  []string `json:"evidence,omitempty"` // the files and entries, all of them
	Impact    string   `json:"impact"`             // what it typically costs, or what is at stake
	Fix       string   `json:"fix,omitempty"`      // at run time
	FixAtBoot string   `json:"fixAtBoot,omitempty"`
	Source    string   `json:"source"` // the kernel document that says so
}

// Report is the result of an audit.
type Report struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Hostname   string     `json:"hostname"`
	CPUs       cpuset.Set `json:"cpus"`       // of the lanes
	LaneSource string     `json:"laneSource"` // what says which CPUs belong to lanes
	Readiness  bool       `json:"readiness"`  // there are no lanes: the CPUs are those that lanes could have
	Findings   []Finding  `json:"findings"`   // the worst first
	Passed     []string   `json:"passed"`     // rules without a finding
	NeedLanes  []string   `json:"needLanes"`  // rules that do not apply to a machine without lanes
	Unknown    []Unknown  `json:"unknown"`    // rules that the source cannot answer
	Warnings   []string   `json:"warnings"`   // from reading the machine
}

// Unknown is a rule that could not be checked.
type Unknown struct {
	Rule    string `json:"rule"`
	Missing string `json:"missing"` // the file that it needs
}

// Worst is the severity of the worst finding, which is the first.
func (r Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return None
	}
	return r.Findings[0].Severity
}
