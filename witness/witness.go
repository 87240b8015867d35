// Package witness gathers the evidence of what really happened during a measurement: on which CPUs
// the measured threads ran, who else was there, what interrupts fired, and whether the neighbours
// did their work. It judges that evidence against the plan, and changes nothing.
//
// Where the kernel allows it (5.18 or newer with BTF), an eBPF program at sched_switch adds up each
// task's runs on each CPU; elsewhere /proc is sampled, and the evidence says so. The program takes
// 0.08 to 0.1 µs at each switch by the kernel's own statistics; two threads that wake each other in
// turn get 0.16 µs slower at each, with all that belongs to it (BenchmarkSwitch, the least of 25
// rounds, Linux 6.18 in a virtual machine with two CPUs). A trace of the measured CPUs (Watch.Measured)
// takes as much once more there; it tells what took their time and when, and voids nothing.
//
//	s, err := witness.Begin(ctx, watch)
//	… measure …
//	w, err := s.End()
//	void := witness.Contradictions(w, expect)
package witness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/results"
)

// The roles of measured processes.
const (
	Application = "application"
	Client      = "client"
)

// Subject is a measured process with all its threads. Planned are the CPUs that it may use: any
// other contradicts the plan.
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
	Measured   cpuset.Set            // there a trace finds what takes time, and when; empty or NoBPF: nowhere
	Own        []string              // directories of the cgroups whose tasks are no sources there (NewTrace)
	NoBPF      bool                  // sample /proc even where eBPF is to be had
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
	tracer   *tracer // nil where /proc is sampled
	trace    *Trace  // nil where nothing is to be traced
	stop     func()  // ends the sampling and waits for it
	warnings []string
	began    time.Time
	before   counters
	online   cpuset.Set
	cpusets  []results.Cpuset
	census   census // without a tracer

	mu         sync.Mutex // guards what the sampling looks at
	subjects   *subjects
	neighbours *family
}

// sampling is how often /proc is looked at where there is no tracer.
const sampling = 250 * time.Millisecond

// Begin opens the window. The end of ctx ends only the sampling.
func Begin(ctx context.Context, w Watch) (*Session, error) {
	s := &Session{watch: w, root: host.Live(), stop: func() {}}
	if w.NoBPF {
		s.warnings = append(s.warnings, "/proc is sampled, as was asked")
	} else if t, err := newTracer(s.root); err != nil {
		s.warnings = append(s.warnings, fmt.Sprintf("no eBPF at sched_switch, /proc is sampled instead: %v", err))
	} else {
		s.tracer = t
	}
	s.beginTrace()
	sampled := s.tracer == nil
	s.neighbours = newFamily(s.root, w.Neighbours.PID, sampled)
	s.subjects = &subjects{root: s.root, sampled: sampled, threads: map[task]*thread{}}
	for _, subject := range w.Subjects {
		s.subjects.add(subject, true)
	}
	s.cpusets = s.readCpusets()
	err := s.open()
	if err != nil && s.tracer != nil {
		err = errors.Join(err, s.tracer.discard())
	}
	if err != nil {
		return nil, errors.Join(err, s.endTrace())
	}
	if sampled {
		s.stop = s.sample(ctx)
	}
	return s, nil
}

// beginTrace attaches the programs of a trace, which interrupts all CPUs: before the window. Its sources
// explain the figures and void nothing, so a trace that fails is a warning.
func (s *Session) beginTrace() {
	if s.watch.Measured.IsEmpty() || s.watch.NoBPF {
		return
	}
	t, err := newTrace(s.root, s.watch.Measured, Owned{Cgroups: s.watch.Own}, timelineRoom)
	if err != nil {
		s.warnings = append(s.warnings, fmt.Sprintf("no trace of the application's CPUs: %v", err))
		return
	}
	s.trace = t
}

func (s *Session) endTrace() error {
	if s.trace == nil {
		return nil
	}
	return s.trace.Close()
}

// maxSources bounds the sources of a window.
const maxSources = 16

// sources reads what the trace found, once the window is closed.
func (s *Session) sources() []Source {
	if s.trace == nil {
		return nil
	}
	found, err := s.trace.Read()
	if err != nil {
		s.warnings = append(s.warnings, fmt.Sprintf("trace of the application's CPUs: %v", err))
	}
	s.warnings = append(s.warnings, s.trace.Warnings()...)
	return found.Since[:min(len(found.Since), maxSources)]
}

// Record begins to note each intrusion on the measured CPUs that takes 2 µs or more.
func (s *Session) Record() {
	if s.trace == nil || s.trace.kernel == nil {
		return
	}
	if err := s.trace.kernel.record(); err != nil {
		s.warnings = append(s.warnings, fmt.Sprintf("no timeline: %v", err))
	}
}

// Recorded ends that and returns what was noted, and how many found no room; ok is false where nothing
// could be noted.
func (s *Session) Recorded() (all []Intrusion, lost uint64, ok bool) {
	if s.trace == nil || s.trace.kernel == nil || s.trace.kernel.notes == nil {
		return nil, 0, false
	}
	all, lost, err := s.trace.kernel.recorded()
	if err != nil {
		s.warnings = append(s.warnings, fmt.Sprintf("no timeline: %v", err))
	}
	return all, lost, err == nil
}

// open reads the counters and begins to count, in this order: what the reading costs is not the
// window's.
func (s *Session) open() (err error) {
	if s.before, err = readCounters(s.root); err != nil {
		return err
	}
	if s.online, err = onlineCPUs(s.root); err != nil {
		return err
	}
	if s.tracer == nil && !s.watch.Lane.IsEmpty() {
		s.census = takeCensus(s.root)
	}
	s.began = time.Now()
	if s.tracer != nil {
		return s.tracer.open()
	}
	return nil
}

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

// SubjectDone looks at a process once more that is about to end, or has just ended. Without a
// tracer its last state is lost otherwise.
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
	w := results.Witness{Source: "procfs"}
	var failed error
	if s.tracer != nil {
		w.Source = "bpf"
		failed = s.tracer.close()
	}
	w.Window = results.Nanoseconds(time.Since(s.began))
	after, err := readCounters(s.root)
	failed = errors.Join(failed, err)
	w.Sources = s.sources()
	failed = errors.Join(failed, s.endTrace())
	s.look()
	var c counted
	if s.census != nil {
		c.stays = takeCensus(s.root).since(s.census, s.watch.Lane)
	}
	if s.tracer != nil {
		c, err = s.tracer.collect()
		failed = errors.Join(failed, err)
		s.warnings = slices.Concat(s.warnings, s.subjects.attribute(c.stays),
			s.neighbours.attribute(c.stays, s.watch.Neighbours.Planned))
	}
	w.Intruders = intruders(s.watch.Lane, c.stays, func(st stay) bool {
		p, ok := s.subjects.find(st)
		return ok && p.Role == Application
	})
	w.Threads, w.Neighbours = s.subjects.found(), s.neighbours.found()
	w.CPUs = after.since(s.before, s.watch.CPUs, c.switches)
	w.Cpusets = s.worseCpusets()
	w.Warnings = slices.Concat(s.warnings, s.subjects.missing(), s.gaps(c))
	return w, failed
}

// gaps say what the evidence lacks.
func (s *Session) gaps(c counted) (warnings []string) {
	if c.dropped > 0 {
		warnings = append(warnings, fmt.Sprintf("%d runs of tasks found no room and are missing", c.dropped))
	}
	if online, err := onlineCPUs(s.root); err != nil || online != s.online {
		warnings = append(warnings, fmt.Sprintf("the CPUs online changed from %s to %s within the window",
			s.online, named(online)))
	}
	if s.census != nil {
		warnings = append(warnings, "intruders are those that ran and were last on a lane's CPU; "+
			"how long is known only of tasks bound to it")
	}
	return warnings
}

func (s *Session) readCpusets() []results.Cpuset {
	var all []results.Cpuset
	for _, dir := range slices.Sorted(maps.Keys(s.watch.Cpusets)) {
		force, err := inForce(dir)
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

// inForce reads the CPUs that a cgroup has: of v2 and of v1 (cpuset(7), cgroup-v2.rst).
func inForce(dir string) (cpuset.Set, error) {
	for _, name := range []string{"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return cpuset.Set{}, err
		}
		set, err := cpuset.Parse(string(text))
		if err != nil {
			return set, fmt.Errorf("%s: %w", path, err)
		}
		return set, nil
	}
	return cpuset.Set{}, fmt.Errorf("%s: expected the CPUs of a cgroup, found no such file", dir)
}
