package witness

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
)

// Source is what takes time from one CPU, added up since the trace began.
type Source = results.Source

// taskSource is a source, with the identity of its task.
type taskSource struct {
	Source
	switches
	start   ticks  // of the task, since boot
	process taskID // of the thread
	parent  int    // process ID
	own     bool   // the task is in an own cgroup
}

func (s taskSource) task() taskID { return taskID{s.TID, s.start} }

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
	cpus     cpuset.Set // that are measured
	own      Owned
	kernel   *collector // nil: /proc is used
	before   counters
	census   census // without a collector
	tasks    map[taskID]taskSource
	entered  entered
	last     []Source // of the last reading, except those that the collector compares itself
	balance  balance
	warnings []string
}

// Reading is what was found: the costliest first (by total time, or its upper bound, then by count), and the
// lanes' own last.
type Reading struct {
	Since []Source // since the trace began
	Last  []Source // since the last reading
}

// NewTrace starts watching. Attaching the programs interrupts every CPU of the machine some 200 times, before
// anything is counted.
func NewTrace(root fs.FS, cpus cpuset.Set, own Owned) (*Trace, error) {
	online, err := host.Online(root)
	if err != nil {
		return nil, err
	}
	if !cpus.IsSubsetOf(online) || cpus.IsEmpty() {
		return nil, fmt.Errorf("CPUs %s: expected some of those online, %s", named(cpus), online)
	}
	t, err := newTrace(root, scope{measured: cpus, own: own}, false)
	if err != nil {
		return nil, err
	}
	if err = t.begin(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// newTrace attaches the programs, if they are wanted and the kernel accepts them. Nothing counts before
// begin.
func newTrace(root fs.FS, sc scope, noBPF bool) (*Trace, error) {
	t := &Trace{root: root, cpus: sc.measured, own: sc.own, tasks: map[taskID]taskSource{},
		balance: newBalance(root)}
	err := errors.New("as requested")
	if !noBPF {
		t.kernel, err = newCollector(root, sc)
	}
	if errors.Is(err, errOwn) {
		return nil, err
	}
	if err != nil {
		t.kernel = nil
		t.warnings = append(t.warnings, fmt.Sprintf("no eBPF, differences of /proc instead: "+
			"times are known only of tasks bound to one CPU, and what came and went within a second is missing: %v",
			err))
		return t, nil
	}
	t.warnings = append(t.warnings, t.kernel.warnings...)
	return t, nil
}

// begin starts counting. Reading the counters for the first time comes before that.
func (t *Trace) begin() (err error) {
	if t.before, err = readCounters(t.root); err != nil {
		return err
	}
	t.entered.look(t.root, t.own.Cgroups, cpuset.Set{}) // processes already there count from now on
	if t.kernel != nil {
		return t.kernel.start()
	}
	if !t.cpus.IsEmpty() {
		t.census = takeCensus(t.root)
	}
	return nil
}

// Evidence returns "bpf" or "procfs".
func (t *Trace) Evidence() string {
	if t.kernel != nil {
		return "bpf"
	}
	return "procfs"
}

// Warnings says what the trace cannot see, or has missed.
func (t *Trace) Warnings() []string {
	all := slices.Clip(t.warnings)
	if t.kernel != nil && t.kernel.missed > 0 {
		all = append(all, fmt.Sprintf("%d intrusions found no room and are missing", t.kernel.missed))
	}
	if t.kernel != nil && t.kernel.unlisted > 0 {
		all = append(all, fmt.Sprintf("more of the subjects' threads ran than there is room for: of %d runs it is "+
			"not known how long the next wake-up took", t.kernel.unlisted))
	}
	return all
}

// Read returns the sources so far, and those since the last call.
func (t *Trace) Read() (r Reading, err error) {
	var others []Source // those that the collector does not compare
	if t.kernel != nil {
		var all []taskSource
		all, r.Last, err = t.kernel.read(t.ownThreads)
		r.Since = sourcesOf(all)
	} else {
		var all []taskSource
		all, err = t.readProc()
		others = sourcesOf(all)
	}
	if err != nil {
		return r, err
	}
	times, err := host.CPUTimes(t.root)
	if err != nil {
		return r, err
	}
	others = append(others, t.steal(times)...)
	t.entered.look(t.root, t.own.Cgroups, t.cpus)
	others = slices.AppendSeq(others, maps.Values(t.entered.sources))
	r.Since, r.Last, t.last = append(r.Since, others...), append(r.Last, added(others, t.last)...), others
	t.balance.look(t.root, r.Since)
	t.finish(r.Since)
	t.finish(r.Last)
	return r, nil
}

// end stops the counting.
func (t *Trace) end() error {
	if t.kernel == nil {
		return nil
	}
	return t.kernel.stop()
}

// collect returns all that was found, and how often each CPU switched.
func (t *Trace) collect() (all []taskSource, switches map[int]uint64, err error) {
	if t.kernel == nil {
		all, err = t.readProc()
		return all, nil, err
	}
	all, _, err = t.kernel.read(t.ownThreads)
	switches, serr := t.kernel.switchesOf()
	return all, switches, errors.Join(err, serr)
}

func sourcesOf(all []taskSource) []Source {
	found := make([]Source, 0, len(all))
	for _, s := range all {
		found = append(found, s.Source)
	}
	return found
}

// steal returns what the hypervisor took of the measured CPUs.
func (t *Trace) steal(times map[int]host.CPUTime) (all []Source) {
	for cpu := range t.cpus.All() {
		if stolen := ticks(times[cpu].Steal).since(ticks(t.before.times[cpu].Steal)); stolen > 0 {
			all = append(all, Source{CPU: cpu, Kind: results.Steal, Name: results.Hypervisor, Total: &stolen})
		}
	}
	return all
}

// finish marks what is own, adds remedies to the others, and sorts the sources.
func (t *Trace) finish(all []Source) {
	table := remedies()
	t.own.mark(all)
	for i, s := range all {
		switch {
		case s.Own:
			all[i].Remedy = ""
		case s.Kind == results.Softirq && s.Name == sched:
			all[i].Remedy = t.balance.remedy(s.CPU, t.cpus)
		case s.Kind == results.Tick:
			all[i].Remedy = cmp.Or(s.Remedy, t.balance.tick(s.CPU), table.find(s.Kind, s.Name, s.PID))
		default:
			all[i].Remedy = cmp.Or(s.Remedy, table.find(s.Kind, s.Name, s.PID))
		}
	}
	slices.SortFunc(all, compareSources)
}

func compareSources(a, b Source) int {
	own := cmp.Compare(strconv.FormatBool(a.Own), strconv.FormatBool(b.Own)) // false comes first
	cost := func(s Source) results.Nanoseconds { return max(value(s.Total), value(s.AtMost)) }
	return cmp.Or(own, cmp.Compare(cost(b), cost(a)),
		cmp.Compare(value(b.Count), value(a.Count)), cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.TID, b.TID))
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Close ends the trace. Earlier readings stay valid.
func (t *Trace) Close() error {
	if t.kernel == nil {
		return nil
	}
	return t.kernel.close()
}

// readProc compares /proc with its state at the start.
func (t *Trace) readProc() ([]taskSource, error) {
	now, err := readCounters(t.root)
	if err != nil {
		return nil, err
	}
	var all []taskSource
	for cpu := range t.cpus.All() {
		for label, n := range now.interrupts.since(t.before.interrupts, cpu) {
			s := interruptSource(label)
			s.CPU, s.Count = cpu, &n
			all = append(all, taskSource{Source: s})
		}
		for name, n := range now.softirqs.since(t.before.softirqs, cpu) {
			all = append(all, taskSource{Source: Source{CPU: cpu, Kind: results.Softirq, Name: name, Count: &n}})
		}
	}
	own := t.ownThreads()
	for _, s := range takeCensus(t.root).since(t.census, t.cpus) {
		if own(s.TID, s.CPU) {
			continue
		}
		s.Cgroup = cgroup.PathOf(t.root, task.Dir(s.TID))
		t.tasks[s.task()] = s // it stays there when it has ended
	}
	return slices.AppendSeq(all, maps.Values(t.tasks)), nil
}
