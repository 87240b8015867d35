// Package audit reports what keeps a machine from being deterministic: a table of rules, each of which
// compares what was requested (command line, configuration) with what is in force (sysfs, procfs). It
// reads no file itself and changes nothing.
//
// Whether a setting is wrong depends on the workload, so each finding has a severity for each class of
// them. A rule whose files the source does not have is listed as unknown, never as passed.
package audit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/settings"
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

func (s Severities) worst() Severity { return max(s.PollMode, s.RealTime, s.Throughput) }

// capped is for a machine without lanes: nothing is broken yet.
func (s Severities) capped(most Severity) Severities {
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

// Run audits a machine. The lanes have the CPUs lane, as source says. Where lane is empty, the CPUs that the
// machine itself isolates are audited; where it isolates none, the audit is one of readiness: of the CPUs
// that could be used for lanes, and with no severity above warn.
func Run(h host.Host, s settings.Settings, lane cpuset.Set, source string) Report {
	r := Report{APIVersion: APIVersion, Kind: Kind, Hostname: h.Hostname, CPUs: lane, LaneSource: source,
		Findings: []Finding{}, Passed: []string{}, NeedLanes: []string{}, Unknown: []Unknown{},
		Warnings: h.Warnings}
	sub := &subject{Host: h, Settings: s}
	if lane.IsEmpty() {
		r.CPUs, r.LaneSource, r.Readiness = sub.own()
	}
	sub.named, sub.lane = r.CPUs, r.CPUs.Intersection(h.Online())
	for _, rule := range rules() {
		if r.Readiness && rule.needsLanes {
			r.NeedLanes = append(r.NeedLanes, rule.id)
			continue
		}
		sub.Missing = ""
		hits := rule.check(sub)
		switch {
		case len(hits) > 0:
		case sub.Missing != "":
			r.Unknown = append(r.Unknown, Unknown{rule.id, sub.Missing})
		default:
			r.Passed = append(r.Passed, rule.id)
		}
		for _, h := range hits {
			r.Findings = append(r.Findings, sub.finding(rule, h, r.Readiness))
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	return r
}

// LaneCPUs reads a cpulist of lanes, for Run. A CPU that the machine does not have is a mistake; one that is
// offline is a finding.
func LaneCPUs(h host.Host, list string) (cpuset.Set, error) {
	possible := h.Possible()
	lane, err := cpuset.ParseWithin(list, possible)
	if gone := lane.Difference(possible); err == nil && !gone.IsEmpty() {
		return lane, fmt.Errorf("there are no CPUs %s, the machine has %s", gone, possible)
	}
	return lane, err
}
