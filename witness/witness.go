// Package witness gathers the evidence of what really happened during a measurement: on which CPUs
// the measured threads ran, who else was there, what interrupts fired, and whether the neighbours
// did their work. It changes nothing; witness/judge holds the evidence against the plan, and witness/tail
// explains the worst samples by it.
//
// Where the kernel allows it (5.18 or newer with BTF), one eBPF program at sched_switch adds up each task's
// runs on each CPU. On the measured CPUs interrupts and softirqs are added up too, and single intrusions
// recorded, which explain the worst samples. Elsewhere it is differences of /proc, and the evidence says so.
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

// Subject is a measured process with all its threads. Planned are the CPUs that it may use: any
// other contradicts the plan.
type Subject struct {
	Role    string
	PID     int
	Planned cpuset.Set
	Tree    bool // with all that descend from it: a container's processes, a virtual machine's
}

// Watch says what to look at.
type Watch struct {
	Subjects   []Subject
	Neighbours Neighbours
	Cpusets    map[string]cpuset.Set // directory of a cgroup to the CPUs planned for it
	CPUs       cpuset.Set            // those to count on
	Measured   cpuset.Set            // the application's: there everything that takes time is a source
	Client     cpuset.Set            // the same of the client
	Own        []string              // directories of the cgroups that the subjects are in
	Workload   bool                  // what else runs in these is no source
	NoBPF      bool                  // sample /proc even where eBPF is available
}

// Neighbours is the process that makes noise, with all that descend from it; PID 0 is none.
type Neighbours struct {
	PID     int
	Planned cpuset.Set
}

// Session is a window that is being watched. End must be called, once.
type Session struct {
	watch    Watch
	root     fs.FS
	trace    *Trace
	stop     func() // ends the sampling and waits for it
	warnings []string
	began    time.Time
	online   cpuset.Set
	cpusets  []results.Cpuset
	power    map[int]power // of the measured CPUs, when the window began

	mu         sync.Mutex // guards what the sampling looks at
	subjects   *subjects
	neighbours *family
}

// sampling is how often /proc is looked at where there is no eBPF.
const sampling = 250 * time.Millisecond

// Begin opens the window. The end of ctx ends only the sampling.
func Begin(ctx context.Context, w Watch) (s *Session, err error) {
	s = &Session{watch: w, root: host.Live(), stop: func() {}}
	if s.online, err = host.Online(s.root); err != nil {
		return nil, err
	}
	what := scope{measured: w.Measured.Union(w.Client), counted: s.online, own: Owned{Cgroups: w.Own},
		keepOwn: true, room: timelineRoom}
	if s.trace, err = newTrace(s.root, what, w.NoBPF); err != nil {
		return nil, err
	}
	sampled := s.trace.kernel == nil
	s.neighbours = newFamily(s.root, w.Neighbours.PID, sampled)
	s.subjects = &subjects{root: s.root, sampled: sampled, threads: map[taskID]*thread{}}
	for _, subject := range w.Subjects {
		s.subjects.add(subject, true)
	}
	s.cpusets, s.power = s.readCpusets(), readPower(s.root, s.watch.CPUs)
	if err = s.trace.begin(); err != nil {
		return nil, errors.Join(err, s.trace.Close())
	}
	s.began = time.Now()
	if sampled {
		s.stop = s.sample(ctx)
	}
	return s, nil
}

// Record begins to note each intrusion on the measured CPUs that takes 2 µs or more, and each run of the
// subjects there.
func (s *Session) Record() {
	if s.trace.kernel == nil {
		return
	}
	if err := s.trace.kernel.record(); err != nil {
		s.warnings = append(s.warnings, fmt.Sprintf("no timeline: %v", err))
	}
}

// Recorded ends that and returns what was noted, and how many notes found no room; ok is false where nothing
// could be noted.
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

// sample looks at /proc in a goroutine until the returned function is called, or ctx ends.
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

// SubjectDone looks at a process once more that is about to end, or has just ended. Without
// eBPF its last state is lost otherwise.
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
	w.Cpusets = s.worseCpusets()
	if online, err := host.Online(s.root); err != nil || online != s.online {
		s.warnings = append(s.warnings, fmt.Sprintf("the CPUs online changed from %s to %s within the window",
			s.online, named(online)))
	}
	w.Warnings = slices.Concat(s.trace.Warnings(), s.warnings, s.subjects.missing())
	return w, errors.Join(failed, s.trace.Close())
}

// sources returns what took the time of the measured CPUs, the costliest first. A subject is none where it
// was planned.
func (s *Session) sources(stays []taskSource, times map[int]host.CPUTime) []Source {
	all := s.trace.steal(times)
	for _, st := range stays {
		p, _ := s.subjects.find(st) // of none nothing is planned
		if s.trace.cpus.Contains(st.CPU) && !p.Planned.Contains(st.CPU) && (!st.own || !s.watch.Workload) {
			all = append(all, st.Source)
		}
	}
	s.trace.balance.look(s.root, all)
	s.trace.finish(all)
	return bound(all, s.watch.Client)
}

// maxSources bounds the sources of a window, but for the sums of the others.
const maxSources = 16

// bound keeps the costliest and adds the others up, by kind and side, so that the sums stay whole: many
// short programs are as bad as a long one.
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
			sum = &Source{CPU: o.CPU, Kind: o.Kind, Name: results.Others, Remedy: o.Remedy} // those of the costliest
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

// plus adds where something is known.
func plus[T uint64 | results.Nanoseconds](a, b *T) *T {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	sum := *a + *b
	return &sum
}

func (s *Session) readCpusets() []results.Cpuset {
	var all []results.Cpuset
	for _, dir := range slices.Sorted(maps.Keys(s.watch.Cpusets)) {
		force, err := cgroup.CPUs(s.root, dir)
		if err != nil {
			s.warnings = append(s.warnings, err.Error())
		}
		all = append(all, results.Cpuset{Path: dir, Planned: s.watch.Cpusets[dir], InForce: force})
	}
	return all
}

// worseCpusets reads the cpusets again. Of one that was not as planned at the begin of the window or
// is not at its end, that moment counts.
func (s *Session) worseCpusets() []results.Cpuset {
	now := s.readCpusets()
	for i, before := range s.cpusets {
		if before.InForce != before.Planned {
			now[i] = before
		}
	}
	return now
}
