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
	"isolane.dev/isolane/results"
)

const ms = results.Nanoseconds(time.Millisecond)

// good is the evidence of a run that went as planned, and expected its plan.
func good() (results.Witness, Expect) {
	w := results.Witness{
		Window: 1000 * ms,
		Threads: []results.Thread{
			{Role: Application, PID: 12, TID: 12, Comm: "echo", Planned: cpuset.Of(0), Seen: cpuset.Of(0)},
		},
		Cpusets: []results.Cpuset{{Path: "/c/lane", Planned: cpuset.Of(0), InForce: cpuset.Of(0)}},
		CPUs:    []results.CPU{{ID: 0, Steal: 50 * ms}, {ID: 1, Steal: 900 * ms}},
		Intruders: []results.Intruder{
			{CPU: 0, TID: 14, Comm: "ksoftirqd/0", Kernel: true, Ran: 500 * ms},
			{CPU: 0, TID: 99, Comm: "sshd", Runs: 3, Ran: ms, Worst: ms / 2},
		},
		Neighbours: results.Neighbours{Alive: true, CPUTime: 900 * ms, Seen: cpuset.Of(1)},
	}
	return w, Expect{Noisy: true, Lane: cpuset.Of(0), Neighbours: cpuset.Of(1),
		Measured: cpuset.Of(0), StealPercent: 5}
}

type contradiction struct {
	name  string
	spoil func(*results.Witness, *Expect)
	want  string // "": none
}

func contradictions() []contradiction {
	return []contradiction{
		{"as planned", func(*results.Witness, *Expect) {}, ""},
		{"a thread that never ran",
			func(w *results.Witness, _ *Expect) { w.Threads[0].Seen = cpuset.Set{} }, ""},
		{"a thread elsewhere",
			func(w *results.Witness, _ *Expect) { w.Threads[0].Seen = cpuset.Of(0, 1, 2) },
			"application thread 12 (echo) ran on CPU 1-2, planned 0"},
		{"a thread without a plan",
			func(w *results.Witness, _ *Expect) { w.Threads[0].Planned = cpuset.Set{} },
			"application thread 12 (echo) ran on CPU 0, planned none"},
		{"another cpuset", func(w *results.Witness, _ *Expect) { w.Cpusets[0].InForce = cpuset.Of(0, 1) },
			"cpuset /c/lane is 0-1 in force, planned 0"},
		{"no cpuset", func(w *results.Witness, _ *Expect) { w.Cpusets[0].InForce = cpuset.Set{} },
			"cpuset /c/lane is none in force, planned 0"},
		{"dead neighbours",
			func(w *results.Witness, _ *Expect) { w.Neighbours.Alive = false }, "the neighbours are dead"},
		{"no work",
			func(w *results.Witness, _ *Expect) { w.Neighbours.CPUTime = 0 }, "the neighbours delivered no work"},
		{"no operations",
			func(w *results.Witness, _ *Expect) { w.Neighbours.BogoPerSec = map[string]float64{"cpu": 0} },
			"the neighbours delivered no work"},
		{"operations",
			func(w *results.Witness, _ *Expect) { w.Neighbours.BogoPerSec = map[string]float64{"a": 0, "b": 3} }, ""},
		{"little work", func(w *results.Witness, _ *Expect) { w.Neighbours.CPUTime = 5 * ms },
			"the neighbours had 0.50% of one CPU, expected at least 1%"},
		{"less work than asked", func(_ *results.Witness, e *Expect) { e.NoisePercent = 95 },
			"the neighbours had 90.00% of one CPU, expected at least 95%"},
		{"neighbours elsewhere",
			func(w *results.Witness, _ *Expect) { w.Neighbours.Seen = cpuset.Of(0, 1) },
			"the neighbours ran on CPU 0, planned 1"},
		{"neighbours in a quiet cell", func(_ *results.Witness, e *Expect) { e.Noisy = false },
			"neighbours are alive where quiet was planned"},
		{"quiet",
			func(w *results.Witness, e *Expect) { e.Noisy, w.Neighbours = false, results.Neighbours{} }, ""},
		{"steal within a tick of the budget",
			func(w *results.Witness, _ *Expect) { w.CPUs[0].Steal = 60 * ms }, ""},
		{"steal",
			func(w *results.Witness, _ *Expect) { w.CPUs[0].Steal = 81 * ms }, "steal 8.1% on CPU 0, budget 5%"},
		{"a window of the plan's own",
			func(_ *results.Witness, e *Expect) { e.Window = 500 * ms }, "steal 10.0% on CPU 0, budget 5%"},
		{"an intruder", func(w *results.Witness, _ *Expect) { w.Intruders[1].Ran = 2 * ms },
			"intruders ran 2ms on the lane's CPUs, at most 1ms expected: " +
				"sshd (99) 2ms on CPU 0 in 3 runs, the longest 500µs"},
		{"an intruder in a long window",
			func(w *results.Witness, _ *Expect) { w.Intruders[1].Ran, w.Window = 2*ms, 3000*ms }, ""},
		{"an intruder where there is no lane",
			func(w *results.Witness, e *Expect) { w.Intruders[1].Ran, e.Lane = 2*ms, cpuset.Set{} }, ""},
	}
}

func TestContradictions(t *testing.T) {
	for _, c := range contradictions() {
		t.Run(c.name, func(t *testing.T) {
			w, e := good()
			c.spoil(&w, &e)
			if got := strings.Join(Contradictions(w, e), "\n"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// proc makes a /proc of processes with one thread each. Of a thread that has ended only the
// process remains.
func proc(stats ...string) fs.FS {
	files := fstest.MapFS{"proc": {Mode: fs.ModeDir}}
	for _, line := range stats {
		pid, _, _ := strings.Cut(line, " ")
		files["proc/"+pid+"/stat"] = &fstest.MapFile{Data: []byte(line)}
		files["proc/"+pid+"/task/"+pid+"/stat"] = &fstest.MapFile{Data: []byte(line)}
		files["proc/"+pid+"/task/"+pid+"/status"] = &fstest.MapFile{
			Data: []byte("voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n")}
	}
	return files
}

func simple(pid, parent, cpuTicks, start int) string {
	return statLine(fmt.Sprint(pid), "p", "S", fmt.Sprint(parent), "0", fmt.Sprint(cpuTicks), "0",
		fmt.Sprint(start), "1")
}

func TestAttribution(t *testing.T) {
	s := &subjects{root: proc(simple(10, 1, 0, 100)), threads: map[task]*thread{}}
	s.add(Subject{Application, 10, cpuset.Of(0)}, true)
	s.add(Subject{Application, 10, cpuset.Of(0)}, true) // twice is once
	s.add(Subject{Client, 20, cpuset.Of(1)}, false)     // it has ended already
	s.add(Subject{Client, 30, cpuset.Of(1)}, false)     // that one never ran
	app, reused, client, other := task{10, 100}, task{10, 50}, task{20, 300}, task{5, 5}
	warnings := s.attribute([]stay{
		{task: app, process: app, cpu: 0, comm: "main", runs: 4, ran: 5, switches: switches{3, 1}},
		{task: app, process: app, cpu: 1, comm: "main", runs: 1, ran: 2, switches: switches{0, 1}},
		{task: task{11, 101}, process: app, cpu: 0, comm: "worker", runs: 1, ran: 1},
		{task: reused, process: reused, cpu: 1, comm: "before", runs: 1, ran: 1}, // the id was another's
		{task: client, process: client, cpu: 1, comm: "client", runs: 1, ran: 9},
		{task: other, process: other, cpu: 1, comm: "other", runs: 1, ran: 9},
	})
	want := []results.Thread{
		{Role: Application, PID: 10, TID: 10, Comm: "main", Planned: cpuset.Of(0), Seen: cpuset.Of(0, 1),
			Voluntary: 3, Involuntary: 2, Ran: 7},
		{Role: Application, PID: 10, TID: 11, Comm: "worker", Planned: cpuset.Of(0), Seen: cpuset.Of(0), Ran: 1},
		{Role: Client, PID: 20, TID: 20, Comm: "client", Planned: cpuset.Of(1), Seen: cpuset.Of(1), Ran: 9},
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
	s := &subjects{root: first, sampled: true, threads: map[task]*thread{}}
	s.add(Subject{Application, 10, cpuset.Of(1)}, true)
	s.look()
	if got := s.found(); len(got) != 1 || !got[0].Seen.IsEmpty() || got[0].Voluntary != 0 {
		t.Errorf("a thread that sleeps: %+v", got)
	}
	second := proc(simple(10, 1, 0, 100)).(fstest.MapFS)
	second["proc/10/task/10/status"].Data =
		[]byte("voluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t3\n")
	s.root = second
	s.look()
	s.root = proc() // it has ended: what was seen stays
	s.look()
	want := []results.Thread{
		{Role: Application, PID: 10, TID: 10, Comm: "p", Planned: cpuset.Of(1), Seen: cpuset.Of(1),
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
	run := func(t task, parent, cpu int, runs uint64, ran results.Nanoseconds) stay {
		return stay{task: t, process: t, parent: parent, cpu: cpu, runs: runs, ran: ran}
	}
	stays := []stay{
		run(task{10, 50}, 1, 1, 1, 100*ms),
		run(task{80, 82}, 13, 1, 2, 10*ms), // came and went
		run(task{81, 83}, 80, 0, 3, 20*ms), // and its child
		run(task{90, 40}, 13, 3, 1, ms),    // older than 13: the child of an earlier 13
		run(task{40, 60}, 1, 3, 1, ms),
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
	f.attribute([]stay{{task: task{1, 1}, process: task{1, 1}, ran: ms}}, cpuset.Set{})
	if diff := cmp.Diff(results.Neighbours{}, f.found()); diff != "" {
		t.Error(diff)
	}
}

func TestIntruders(t *testing.T) {
	run := func(pid, cpu int, comm string, ran results.Nanoseconds) stay {
		id := task{pid, 1}
		return stay{task: id, process: id, cpu: cpu, comm: comm, runs: 1, ran: ran, longest: ran}
	}
	ksoftirqd := run(14, 0, "ksoftirqd/0", 3)
	ksoftirqd.kernel, ksoftirqd.runs = true, 9
	stays := []stay{ksoftirqd, run(50, 0, "sshd", 7), run(50, 1, "sshd", 8), run(60, 0, "echo", 90),
		run(os.Getpid(), 0, "isolane", 1)}
	got := intruders(cpuset.Of(0), stays, func(st stay) bool { return st.process.id == 60 })
	want := []results.Intruder{
		{CPU: 0, TID: 50, Comm: "sshd", Runs: 1, Ran: 7, Worst: 7,
			Remedy: "keep it off with the housekeeping cpuset"},
		{CPU: 0, TID: 14, Comm: "ksoftirqd/0", Kernel: true, Runs: 9, Ran: 3, Worst: 3,
			Remedy: "bound to its CPU: move what wakes it, " +
				"the interrupts, timers and packet steering (RPS) that raise softirqs there"},
		{CPU: 0, TID: os.Getpid(), Comm: "isolane", Runs: 1, Ran: 1, Worst: 1,
			Remedy: "isolane itself: it belongs on the housekeeping CPUs"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
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
		if got := remedy(stay{kernel: true, comm: comm}); got != want {
			t.Errorf("%s: %q, want %q", comm, got, want)
		}
	}
	if got := remedy(stay{comm: "kworker/u8:3"}); got != "keep it off with the housekeeping cpuset" {
		t.Errorf("a program with a kernel thread's name: %q", got)
	}
}

// The list is bounded, its sums are not.
func TestManyIntruders(t *testing.T) {
	var stays []stay
	var total results.Nanoseconds
	for i := range 1000 {
		st := stay{task: task{100 + i, 1}, comm: "sh", runs: 1, ran: ms / 10, kernel: i%100 == 0}
		if !st.kernel {
			total += st.ran
		}
		stays = append(stays, st)
	}
	got := intruders(cpuset.Of(0), stays, func(stay) bool { return false })
	var sum results.Nanoseconds
	for _, i := range got {
		if !i.Kernel {
			sum += i.Ran
		}
	}
	if len(got) != maxIntruders || sum != total {
		t.Errorf("%d intruders with %d, want %d with %d", len(got), sum, maxIntruders, total)
	}
	w := results.Witness{Window: 1000 * ms, Intruders: got}
	if why := Contradictions(w, Expect{Lane: cpuset.Of(0)}); len(why) != 1 {
		t.Errorf("contradictions: %q", why)
	}
}

func TestCensus(t *testing.T) {
	at := func(cpu int, ran results.Nanoseconds, allowed string) tally {
		return tally{stat: taskStat{lastCPU: cpu}, ran: ran, allowed: cpuset.MustParse(allowed)}
	}
	bound, free, idle, elsewhere := task{1, 1}, task{2, 1}, task{3, 1}, task{4, 1}
	before := census{bound: at(0, 5, "0"), free: at(0, 5, "0-1"), idle: at(0, 5, "0"), elsewhere: at(0, 5, "0")}
	after := census{bound: at(0, 9, "0"), free: at(0, 9, "0-1"), idle: at(0, 5, "0"), elsewhere: at(1, 9, "0")}
	got := map[int]results.Nanoseconds{}
	for _, st := range after.since(before, cpuset.Of(0)) {
		got[st.id] = st.ran
	}
	if diff := cmp.Diff(map[int]results.Nanoseconds{1: 4, 2: 0}, got); diff != "" {
		t.Error(diff)
	}
}

func TestCpusetInForce(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // "": an error
	}{
		"v2":         {map[string]string{"cpuset.cpus.effective": "0-1\n", "cpuset.cpus": "\n"}, "0-1"},
		"v1":         {map[string]string{"cpuset.effective_cpus": "1\n", "cpuset.cpus": "0-1\n"}, "1"},
		"older v1":   {map[string]string{"cpuset.cpus": "0\n"}, "0"},
		"no cpuset":  {map[string]string{"cgroup.procs": ""}, ""},
		"not a list": {map[string]string{"cpuset.cpus": "x\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := inForce(dir)
			if got.String() != c.want || (err != nil) != (c.want == "") {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
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
	if why := Contradictions(w, Expect{}); len(why) != 2 {
		t.Errorf("contradictions: %q", why)
	}
}
