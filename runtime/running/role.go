package running

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/plan"
)

// The names that programs give their threads, in addition to those of virtual CPUs (task.VirtualCPU): DPDK
// (lib/eal/linux/eal.c), VPP (vlib/threads.c) and Open vSwitch (lib/dpif-netdev.c).
const (
	pmdName    = `^pmd-c(\d+)`
	dpdkName   = `^(?:lcore-worker-|lcore-slave-|dpdk-worker)(\d+)$`
	vppName    = `^vpp_wk_(\d+)$`
	vppMain    = "vpp_main"
	qemuPrefix = `^(qemu-system-|qemu-kvm$|kvm$)`
)

// role is what a thread gets of its lane.
type role struct {
	cpus cpuset.Set
	one  bool // one of several equal threads, each of which should have a CPU: the workload depends on it
}

// roles says, by TID, which threads want other CPUs than the whole lane. Command lines are read from root; a
// socket that one names is opened on this machine.
func roles(h host.Host, root fs.FS, l plan.Lane, threads []Thread) (map[int]role, []string) {
	m := mapping{lane: l, host: h, want: map[int]role{}}
	for _, p := range byProcess(threads) {
		vcpus := numbered(p, task.VirtualCPU)
		if len(vcpus) == 0 && regexp.MustCompile(qemuPrefix).MatchString(p[0].Program) {
			vcpus = m.asked(root, p)
		}
		workers := numbered(p, inName(dpdkName))
		vpp := slices.ContainsFunc(p, func(t Thread) bool { return t.Comm == vppMain })
		if vpp {
			workers = numbered(p, inName(vppName))
		}
		pmds := numbered(p, inName(pmdName))
		switch {
		case l.Spec.Switch != "" && len(pmds) > 0:
			m.pollMode(p, pmds)
		case len(vcpus) > 0:
			m.machine(p, vcpus)
		case vpp || len(workers) > 0 && len(pmds) == 0: // Open vSwitch pins its own
			m.dataplane(p, workers)
		}
	}
	if len(m.mapped) > 1 {
		m.warn("lane %s: %s have threads for certain CPUs of it, and share them: give each a lane of its own",
			l.Name, strings.Join(m.mapped, ", "))
	}
	return m.want, m.warnings
}

type mapping struct {
	lane     plan.Lane
	host     host.Host
	want     map[int]role
	mapped   []string // processes
	warnings []string
}

func (m *mapping) warn(format string, args ...any) {
	m.warnings = append(m.warnings, fmt.Sprintf(format, args...))
}

// machine gives virtual CPU i the CPU i of the role vcpu, one to one, and QEMU's other threads those of the
// role emulator. Without these roles the virtual CPUs get the lane's first CPUs and the other threads the
// rest. CPUs are counted core by core, as in `isolane cores --for qemu`, so that the guest's siblings are
// siblings.
func (m *mapping) machine(p []Thread, vcpus map[int]Thread) {
	emulator := m.lane.Roles["emulator"]
	cpus := m.byCore(m.cpus("vcpu", m.lane.CPUs.Difference(emulator)))
	used := m.pair(p, vcpus, "vCPU", "vcpu", cpus)
	if emulator.IsEmpty() {
		emulator = m.lane.CPUs.Difference(used)
	}
	if emulator.IsEmpty() {
		// Guests run their housekeeping on virtual CPU 0.
		emulator = m.want[vcpus[slices.Min(slices.Collect(maps.Keys(vcpus)))].TID].cpus
	}
	if emulator.Intersects(used) {
		m.warn("%s: lane %s has no CPU besides its vCPUs': the emulator's threads share CPUs %s with them: give "+
			"the lane one CPU more",
			name(p), m.lane.Name, emulator)
	}
	m.rest(p, emulator)
}

// dataplane gives worker i the CPU i of the role worker, one to one, and all other threads the role main, by
// default the lane's first CPU.
func (m *mapping) dataplane(p []Thread, workers map[int]Thread) {
	first := m.cpus("main", cpuset.Of(m.lane.CPUs.First()))
	cpus := m.cpus("worker", m.lane.CPUs.Difference(first))
	if cpus.Intersects(first) && len(workers) > 0 {
		m.warn("%s: lane %s has no CPU besides %s: workers and main thread share it: give the lane one CPU more",
			name(p), m.lane.Name, first)
	}
	m.pair(p, workers, "worker", "worker", cpus.Slice())
	m.rest(p, first)
}

// pollMode gives each poll-mode thread of a switch the CPU in its name, which moving it into the cgroup takes
// from it, and all other threads the CPUs of main.
func (m *mapping) pollMode(p []Thread, pmds map[int]Thread) {
	for cpu, t := range pmds {
		if m.lane.CPUs.Contains(cpu) {
			m.want[t.TID] = role{cpuset.Of(cpu), true}
		}
	}
	if main, _ := m.lane.PollMode(); !main.IsEmpty() {
		m.rest(p, main)
	}
}

// cpus returns the CPUs of a role, or others if the lane has no such role.
func (m *mapping) cpus(name string, others cpuset.Set) cpuset.Set {
	if cpus := m.lane.Roles[name]; !cpus.IsEmpty() {
		return cpus
	}
	if others.IsEmpty() {
		return m.lane.CPUs
	}
	return others
}

// pair gives each thread, in the order of their numbers, a CPU, and returns the CPUs used. If there are too
// few CPUs, all threads get all of them to be balanced; in a lane without balancing it starts again at the
// first.
func (m *mapping) pair(p []Thread, threads map[int]Thread, what, from string, cpus []int) (used cpuset.Set) {
	m.mapped = append(m.mapped, name(p))
	few := len(threads) > len(cpus)
	for i, number := range slices.Sorted(maps.Keys(threads)) {
		r := role{cpuset.Of(cpus[i%len(cpus)]), true}
		if few && m.lane.Spec.Balanced() {
			r.cpus = cpuset.Of(cpus...)
		}
		m.want[threads[number].TID] = r
		used = used.Union(r.cpus)
	}
	if few {
		m.warn("%s: %d %ss share CPUs %s: give the lane or its role %s %d CPUs", name(p), len(threads), what,
			cpuset.Of(cpus...), from, len(threads))
	}
	return used
}

// rest gives these CPUs to all threads that have none yet.
func (m *mapping) rest(p []Thread, cpus cpuset.Set) {
	for _, t := range p {
		if _, ok := m.want[t.TID]; !ok {
			m.want[t.TID] = role{cpus: cpus}
		}
	}
}

// byCore returns the CPUs with the siblings of a core next to each other.
func (m *mapping) byCore(cpus cpuset.Set) []int {
	var order []int
	for cpu := range cpus.All() {
		for sibling := range m.host.Siblings(cpu).Union(cpuset.Of(cpu)).Intersection(cpus).All() {
			if !slices.Contains(order, sibling) {
				order = append(order, sibling)
			}
		}
	}
	return order
}

// asked finds the threads of virtual CPUs by QMP. Only threads of the process itself count, whatever the
// socket says.
func (m *mapping) asked(root fs.FS, p []Thread) map[int]Thread {
	line, _ := fs.ReadFile(root, task.Dir(p[0].PID)+"/cmdline") // a process that has ended has no socket
	socket := qmpSocket(strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00"))
	if socket == "" {
		m.warn("%s: its threads have no names and it has no QMP socket, so vCPUs and emulator share the lane: "+
			"start it with -name debug-threads=on", name(p))
		return nil
	}
	ids, err := queryCPUs(p[0].PID, socket)
	if err != nil {
		m.warn("%s: QMP at %s: %v: vCPUs and emulator share the lane: start it with -name debug-threads=on",
			name(p), socket, err)
		return nil
	}
	vcpus, seen := map[int]Thread{}, map[int]bool{}
	for _, index := range slices.Sorted(maps.Keys(ids)) {
		at := slices.IndexFunc(p, func(t Thread) bool { return t.NSTID == ids[index] })
		if at >= 0 && !seen[at] { // tcg,thread=single has one thread for all
			vcpus[index], seen[at] = p[at], true
		}
	}
	return vcpus
}

// numbered returns the threads that have a number in their name, by that number.
func numbered(p []Thread, number func(name string) (n int, is bool)) map[int]Thread {
	found := map[int]Thread{}
	for _, t := range p {
		if n, is := number(t.Comm); is {
			found[n] = t
		}
	}
	return found
}

// inName returns a function that finds the number in a name that matches the pattern.
func inName(pattern string) func(name string) (int, bool) {
	re := regexp.MustCompile(pattern)
	return func(name string) (int, bool) {
		match := re.FindStringSubmatch(name)
		if match == nil {
			return 0, false
		}
		n, err := strconv.Atoi(match[1])
		return n, err == nil
	}
}

// byProcess groups threads, which are ordered by process.
func byProcess(threads []Thread) (groups [][]Thread) {
	for i, t := range threads {
		if i == 0 || threads[i-1].PID != t.PID {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], t)
	}
	return groups
}

func name(p []Thread) string { return fmt.Sprintf("process %d (%s)", p[0].PID, p[0].Program) }
