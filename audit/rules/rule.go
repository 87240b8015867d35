package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/settings"
)

// rule is a row of a table. In fixes, {lane} and {housekeeping} stand for these CPUs as a cpulist,
// {lane-mask} and {housekeeping-mask} for the same CPUs as a cpumask.
type rule struct {
	id, title  string
	classes    audit.Severities // zero: usual
	needsLanes bool             // does not apply to a machine without lanes
	impact     string           // what it typically costs, or what is at stake
	fix, boot  string           // at run time, and at boot
	source     string           // the kernel document with the reason
	check      func(s *subject) []hit
}

// usual returns the severities of a rule whose row has none.
func usual() audit.Severities { return severities(audit.Warn, audit.Warn, audit.Info) }

// severities returns those for the classes of workload, in the order of audit.Severities.
func severities(pollMode, realTime, throughput audit.Severity) audit.Severities {
	return audit.Severities{PollMode: pollMode, RealTime: realTime, Throughput: throughput}
}

// rules returns the whole table, a file for each family.
func rules() []rule {
	return slices.Concat(cpuRules(), bootRules(), parameterRules(), interruptRules(), kernelRules(),
		realTimeRules(), taskRules(), memoryRules(), pageRules(), idleRules(), frequencyRules(), clockRules(),
		packetRules(), deviceRules(), virtualRules())
}

// hit is what a rule finds. Its severities and its run-time fix replace those of the rule, if it has any.
type hit struct {
	classes   *audit.Severities
	cpus      cpuset.Set
	requested string // on the command line or in a file
	inForce   string
	evidence  []string
	fix       string
}

// onCPUs returns one hit on these CPUs, or none if there are no CPUs.
func onCPUs(cpus cpuset.Set, requested, format string, args ...any) []hit {
	if cpus.IsEmpty() {
		return nil
	}
	return []hit{{cpus: cpus, requested: requested, inForce: fmt.Sprintf(format, args...)}}
}

// add appends evidence, and the CPUs that it affects.
func (h *hit) add(cpus cpuset.Set, format string, args ...any) {
	h.cpus = h.cpus.Union(cpus)
	h.evidence = append(h.evidence, fmt.Sprintf(format, args...))
}

// counted returns one hit, or none if there is no evidence. The first verb of the format is for the number of
// entries.
func (h hit) counted(format string, args ...any) []hit {
	h.inForce = fmt.Sprintf(format, slices.Concat([]any{len(h.evidence)}, args)...)
	return h.shown()
}

// shown returns one hit, or none if there is no evidence.
func (h hit) shown() []hit {
	if len(h.evidence) == 0 {
		return nil
	}
	return []hit{h}
}

func (s *subject) finding(r rule, h hit, readiness bool) audit.Finding {
	f := audit.Finding{Rule: r.id, Title: r.title, Classes: cmp.Or(r.classes, usual()), CPUs: h.cpus,
		Requested: h.requested, InForce: h.inForce, Evidence: h.evidence, Impact: r.impact, Source: r.source,
		Fix: s.fill(cmp.Or(h.fix, r.fix)), FixAtBoot: s.fill(r.boot)}
	if h.classes != nil {
		f.Classes = *h.classes
	}
	if readiness {
		f.Classes = f.Classes.Capped(audit.Warn)
	}
	f.Severity = f.Classes.Worst()
	return f
}

func (s *subject) fill(fix string) string {
	housekeeping := s.housekeeping()
	if !s.knowsManaged() { // otherwise the kernel would ignore all of isolcpus=
		const managed = "isolcpus=managed_irq,{lane}"
		fix = strings.ReplaceAll(fix, managed, "from Linux 5.6 on "+managed)
		flags := strings.Join(append(s.Kernel.IsolcpusFlags(), ""), ",")
		fix = strings.ReplaceAll(fix, "isolcpus=domain,managed_irq,", "isolcpus="+flags)
	}
	return strings.NewReplacer("{lane}", s.lane.String(), "{lane-mask}", s.lane.Mask(),
		"{housekeeping}", orNone(housekeeping, "CPUS (all belong to lanes)"),
		"{housekeeping-mask}", housekeeping.Mask()).Replace(fix)
}

// subject is what the rules check. Missing has what a rule needs and the source lacks: a rule without a hit
// is then unknown, not passed.
type subject struct {
	host.Host
	settings.Settings
	named cpuset.Set // the lanes' CPUs as named by the caller
	lane  cpuset.Set // those of them that are online
}

// noHit returns no hit. It records that file is missing, unless it is known.
func (s *subject) noHit(known bool, file string) []hit {
	if !known {
		s.Lacks(file)
	}
	return nil
}

// noCmdline is noHit for the command line: a parameter that is not on it is no fault.
func (s *subject) noCmdline() []hit { return s.noHit(s.Kernel.Cmdline != "", "/proc/cmdline") }

// lacksAll records a directory that every such machine has, if the source has nothing below it. Then an
// absent optional file says nothing.
func (s *subject) lacksAll(dir string) {
	for file := range s.Files {
		if strings.HasPrefix(file, dir) {
			return
		}
	}
	s.Lacks(dir + "*")
}

// own returns the CPUs that the machine itself isolates, and where they are declared.
func (s *subject) own() (cpus cpuset.Set, source string, readiness bool) {
	online := s.Online()
	isolcpus, _ := s.Kernel.Parameters().Isolcpus()
	isolated, _ := isolcpus.CPUs(s.Possible()) // none if it is wrong
	partitions, _ := cpuset.Parse(s.Files["/sys/fs/cgroup/cpuset.cpus.isolated"])
	for _, set := range []struct {
		cpus cpuset.Set
		name string
	}{
		{orEmpty(s.Kernel.Isolated).Union(partitions), "isolated by the kernel"},
		{isolated, "isolcpus= on the command line"},
		{orEmpty(s.Kernel.NohzFull), "nohz_full in force"},
	} {
		if set.cpus.Intersects(online) {
			return set.cpus.Intersection(online), set.name, false
		}
	}
	return s.Usable().Difference(s.Siblings(s.bootCPU())), "no lanes known: all CPUs but the boot core", true
}

// orNone returns a cpulist, or the word for none.
func orNone(set cpuset.Set, none string) string { return cmp.Or(set.String(), none) }

func orEmpty(set *cpuset.Set) cpuset.Set {
	if set == nil {
		return cpuset.Set{}
	}
	return *set
}

// isTrue is false for unknown.
func isTrue(b *bool) bool { return b != nil && *b }

// bootCPU returns the CPU that starts the others, keeps the time and must be in housekeeping.
func (s *subject) bootCPU() int { return s.CPUs[0].ID }

// housekeeping returns the online CPUs that belong to no lane.
func (s *subject) housekeeping() cpuset.Set { return s.Online().Difference(s.lane) }

// requested returns a boot parameter as it was given, or "".
func (s *subject) requested(name string) string {
	value, ok := s.Kernel.Parameters().Get(name)
	if !ok {
		return ""
	}
	return name + "=" + value
}

// requestedCPUs returns the CPU list of a parameter other than isolcpus, and false if it is missing or wrong.
func (s *subject) requestedCPUs(name string) (cpuset.Set, bool) {
	list, ok := s.Kernel.Parameters().Get(name)
	set, err := cpuset.ParseWithin(list, s.Possible())
	return set, ok && err == nil && !set.IsEmpty()
}

// unless returns the check of a file with one number. It hits if ok is false.
func unless(file string, ok func(n int64) bool) func(*subject) []hit {
	return func(s *subject) []hit {
		n, known := s.Number(file)
		if !known || ok(n) {
			return nil
		}
		return []hit{{inForce: fmt.Sprintf("%s is %d", file, n)}}
	}
}

func isZero(n int64) bool                  { return n == 0 }
func atLeast(least int64) func(int64) bool { return func(n int64) bool { return n >= least } }

// overlaps returns one hit with all files whose CPUs intersect the lane's.
func (s *subject) overlaps(paths []string, read func(string) (cpuset.Set, bool)) []hit {
	var h hit
	for _, p := range paths {
		cpus, ok := read(p)
		if on := cpus.Intersection(s.lane); ok && !on.IsEmpty() {
			h.add(on, "%s: CPUs %s", p, cpus)
		}
	}
	if len(h.evidence) == 1 {
		return onCPUs(h.cpus, "", "%s", h.evidence[0])
	}
	return h.counted("%d files")
}
