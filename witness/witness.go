// Package witness gathers the evidence of what really happened during a measurement: on which CPUs
// the measured threads ran, who else was there, what interrupts fired, and whether the neighbours
// did their work. It changes nothing; witness/judge holds the evidence against the plan, and witness/tail
// explains the worst samples by it.
//
// Where the kernel allows it (5.18 or newer with BTF), one eBPF program at sched_switch adds up each task's
// runs on each CPU. On the measured CPUs interrupts and softirqs are added up too, and single intrusions
// recorded, which explain the worst samples; and a cache line is timed on its way between the two sides.
// Elsewhere it is differences of /proc, and the evidence says so.
// docs/measurements.md has what the programs cost.
//
//	s, err := witness.Begin(ctx, watch)
//	… measure …
//	w, err := s.End()
//	void := judge.Contradictions(w, expect)
package witness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/witness/tail"
)

// Subject is a measured process with all its threads. Planned are the CPUs that it may use: any other
// contradicts the plan.
type Subject struct {
	Role    string
	PID     int
	Planned cpuset.Set
	Tree    bool // with all its descendants: a container's processes, a virtual machine's
}

// Watch says what to look at.
type Watch struct {
	Subjects   []Subject
	Neighbours Neighbours
	Cpusets    map[string]cpuset.Set // by directory of a cgroup: the CPUs planned for it
	CPUs       cpuset.Set            // those to count on
	Measured   cpuset.Set            // the application's: everything that takes time there is a source
	Client     cpuset.Set            // the same for the client
	Own        []string              // directories of the subjects' cgroups
	Workload   bool                  // other tasks in these are no sources
	NoBPF      bool                  // sample /proc even if eBPF is available
}

// Neighbours is the process that makes noise, with all its descendants; PID 0 is none.
type Neighbours struct {
	PID     int
	Planned cpuset.Set
}

// Session is a window that is being watched. End must be called once.
type Session struct {
	watch    Watch
	root     fs.FS
	trace    *Trace
	stop     func() // ends the sampling and waits for it
	unfollow func() // ends the looks at cpusets
	warnings []string
	began    time.Time
	online   cpuset.Set
	power    map[int]power // of the measured CPUs, when the window began
	fetched  fetches       // when CacheLine was called last

	mu         sync.Mutex // guards what the sampling and the looks at cpusets read
	cpusets    []results.Cpuset
	subjects   *subjects
	neighbours *family
}

// sampling is how often /proc is read without eBPF.
const sampling = 250 * time.Millisecond

// Begin opens the window. The end of ctx ends only the sampling.
func Begin(ctx context.Context, w Watch) (s *Session, err error) {
	s = &Session{watch: w, root: host.Live(), stop: func() {}}
	if s.online, err = host.Online(s.root); err != nil {
		return nil, err
	}
	what := scope{measured: w.Measured.Union(w.Client), ends: [2]cpuset.Set{w.Measured, w.Client},
		counted: s.online, own: Owned{Cgroups: w.Own}, keepOwn: true, room: timelineBytes}
	if s.trace, err = newTrace(s.root, what, w.NoBPF); err != nil {
		return nil, err
	}
	sampled := s.trace.kernel == nil
	s.neighbours = newFamily(s.root, w.Neighbours.PID, sampled)
	s.subjects = &subjects{root: s.root, sampled: sampled, threads: map[taskID]*thread{}}
	for _, subject := range w.Subjects {
		s.subjects.add(subject, true)
	}
	s.power = readPower(s.root, s.watch.CPUs)
	dirs := slices.Sorted(maps.Keys(w.Cpusets))
	for _, dir := range dirs {
		s.cpusets = append(s.cpusets, results.Cpuset{Path: dir, Planned: w.Cpusets[dir], InForce: w.Cpusets[dir]})
	}
	s.lookAtCpusets()
	if s.unfollow, err = cgroup.Follow(dirs, s.lookAtCpusets); err != nil {
		s.Warn(err.Error())
	}
	if err = s.trace.begin(); err != nil {
		s.unfollow()
		return nil, errors.Join(err, s.trace.Close())
	}
	s.began = time.Now()
	if sampled {
		s.stop = s.sample(ctx)
	}
	return s, nil
}

// Record starts recording each intrusion of 2 µs or more on the measured CPUs, and each run of the subjects
// there.
func (s *Session) Record() {
	if s.trace.kernel == nil {
		return
	}
	if err := s.trace.kernel.record(); err != nil {
		s.warnings = append(s.warnings, fmt.Sprintf("no timeline: %v", err))
	}
}

// Recorded stops recording. It returns what was recorded, and how many notes were lost for lack of room. ok
// is false if recording was impossible.
func (s *Session) Recorded() (all []tail.Intrusion, lost uint64, ok bool) {
	if s.trace.kernel == nil || s.trace.kernel.notes == nil {
		return nil, 0, false
	}
	all, lost, err := s.trace.kernel.recorded(func(stays []taskSource) func(taskSource) string {
		s.subjects.descend(stays)
		return s.subjects.role
	})
	if err != nil {
		s.warnings = append(s.warnings, fmt.Sprintf("no timeline: %v", err))
	}
	return all, lost, err == nil
}

// Warn adds a warning to the evidence.
func (s *Session) Warn(text string) { s.warnings = append(s.warnings, text) }

// sample reads /proc in a goroutine until the returned function is called, or ctx ends.
func (s *Session) sample(ctx context.Context) (stop func()) {
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
				s.look()
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (s *Session) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subjects.look()
	s.neighbours.look()
}

// AddSubject adds a process that started within the window.
func (s *Session) AddSubject(subject Subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subjects.add(subject, false)
}

// SubjectDone reads a process a last time, when it is about to end or has just ended. Without eBPF its last
// state would be lost.
func (s *Session) SubjectDone(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.subjects.processes {
		if p.PID == pid {
			s.subjects.lookAt(p, false)
		}
	}
}

// End closes the window and returns the evidence. With an error the evidence is incomplete.
func (s *Session) End() (results.Witness, error) {
	s.stop()
	s.unfollow()
	failed := s.trace.end()
	w := results.Witness{Source: s.trace.Evidence(), Window: results.Nanoseconds(time.Since(s.began))}
	after, err := readCounters(s.root)
	failed = errors.Join(failed, err)
	power := readPower(s.root, s.watch.CPUs)
	stays, switches, err := s.trace.collect()
	failed = errors.Join(failed, err)
	s.look()
	s.subjects.descend(stays)
	if s.trace.kernel != nil {
		s.warnings = slices.Concat(s.warnings, s.subjects.attribute(stays),
			s.neighbours.attribute(stays, s.watch.Neighbours.Planned))
	}
	w.Sources = s.sources(stays, after.times)
	w.Threads, w.Neighbours = s.subjects.found(), s.neighbours.found()
	w.CPUs = after.since(s.trace.before, s.watch.CPUs, switches)
	for i, cpu := range w.CPUs {
		power[cpu.ID].addTo(&w.CPUs[i], s.power[cpu.ID])
	}
	s.lookAtCpusets()
	w.Cpusets = s.cpusets
	if online, err := host.Online(s.root); err != nil || online != s.online {
		s.warnings = append(s.warnings, fmt.Sprintf("the CPUs online changed from %s to %s within the window",
			s.online, named(online)))
	}
	w.Warnings = slices.Concat(s.trace.Warnings(), s.warnings, s.subjects.missing())
	return w, errors.Join(failed, s.trace.Close())
}

// sources returns what took the time of the measured CPUs, the costliest first. A subject on its planned CPUs
// is not among them.
func (s *Session) sources(stays []taskSource, times map[int]host.CPUTime) []Source {
	all := s.trace.steal(times)
	for _, st := range stays {
		p, _ := s.subjects.find(st) // if it belongs to none, nothing is planned
		if s.trace.cpus.Contains(st.CPU) && !p.Planned.Contains(st.CPU) && (!st.own || !s.watch.Workload) {
			all = append(all, st.Source)
		}
	}
	s.trace.balance.look(s.root, all)
	s.trace.finish(all)
	return bound(all, s.watch.Client)
}

// maxSources bounds the number of sources of a window, not counting the sums of the others.
const maxSources = 16

// bound keeps the costliest sources and adds the others up, by kind and side, so that the totals stay
// complete: many short programs are as bad as a long one.
func bound(all []Source, client cpuset.Set) []Source {
	kept := all[:min(len(all), maxSources):min(len(all), maxSources)]
	type group struct {
		kind   string
		client bool
	}
	sums, order := map[group]*Source{}, []*Source{}
	for _, o := range all[len(kept):] {
		g := group{o.Kind, client.Contains(o.CPU)}
		sum := sums[g]
		if sum == nil {
			sum = &Source{CPU: o.CPU, Kind: o.Kind, Name: results.Others, Remedy: o.Remedy} // remedy: the costliest's
			sums[g], order = sum, append(order, sum)
		}
		sum.Count, sum.Total = plus(sum.Count, o.Count), plus(sum.Total, o.Total)
		sum.AtMost = plus(sum.AtMost, o.AtMost)
		if o.Longest != nil && *o.Longest > value(sum.Longest) {
			sum.Longest = o.Longest
		}
	}
	for _, sum := range order {
		kept = append(kept, *sum)
	}
	return kept
}

// plus adds two values, either of which may be unknown.
func plus[T uint64 | results.Nanoseconds](a, b *T) *T {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	sum := *a + *b
	return &sum
}

// lookAtCpusets reads the cpusets. A state that is not as planned is kept until the window ends. A cpuset
// that cannot be read has no CPUs.
func (s *Session) lookAtCpusets() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.cpusets {
		if c := &s.cpusets[i]; c.InForce == c.Planned {
			c.InForce, _ = cgroup.CPUs(s.root, c.Path)
		}
	}
}
