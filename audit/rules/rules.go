// Package rules audits a machine: a table of rules, each of which compares what was requested (command line,
// configuration) with what is in force (sysfs, procfs). It reads no file itself and changes nothing.
//
// Whether a setting is wrong depends on the workload, so each finding has a severity for each class of
// them. A rule whose files the source does not have is listed as unknown, never as passed.
//
//	r := rules.Run(h, settings.Read(host.Live()), lane, "named by the caller")
//	fmt.Println(r.Verdict())
package rules

import (
	"cmp"
	"fmt"
	"slices"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/settings"
)

// Run audits a machine. lane has the CPUs of the lanes, according to source. If lane is empty, Run audits the
// CPUs that the machine itself isolates. If it isolates none, the audit is one of readiness: of the CPUs that
// lanes could use, and with no severity above warn.
func Run(h host.Host, s settings.Settings, lane cpuset.Set, source string) audit.Report {
	r := audit.Report{APIVersion: audit.APIVersion, Kind: audit.Kind, Hostname: h.Hostname, CPUs: lane,
		LaneSource: source, Findings: []audit.Finding{}, Passed: []string{}, NeedLanes: []string{},
		Unknown: []audit.Unknown{}, Warnings: h.Warnings}
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
			r.Unknown = append(r.Unknown, audit.Unknown{Rule: rule.id, Missing: sub.Missing})
		default:
			r.Passed = append(r.Passed, rule.id)
		}
		for _, h := range hits {
			r.Findings = append(r.Findings, sub.finding(rule, h, r.Readiness))
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b audit.Finding) int {
		return cmp.Compare(b.Severity, a.Severity)
	})
	return r
}

// LaneCPUs parses a cpulist of lanes for Run. A CPU that the machine does not have is an error; one that is
// offline is a finding.
func LaneCPUs(h host.Host, list string) (cpuset.Set, error) {
	possible := h.Possible()
	lane, err := cpuset.ParseWithin(list, possible)
	if gone := lane.Difference(possible); err == nil && !gone.IsEmpty() {
		return lane, fmt.Errorf("there are no CPUs %s, the machine has %s", gone, possible)
	}
	return lane, err
}
