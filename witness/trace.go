package witness

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/results"
)

// The kinds of sources that take a CPU's time.
const (
	Task         = "task"
	KernelThread = "kernel thread"
	Interrupt    = "interrupt"
	Softirq      = "softirq"
	IPI          = "ipi"  // an interrupt that another CPU sends
	Tick         = "tick" // the local timer: the scheduler's tick, and timers that programs set
	Steal        = "steal"
)

// Source is what takes time from one CPU, added up since the trace began.
type Source = results.Source

// Trace watches CPUs from NewTrace to Close. eBPF programs on these CPUs add up what takes their
// time; where the kernel refuses them, differences of /proc do, which know counts and few times.
// No thread of this process runs on a watched CPU for it, if process.StayOff was called before.
//
//	t, err := witness.NewTrace(root, lane, witness.Owned{Cgroups: []string{cgroup}})
//	defer t.Close()
//	… wait …
//	reading, err := t.Read()
type Trace struct {
	root     fs.FS
	cpus     cpuset.Set
	own      Owned
	kernel   *collector // nil: /proc
	before   counters   // with a collector only the times
	census   census     // without a collector
	tasks    map[task]Source
	last     []Source // of the reading before, but for what the collector compares itself
	balance  balance
	warnings []string
}

// Reading is what was found, the costliest first (by total time, then by count), and the lanes' own last.
type Reading struct {
	Since []Source // since the trace began
	Last  []Source // since the reading before
}

// NewTrace begins to watch. Attaching the programs interrupts every CPU of the machine, some 200 times,
// before anything is counted.
func NewTrace(root fs.FS, cpus cpuset.Set, own Owned) (*Trace, error) {
	return newTrace(root, cpus, own, 0)
}

// newTrace is NewTrace with room for a recording, in bytes (see newCollector).
func newTrace(root fs.FS, cpus cpuset.Set, own Owned, room int) (*Trace, error) {
	t := &Trace{root: root, cpus: cpus, own: own, tasks: map[task]Source{}}
	online, err := onlineCPUs(root)
	if err != nil {
		return nil, err
	}
	if !cpus.IsSubsetOf(online) || cpus.IsEmpty() {
		return nil, fmt.Errorf("CPUs %s: expected some of those online, %s", named(cpus), online)
	}
	k, err := newCollector(root, cpus, own.Cgroups, room)
	if errors.Is(err, errOwn) {
		return nil, err
	}
	if err != nil {
		t.warnings = append(t.warnings, fmt.Sprintf("no eBPF, differences of /proc instead: "+
			"times are known only of tasks bound to one CPU, and what came and went within a second is missing: %v", err))
		return t, t.beginProc()
	}
	t.kernel = k
	t.warnings = append(t.warnings, k.warnings...)
	if t.before.times, err = readAs(root, "proc/stat", parseCPUTimes); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if err = k.start(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Evidence is bpf or procfs.
func (t *Trace) Evidence() string {
	if t.kernel != nil {
		return "bpf"
	}
	return "procfs"
}

// Warnings say what the trace cannot see, or has missed.
func (t *Trace) Warnings() []string { return t.warnings }

// Read returns the sources so far, and those since it was called before.
func (t *Trace) Read() (r Reading, err error) {
	var others []Source // those that the collector does not compare
	if t.kernel != nil {
		r.Since, r.Last, err = t.kernel.read(t.ownThreads)
	} else {
		others, err = t.readProc()
	}
	if err != nil {
		return r, err
	}
	times, err := readAs(t.root, "proc/stat", parseCPUTimes)
	if err != nil {
		return r, err
	}
	for cpu := range t.cpus.All() {
		if stolen := times[cpu].steal.since(t.before.times[cpu].steal); stolen > 0 {
			others = append(others, Source{CPU: cpu, Kind: Steal, Name: "hypervisor", Total: &stolen})
		}
	}
	r.Since, r.Last, t.last = append(r.Since, others...), append(r.Last, added(others, t.last)...), others
	t.balance.look(t.root, r.Since)
	table := remedies()
	for _, all := range [][]Source{r.Since, r.Last} {
		t.own.mark(all)
		for i, s := range all {
			switch {
			case s.Own:
				all[i].Remedy = ""
			case s.Kind == Softirq && s.Name == sched:
				all[i].Remedy = t.balance.remedy(s.CPU, t.cpus)
			default:
				all[i].Remedy = cmp.Or(s.Remedy, table.find(s.Kind, s.Name, s.PID))
			}
		}
		slices.SortFunc(all, compareSources)
	}
	if t.kernel != nil && t.kernel.missed > 0 {
		t.warnings = append(slices.Clip(t.kernel.warnings), fmt.Sprintf("%d intrusions found no room and are missing", t.kernel.missed))
	}
	return r, nil
}

func compareSources(a, b Source) int {
	return cmp.Or(boolean(a.Own)-boolean(b.Own), cmp.Compare(value(b.Total), value(a.Total)), cmp.Compare(value(b.Count), value(a.Count)),
		cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.TID, b.TID))
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Close ends the trace. What was read before remains valid.
func (t *Trace) Close() error {
	if t.kernel == nil {
		return nil
	}
	return t.kernel.close()
}

// beginProc takes the counts that later ones are compared with.
func (t *Trace) beginProc() (err error) {
	t.before, err = readCounters(t.root)
	t.census = takeCensus(t.root)
	return err
}

// readProc compares /proc with what it was at the begin.
func (t *Trace) readProc() ([]Source, error) {
	now, err := readCounters(t.root)
	if err != nil {
		return nil, err
	}
	var all []Source
	for cpu := range t.cpus.All() {
		for label, n := range now.interrupts.since(t.before.interrupts, cpu) {
			s := interruptSource(label)
			s.CPU, s.Count = cpu, &n
			all = append(all, s)
		}
		for name, n := range now.softirqs.since(t.before.softirqs, cpu) {
			all = append(all, Source{CPU: cpu, Kind: Softirq, Name: name, Count: &n})
		}
	}
	own := t.ownThreads()
	for _, st := range takeCensus(t.root).since(t.census, t.cpus) {
		if own[st.id] {
			continue
		}
		s := Source{CPU: st.cpu, Kind: taskKind(st.kernel), Name: st.comm, PID: st.process.id, TID: st.id,
			Cgroup: cgroupOf(t.root, st.id)}
		if st.ran > 0 || st.runs > 0 {
			s.Count, s.Total = &st.runs, &st.ran
		}
		t.tasks[st.task] = s // and stays there when it has ended
	}
	return slices.AppendSeq(all, maps.Values(t.tasks)), nil
}
