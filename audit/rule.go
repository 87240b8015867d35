package audit

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

// rule is one row of a table. In its mends, {lane} and {housekeeping} stand for these CPUs as a
// cpulist, {lane-mask} and {housekeeping-mask} for the same as a cpumask.
type rule struct {
	id, title     string
	classes       Severities
	needsLanes    bool // says nothing of a machine that has none yet
	cost          string
	runTime, boot string // how to mend it
	source        string
	check         func(s *subject) []hit
}

// rules is the whole table, a file a family.
func rules() []rule {
	return slices.Concat(cpuRules(), bootRules(), interruptRules(), kernelRules(), taskRules(), memoryRules(),
		powerRules(), networkRules(), virtualRules())
}

// hit is what a rule finds. Its severities and mends are the rule's unless it has its own.
type hit struct {
	classes  *Severities
	cpus     cpuset.Set
	asked    string
	inForce  string
	evidence []string
	runTime  string
	boot     string
}

func (s *subject) finding(r rule, h hit, readiness bool) Finding {
	f := Finding{Rule: r.id, Title: r.title, Classes: r.classes, CPUs: h.cpus, Asked: h.asked, InForce: h.inForce,
		Evidence: h.evidence, Cost: r.cost, Source: r.source,
		RunTime: s.fill(cmp.Or(h.runTime, r.runTime)), Boot: s.fill(cmp.Or(h.boot, r.boot))}
	if h.classes != nil {
		f.Classes = *h.classes
	}
	if readiness {
		f.Classes = f.Classes.capped(Warn)
	}
	f.Severity = f.Classes.worst()
	return f
}

func (s *subject) fill(mend string) string {
	return strings.NewReplacer("{lane}", s.lane.String(), "{lane-mask}", s.lane.Mask(),
		"{housekeeping}", orNone(s.housekeeping(), "CPUS (all are lanes')"), "{housekeeping-mask}", s.housekeeping().Mask()).Replace(mend)
}

// subject is what the rules look at. What a rule asks for and the source does not have is noted in
// missing: a rule without a hit is then unknown and not passed.
type subject struct {
	host.Host
	files   map[string]string
	tasks   []host.Task
	fired   map[int]cpuset.Set
	asked   cpuset.Set // the lanes' CPUs as somebody named them
	lane    cpuset.Set // those of them that are online
	boot    bootline
	missing string
}

func (s *subject) lacks(file string) { s.missing = cmp.Or(s.missing, file) }

// text is the content of a file.
func (s *subject) text(file string) (string, bool) {
	text, ok := s.files[file]
	if !ok {
		s.lacks(file)
	}
	return text, ok
}

// number is the content of a file as a number.
func (s *subject) number(file string) (int64, bool) {
	text, ok := s.text(file)
	n, err := strconv.ParseInt(text, 10, 64)
	if ok && err != nil {
		s.lacks(file + " as a number")
	}
	return n, ok && err == nil
}

// chosen is the choice in brackets: "always [madvise] never".
func (s *subject) chosen(file string) (string, bool) {
	text, ok := s.text(file)
	_, rest, _ := strings.Cut(text, "[")
	choice, _, closed := strings.Cut(rest, "]")
	if ok && !closed {
		s.lacks(file + " with a choice in brackets")
	}
	return choice, ok && closed
}

// mask is the content of a file as a cpumask.
func (s *subject) mask(file string) (cpuset.Set, bool) {
	text, ok := s.text(file)
	set, err := cpuset.ParseMask(text)
	if ok && err != nil {
		s.lacks(file + " as a cpumask")
	}
	return set, ok && err == nil
}

// list is the content of a file as a cpulist.
func (s *subject) list(file string) (cpuset.Set, bool) {
	text, ok := s.text(file)
	set, err := cpuset.Parse(text)
	if ok && err != nil {
		s.lacks(file + " as a cpulist")
	}
	return set, ok && err == nil
}

// matching returns the paths that a pattern of path.Match fits, in natural order; there must be one.
func (s *subject) matching(pattern string) []string {
	paths := s.optional(pattern)
	if len(paths) == 0 {
		s.lacks(pattern)
	}
	return paths
}

// optional is matching for what a machine may well not have.
func (s *subject) optional(pattern string) []string {
	var paths []string
	for p := range s.files {
		if ok, _ := path.Match(pattern, p); ok { // the patterns are well formed
			paths = append(paths, p)
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		if n := cmp.Compare(len(a), len(b)); n != 0 { // cpu9 before cpu10
			return n
		}
		return cmp.Compare(a, b)
	})
	return paths
}

// own returns the CPUs that the machine isolates itself, and what says so.
func (s *subject) own() (cpus cpuset.Set, source string, readiness bool) {
	online := s.Online()
	asked, _ := s.boot.Isolcpus()
	isolated, _ := asked.CPUs(s.possible()) // none where it is wrong
	partitions, _ := cpuset.Parse(s.files["/sys/fs/cgroup/cpuset.cpus.isolated"])
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
	return s.Usable().Difference(s.Siblings(s.bootCPU())), "no lanes yet: what lies outside the boot core", true
}

// orNone is a list of CPUs, or the word for none.
func orNone(set cpuset.Set, none string) string { return cmp.Or(set.String(), none) }

func orEmpty(set *cpuset.Set) cpuset.Set {
	if set == nil {
		return cpuset.Set{}
	}
	return *set
}

// bootCPU is the one that starts the others, keeps the time and cannot be left out of housekeeping.
func (s *subject) bootCPU() int { return s.CPUs[0].ID }

// possible are the CPUs that the kernel counts, which "N" and "all" mean.
func (s *subject) possible() cpuset.Set {
	var ids []int
	for _, c := range s.CPUs {
		ids = append(ids, c.ID)
	}
	return cpuset.Of(ids...)
}

// housekeeping are the online CPUs that are no lane's.
func (s *subject) housekeeping() cpuset.Set { return s.Online().Difference(s.lane) }

// unless is the check of a file with one number; it hits where ok does not hold.
func unless(file string, ok func(n int64) bool) func(*subject) []hit {
	return func(s *subject) []hit {
		n, known := s.number(file)
		if !known || ok(n) {
			return nil
		}
		return []hit{{inForce: fmt.Sprintf("%s is %d", file, n)}}
	}
}

func is(want int64) func(int64) bool       { return func(n int64) bool { return n == want } }
func atLeast(least int64) func(int64) bool { return func(n int64) bool { return n >= least } }

// overlap is the check of a cpumask that must not hold lane CPUs.
func overlap(file string) func(*subject) []hit {
	return func(s *subject) []hit { return s.overlaps([]string{file}, s.mask) }
}

// overlaps is one hit with all the files whose CPUs intersect the lane's.
func (s *subject) overlaps(paths []string, read func(string) (cpuset.Set, bool)) []hit {
	var h hit
	for _, p := range paths {
		cpus, ok := read(p)
		if on := cpus.Intersection(s.lane); ok && !on.IsEmpty() {
			h.cpus = h.cpus.Union(on)
			h.evidence = append(h.evidence, fmt.Sprintf("%s: CPUs %s", p, cpus))
		}
	}
	switch len(h.evidence) {
	case 0:
		return nil
	case 1:
		h.inForce, h.evidence = h.evidence[0], nil
	default:
		h.inForce = fmt.Sprintf("%d files", len(h.evidence))
	}
	return []hit{h}
}

// asked is a boot parameter as it was given, for a hit.
func (b bootline) asked(name string) string {
	value, ok := b.Get(name)
	if !ok {
		return ""
	}
	return name + "=" + value
}
