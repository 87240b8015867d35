package witness

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/witness/judge"
)

const ms = results.Nanoseconds(time.Millisecond)

// proc makes a /proc of processes with one thread each. Of a thread that has ended only the
// process remains.
func proc(stats ...string) fs.FS {
	files := fstest.MapFS{"proc": {Mode: fs.ModeDir}}
	for _, line := range stats {
		pid, _, _ := strings.Cut(line, " ")
		files["proc/"+pid+"/stat"] = &fstest.MapFile{Data: []byte(line)}
		files["proc/"+pid+"/task/"+pid+"/stat"] = &fstest.MapFile{Data: []byte(line)}
		files["proc/"+pid+"/task/"+pid+"/status"] = &fstest.MapFile{
			Data: []byte("Cpus_allowed_list:\t1\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n")}
	}
	return files
}

func simple(pid, parent, cpuTicks, start int) string {
	return statLine(fmt.Sprint(pid), "p", "S", fmt.Sprint(parent), "0", fmt.Sprint(cpuTicks), "0",
		fmt.Sprint(start), "1")
}

func TestAttribution(t *testing.T) {
	s := &subjects{root: proc(simple(10, 1, 0, 100)), threads: map[taskID]*thread{}}
	s.add(Subject{Role: results.Application, PID: 10, Planned: cpuset.Of(0)}, true)
	s.add(Subject{Role: results.Application, PID: 10, Planned: cpuset.Of(0)}, true) // twice is once
	s.add(Subject{Role: results.Client, PID: 20, Planned: cpuset.Of(1)}, false)     // it has ended already
	s.add(Subject{Role: results.Client, PID: 30, Planned: cpuset.Of(1)}, false)     // that one never ran
	app, reused, client, other := taskID{10, 100}, taskID{10, 50}, taskID{20, 300}, taskID{5, 5}
	run := func(id, process taskID, cpu int, name string, n uint64, ran results.Nanoseconds, sw switches) taskSource {
		return taskSource{start: id.start, process: process, switches: sw,
			Source: Source{CPU: cpu, TID: id.id, Name: name, Count: &n, Total: &ran}}
	}
	warnings := s.attribute([]taskSource{
		run(app, app, 0, "main", 4, 5, switches{3, 1}),
		run(app, app, 1, "main", 1, 2, switches{0, 1}),
		run(taskID{11, 101}, app, 0, "worker", 1, 1, switches{}),
		run(reused, reused, 1, "before", 1, 1, switches{}), // the id was another's
		run(client, client, 1, "client", 1, 9, switches{}),
		run(other, other, 1, "other", 1, 9, switches{}),
	})
	want := []results.Thread{
		{Role: results.Application, PID: 10, TID: 10, Comm: "main", Planned: cpuset.Of(0), Seen: cpuset.Of(0, 1),
			Voluntary: 3, Involuntary: 2, Ran: 7},
		{Role: results.Application, PID: 10, TID: 11, Comm: "worker", Planned: cpuset.Of(0), Seen: cpuset.Of(0), Ran: 1},
		{Role: results.Client, PID: 20, TID: 20, Comm: "client", Planned: cpuset.Of(1), Seen: cpuset.Of(1), Ran: 9},
	}
	if diff := cmp.Diff(want, s.found()); diff != "" {
		t.Error(diff)
	}
	warnings = append(warnings, s.missing()...)
	wantWarnings := []string{
		"application thread 10 (main): 1 times, 2ns on CPU 1, planned 0",
		"client process 30 had ended before it was seen",
	}
	if diff := cmp.Diff(wantWarnings, warnings); diff != "" {
		t.Error(diff)
	}
	s.root = proc(simple(10, 1, 0, 999)) // the id is another's by now
	if got := s.missing(); len(got) != 2 || got[0] != "application process 10 ended within the window" {
		t.Errorf("%q", got)
	}
}

func TestSampledThreads(t *testing.T) {
	first := proc(simple(10, 1, 0, 100))
	s := &subjects{root: first, sampled: true, threads: map[taskID]*thread{}}
	s.add(Subject{Role: results.Application, PID: 10, Planned: cpuset.Of(1)}, true)
	s.look()
	if got := s.found(); len(got) != 1 || !got[0].Seen.IsEmpty() || got[0].Voluntary != 0 {
		t.Errorf("a thread that sleeps: %+v", got)
	}
	second := proc(simple(10, 1, 0, 100)).(fstest.MapFS)
	second["proc/10/task/10/status"].Data =
		[]byte("Cpus_allowed_list:\t1\nvoluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t3\n")
	s.root = second
	s.look()
	s.root = proc() // it has ended: what was seen stays
	s.look()
	want := []results.Thread{
		{Role: results.Application, PID: 10, TID: 10, Comm: "p", Planned: cpuset.Of(1), Seen: cpuset.Of(1),
			Voluntary: 4, Involuntary: 1},
	}
	if diff := cmp.Diff(want, s.found()); diff != "" {
		t.Error(diff)
	}
}

func TestFamily(t *testing.T) {
	f := newFamily(proc(simple(10, 1, 100, 50), simple(11, 10, 7, 51), simple(12, 11, 3, 52),
		simple(40, 1, 900, 60)), 10, false)
	if n := f.found(); !n.Alive || n.CPUTime != 0 {
		t.Errorf("at the begin: %+v", n)
	}
	// 11 has ended and 10 has waited for it; 12 has another parent now; 13 is new; 40 is a stranger.
	f.root = proc(simple(10, 1, 110, 50), simple(12, 1, 6, 52), simple(13, 10, 2, 70), simple(40, 1, 990, 60))
	f.look()
	if n := f.found(); n.CPUTime != 8*tick {
		t.Errorf("CPU time: %+v", n)
	}
	run := func(t taskID, parent, cpu int, runs uint64, ran results.Nanoseconds) taskSource {
		return taskSource{start: t.start, process: t, parent: parent, Source: Source{CPU: cpu, TID: t.id, Count: &runs, Total: &ran}}
	}
	stays := []taskSource{
		run(taskID{10, 50}, 1, 1, 1, 100*ms),
		run(taskID{80, 82}, 13, 1, 2, 10*ms), // came and went
		run(taskID{81, 83}, 80, 0, 3, 20*ms), // and its child
		run(taskID{90, 40}, 13, 3, 1, ms),    // older than 13: the child of an earlier 13
		run(taskID{40, 60}, 1, 3, 1, ms),
	}
	warnings := f.attribute(stays, cpuset.Of(1))
	want := results.Neighbours{Alive: true, CPUTime: 130 * ms, Seen: cpuset.Of(0, 1)}
	if diff := cmp.Diff(want, f.found()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"neighbours: 3 times, 20ms on CPU 0, planned 1"}, warnings); diff != "" {
		t.Error(diff)
	}
	f.root = proc(statLine("10", "p", "Z", "1", "0", "0", "0", "50", "1"))
	if f.look(); f.found().Alive {
		t.Error("a zombie is alive")
	}
	f.root = proc(simple(10, 1, 0, 999))
	if f.look(); f.found().Alive {
		t.Error("another process with the same id is alive")
	}
}

func TestSampledFamily(t *testing.T) {
	f := newFamily(proc(simple(10, 1, 100, 50), simple(11, 10, 100, 51)), 10, true)
	f.look()
	if n := f.found(); !n.Seen.IsEmpty() || n.CPUTime != 0 {
		t.Errorf("a family that sleeps: %+v", n)
	}
	f.root = proc(simple(10, 1, 100, 50), simple(11, 10, 103, 51))
	f.look()
	want := results.Neighbours{Alive: true, CPUTime: 3 * tick, Seen: cpuset.Of(1)}
	if diff := cmp.Diff(want, f.found()); diff != "" {
		t.Error(diff)
	}
}

func TestNoFamily(t *testing.T) {
	f := newFamily(proc(simple(1, 0, 5, 1)), 0, false)
	f.look()
	f.attribute([]taskSource{{start: 1, process: taskID{1, 1}, Source: Source{TID: 1, Total: new(ms)}}}, cpuset.Set{})
	if diff := cmp.Diff(results.Neighbours{}, f.found()); diff != "" {
		t.Error(diff)
	}
}

// Of what a window found on the measured CPUs all are sources but the subjects where they were planned.
func TestSources(t *testing.T) {
	run := func(kind string, pid, cpu int, name string, ran results.Nanoseconds) taskSource {
		st := taskSource{start: 1, process: taskID{pid, 1}, Source: Source{CPU: cpu, Kind: kind, Name: name, TID: pid,
			Count: new(uint64(1)), Total: &ran, Longest: &ran}}
		if kind == results.Task {
			st.PID = pid
		}
		return st
	}
	s := &Session{root: fstest.MapFS{}, trace: &Trace{cpus: cpuset.Of(0)}, subjects: &subjects{processes: []process{
		{Subject: Subject{Role: results.Application, PID: 60, Planned: cpuset.Of(0)}}, {Subject: Subject{Role: results.Client, PID: 61, Planned: cpuset.Of(1)}}}}}
	got := s.sources([]taskSource{run(results.KernelThread, 14, 0, "ksoftirqd/0", 3), run(results.Task, 50, 0, "sshd", 7),
		run(results.Task, 50, 1, "sshd", 8), run(results.Task, 60, 0, "echo", 90), run(results.Task, 61, 0, "client", 2),
		run(results.Task, os.Getpid(), 0, "isolane", 1)}, nil)
	var lines []string
	for _, o := range got {
		lines = append(lines, fmt.Sprintf("%s %s %d: %s", o.Kind, o.Name, *o.Total, o.Remedy))
	}
	want := []string{"task sshd 7: keep it off with the housekeeping cpuset",
		"kernel thread ksoftirqd/0 3: bound to its CPU: move what wakes it, " +
			"the interrupts, timers and packet steering (RPS) that raise softirqs there",
		"task client 2: keep it off with the housekeeping cpuset",
		"task isolane 1: isolane itself: it belongs on the housekeeping CPUs"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

func TestRemedy(t *testing.T) {
	for comm, want := range map[string]string{
		"kworker/u8:3": "unbound: take the CPU out of /sys/devices/virtual/workqueue/cpumask",
		"kworker/0:1H": "bound to its CPU: move what wakes it, " +
			"the interrupt, driver or timer that queues work on this CPU",
		"kworker/R-rcu_g": "rescuer of a work queue: it runs when memory is short",
		"irq/24-nvme0q1":  "an interrupt's thread: move the interrupt by its smp_affinity_list in /proc/irq",
		"kswapd0":         "move it with taskset, or boot with isolcpus where it refuses",
	} {
		if got := remedies().find(results.KernelThread, comm, 0); got != want {
			t.Errorf("%s: %q, want %q", comm, got, want)
		}
	}
	if got := remedies().find(results.Task, "kworker/u8:3", 5); got != "keep it off with the housekeeping cpuset" {
		t.Errorf("a program with a kernel thread's name: %q", got)
	}
}

// The list is bounded, its sums are not.
func TestManySources(t *testing.T) {
	var all []Source
	total := map[int]results.Nanoseconds{}
	for i := range 1000 {
		o := Source{CPU: i % 2, Kind: results.Task, Name: "sh", TID: 100 + i, Count: new(uint64(1)), Total: new(ms / 10), Longest: new(ms / 10)}
		if i%100 < 2 {
			o.Kind = results.KernelThread
		} else {
			total[o.CPU] += ms / 10
		}
		all = append(all, o)
	}
	got := bound(all, cpuset.Of(1))
	sum := map[int]results.Nanoseconds{}
	var count uint64
	for _, o := range got {
		if count += *o.Count; o.Kind == results.Task {
			sum[o.CPU] += *o.Total
		}
	}
	if len(got) != maxSources+4 || count != 1000 || !cmp.Equal(sum, total) {
		t.Errorf("%d sources with %v, %d runs, want %v: %+v", len(got), sum, count, total, got)
	}
	w := results.Witness{Window: 1000 * ms, Sources: got}
	if why := judge.Contradictions(w, judge.Expect{Lane: cpuset.Of(0)}); len(why) != 1 {
		t.Errorf("contradictions: %q", why)
	}
	if got := bound(all[:3], cpuset.Set{}); len(got) != 3 {
		t.Errorf("%+v", got)
	}
}

func TestCensus(t *testing.T) {
	at := func(cpu int, ran results.Nanoseconds, allowed string) tally {
		return tally{stat: task.Stat{Processor: cpu}, ran: ran, allowed: cpuset.MustParse(allowed)}
	}
	bound, free, idle, elsewhere := taskID{1, 1}, taskID{2, 1}, taskID{3, 1}, taskID{4, 1}
	before := census{bound: at(0, 5, "0"), free: at(0, 5, "0-1"), idle: at(0, 5, "0"), elsewhere: at(0, 5, "0")}
	after := census{bound: at(0, 9, "0"), free: at(0, 9, "0-1"), idle: at(0, 5, "0"), elsewhere: at(1, 9, "0")}
	got := map[int][2]*results.Nanoseconds{} // total, and at most
	for _, st := range after.since(before, cpuset.Of(0)) {
		got[st.TID] = [2]*results.Nanoseconds{st.Total, st.AtMost}
	}
	four := new(results.Nanoseconds(4))
	if diff := cmp.Diff(map[int][2]*results.Nanoseconds{1: {four, nil}, 2: {nil, four}}, got); diff != "" {
		t.Error(diff)
	}
}

// A cpuset that was another at the begin of the window contradicts, though it is right at its end.
func TestCpusetThatChanges(t *testing.T) {
	dir := t.TempDir()
	write := func(list string) {
		if err := os.WriteFile(filepath.Join(dir, "cpuset.cpus.effective"), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0-1\n")
	plan := map[string]cpuset.Set{dir: cpuset.Of(0), dir + "-gone": cpuset.Of(1)}
	s := begin(t, Watch{Cpusets: plan, NoBPF: true})
	write("0\n")
	w := end(t, s)
	want := []results.Cpuset{
		{Path: dir, Planned: cpuset.Of(0), InForce: cpuset.Of(0, 1)},
		{Path: dir + "-gone", Planned: cpuset.Of(1)},
	}
	if diff := cmp.Diff(want, w.Cpusets); diff != "" {
		t.Error(diff)
	}
	if why := judge.Contradictions(w, judge.Expect{}); len(why) != 2 {
		t.Errorf("contradictions: %q", why)
	}
}
