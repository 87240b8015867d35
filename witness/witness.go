// Package witness gathers the evidence of what really happened during a measurement: on which CPUs
// the measured threads ran, who else was there, what interrupts fired, and whether the neighbours
// did their work. It judges that evidence against the plan.
//
// Where the kernel allows it, an eBPF program at sched_switch adds up every stay on every CPU;
// elsewhere /proc is sampled, and the evidence says so.
package witness

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/results"
)

// The roles of measured processes.
const (
	Application = "application"
	Client      = "client"
)

// Subject is a measured process: all its threads.
type Subject struct {
	Role    string
	PID     int
	Planned cpuset.Set
}

// Watch says what to look at.
type Watch struct {
	Subjects   []Subject
	Neighbours Neighbours
	Lane       cpuset.Set            // there everybody but the application is an intruder; empty: nowhere
	Cpusets    map[string]cpuset.Set // directory of a cgroup to the CPUs planned for it
	CPUs       cpuset.Set            // those to count on
	NoBPF      bool                  // sample /proc even where eBPF is to be had
}

// Neighbours is the root of the processes that make noise; PID 0 is none.
type Neighbours struct {
	PID     int
	Planned cpuset.Set
}

// Session is a window that is being watched.
type Session struct {
	watch    Watch
	began    time.Time
	tracer   *tracer
	warnings []string
	before   reading
	stop     func() // ends the sampling and waits for it

	mu      sync.Mutex
	threads map[int]*results.Thread // by tid
	base    map[int][2]uint64       // context switches at the first sight
	noisy   cpuset.Set
	members map[int]bool // pids that were seen among the neighbours
}

// reading is the kernel's counters at one moment.
type reading struct {
	interrupts, softirqs counts
	cpus                 map[int]cpuTimes
	noise                map[int]taskStat
}

func read(w Watch) reading {
	r := reading{interrupts: parseCounts(readText("/proc/interrupts")), softirqs: parseCounts(readText("/proc/softirqs")),
		cpus: parseStat(readText("/proc/stat"))}
	if w.Neighbours.PID != 0 {
		r.noise = tree(w.Neighbours.PID)
	}
	return r
}

// Begin starts to watch.
func Begin(ctx context.Context, w Watch) (*Session, error) {
	s := &Session{watch: w, threads: map[int]*results.Thread{}, base: map[int][2]uint64{}, members: map[int]bool{}}
	if !w.NoBPF {
		var err error
		if s.tracer, err = newTracer(); err != nil {
			s.warnings = append(s.warnings, fmt.Sprintf("no eBPF at sched_switch, /proc is sampled instead: %v", err))
		}
	}
	s.before, s.began = read(w), time.Now()
	s.sample()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(sampling)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				s.sample()
			}
		}
	}()
	s.stop = func() {
		cancel()
		<-done
	}
	return s, nil
}

// AddSubject adds a process that started within the window.
func (s *Session) AddSubject(subject Subject) {
	s.mu.Lock()
	s.watch.Subjects = append(s.watch.Subjects, subject)
	s.mu.Unlock()
	s.sample()
}

// sample looks where the threads are now.
func (s *Session) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, subject := range s.watch.Subjects {
		for _, tid := range tids(subject.PID) {
			s.look(subject, tid)
		}
	}
	if s.watch.Neighbours.PID == 0 {
		return
	}
	for pid, st := range tree(s.watch.Neighbours.PID) {
		s.members[pid] = true
		if st.cpuTime > s.before.noise[pid].cpuTime {
			s.noisy = s.noisy.Union(cpuset.Of(st.lastCPU))
		}
	}
}

func (s *Session) look(subject Subject, tid int) {
	dir := fmt.Sprintf("/proc/%d/task/%d/", subject.PID, tid)
	st, err := readTask(dir + "stat")
	if err != nil {
		return // it has ended
	}
	voluntary, involuntary := parseSwitches(readText(dir + "status"))
	t := s.threads[tid]
	if t == nil {
		t = &results.Thread{Role: subject.Role, PID: subject.PID, TID: tid, Planned: subject.Planned}
		s.threads[tid] = t
		s.base[tid] = [2]uint64{voluntary, involuntary}
		if subject.Role == Client { // it started within the window: all its switches count
			s.base[tid] = [2]uint64{}
		}
	}
	t.Comm = st.comm
	if voluntary+involuntary > s.base[tid][0]+s.base[tid][1] || st.state == 'R' {
		t.Voluntary, t.Involuntary = voluntary-s.base[tid][0], involuntary-s.base[tid][1]
		if s.tracer == nil || st.state == 'R' { // with the tracer a sleeping thread's stays are known exactly
			t.Seen = t.Seen.Union(cpuset.Of(st.lastCPU))
		}
	}
}

// End stops watching and returns the evidence.
func (s *Session) End() (results.Witness, error) {
	s.stop()
	s.sample()
	var stays []stay
	w := results.Witness{Window: results.Nanoseconds(time.Since(s.began)), Source: "procfs", Warnings: s.warnings}
	if s.tracer != nil {
		w.Source = "bpf"
		var err error
		if stays, err = s.tracer.stop(); err != nil {
			w.Warnings = append(w.Warnings, fmt.Sprintf("sched_switch: %v", err))
		}
	}
	after := read(s.watch)
	w.CPUs = s.cpus(after, stays)
	w.Threads = s.attribute(stays)
	w.Intruders = intruders(s.watch, stays)
	w.Neighbours = s.neighbours(after, stays)
	for _, dir := range slices.Sorted(maps.Keys(s.watch.Cpusets)) {
		force, err := inForce(dir)
		if err != nil {
			return w, err
		}
		w.Cpusets = append(w.Cpusets, results.Cpuset{Path: dir, Planned: s.watch.Cpusets[dir], InForce: force})
	}
	return w, nil
}

// inForce reads the CPUs that a cgroup has: of v2 and of v1.
func inForce(dir string) (cpuset.Set, error) {
	for _, name := range []string{"cpuset.cpus.effective", "cpuset.effective_cpus"} {
		if text := readText(filepath.Join(dir, name)); text != "" {
			set, err := cpuset.Parse(text)
			if err != nil {
				return set, fmt.Errorf("%s/%s: %w", dir, name, err)
			}
			return set, nil
		}
	}
	return cpuset.Set{}, fmt.Errorf("%s: expected a cpuset in force", dir)
}

func (s *Session) cpus(after reading, stays []stay) []results.CPU {
	interrupts, softirqs := after.interrupts.since(s.before.interrupts), after.softirqs.since(s.before.softirqs)
	switches := map[int]uint64{}
	for _, st := range stays {
		switches[st.cpu] += st.runs
	}
	var all []results.CPU
	for id := range s.watch.CPUs.All() {
		c := results.CPU{ID: id, InterruptSource: interrupts.on(id), Softirqs: softirqs.on(id), ContextSwitches: switches[id],
			Steal: after.cpus[id].steal - s.before.cpus[id].steal, Idle: after.cpus[id].idle - s.before.cpus[id].idle}
		for _, n := range c.InterruptSource {
			c.Interrupts += n
		}
		all = append(all, c)
	}
	return all
}

// attribute gives the stays to the subjects' threads. Threads that came and went between two looks
// are known by their process.
func (s *Session) attribute(stays []stay) []results.Thread {
	subjects := map[int]Subject{}
	for _, subject := range s.watch.Subjects {
		subjects[subject.PID] = subject
	}
	for _, st := range stays {
		subject, ok := subjects[st.tgid]
		if !ok {
			continue
		}
		t := s.threads[st.tid]
		if t == nil {
			t = &results.Thread{Role: subject.Role, PID: subject.PID, TID: st.tid, Comm: st.comm, Planned: subject.Planned}
			s.threads[st.tid] = t
		}
		t.Seen = t.Seen.Union(cpuset.Of(st.cpu))
		t.Ran += st.ran
	}
	var all []results.Thread
	for _, tid := range slices.Sorted(maps.Keys(s.threads)) {
		all = append(all, *s.threads[tid])
	}
	return all
}

func (s *Session) neighbours(after reading, stays []stay) results.Neighbours {
	root := s.watch.Neighbours.PID
	if root == 0 {
		return results.Neighbours{}
	}
	n := results.Neighbours{Seen: s.noisy}
	st, ok := after.noise[root]
	n.Alive = ok && st.state != 'Z'
	for pid, now := range after.noise {
		n.CPUTime += now.cpuTime - s.before.noise[pid].cpuTime
	}
	for _, st := range stays {
		if s.members[st.tgid] {
			n.Seen = n.Seen.Union(cpuset.Of(st.cpu))
		}
	}
	if n.CPUTime < 0 { // the root died and took its children's sums with it
		n.CPUTime = 0
	}
	return n
}

// kernelThread is PF_KTHREAD of include/linux/sched.h.
const kernelThread = 0x00200000

// maxIntruders bounds the list; the cheapest are left out.
const maxIntruders = 20

// intruders are the tasks on the lane's CPUs that are not the application, the costliest first.
func intruders(w Watch, stays []stay) []results.Intruder {
	var all []results.Intruder
	for _, st := range stays {
		if !w.Lane.Contains(st.cpu) || slices.ContainsFunc(w.Subjects, func(s Subject) bool {
			return s.Role == Application && s.PID == st.tgid
		}) {
			continue
		}
		all = append(all, results.Intruder{CPU: st.cpu, TID: st.tid, Comm: st.comm, Kernel: st.flags&kernelThread != 0,
			Runs: st.runs, Ran: st.ran, Worst: st.worst, Remedy: remedy(st)})
	}
	slices.SortFunc(all, func(a, b results.Intruder) int {
		return cmp.Or(cmp.Compare(b.Ran, a.Ran), cmp.Compare(a.TID, b.TID), cmp.Compare(a.CPU, b.CPU))
	})
	return all[:min(len(all), maxIntruders)]
}

func remedy(st stay) string {
	switch {
	case st.flags&kernelThread == 0:
		return "keep it off with the housekeeping cpuset"
	case strings.HasPrefix(st.comm, "kworker/u"):
		return "take the CPU out of /sys/devices/virtual/workqueue/cpumask"
	case strings.HasPrefix(st.comm, "ksoftirqd/"), strings.HasPrefix(st.comm, "kworker/"),
		strings.HasPrefix(st.comm, "migration/"), strings.HasPrefix(st.comm, "cpuhp/"):
		return "bound to its CPU: move what wakes it (interrupts, timers, work queued there)"
	}
	return "move it with taskset, or boot with isolcpus where it refuses"
}
