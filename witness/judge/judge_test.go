package judge

import (
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/results"
)

const ms = results.Nanoseconds(time.Millisecond)

// good is the evidence of a run that went as planned, and expected its plan.
func good() (results.Witness, Expect) {
	w := results.Witness{
		Window: 1000 * ms,
		Threads: []results.Thread{
			{Role: results.Application, PID: 12, TID: 12, Comm: "echo", Planned: cpuset.Of(0), Seen: cpuset.Of(0)},
		},
		Cpusets: []results.Cpuset{{Path: "/c/lane", Planned: cpuset.Of(0), InForce: cpuset.Of(0)}},
		CPUs:    []results.CPU{{ID: 0, Steal: 50 * ms}, {ID: 1, Steal: 900 * ms}},
		Sources: []results.Source{
			{CPU: 0, TID: 14, Kind: results.KernelThread, Name: "ksoftirqd/0", Total: new(500 * ms)},
			{CPU: 0, TID: 99, Kind: results.Task, Name: "sshd", Count: new(uint64(3)), Total: new(ms), Longest: new(ms / 2)},
			{CPU: 1, TID: 98, Kind: results.Task, Name: "elsewhere", Total: new(700 * ms)},
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
		{"an intruder", func(w *results.Witness, _ *Expect) { w.Sources[1].Total = new(2 * ms) },
			"intruders ran 2ms on the lane's CPUs, at most 1ms expected: " +
				"sshd (99) 2ms on CPU 0 in 3 runs, the longest 500µs"},
		{"an intruder of unknown time",
			func(w *results.Witness, _ *Expect) {
				w.Sources[1] = results.Source{CPU: 0, TID: 99, Kind: results.Task, Name: "sshd", AtMost: new(2 * ms)}
			},
			"intruders may have run 2ms on the lane's CPUs, at most 1ms expected: sshd (99) up to 2ms on CPU 0"},
		{"an intruder of unknown time that is short anyhow",
			func(w *results.Witness, _ *Expect) { w.Sources[1].Total, w.Sources[1].AtMost = nil, new(ms) }, ""},
		{"an intruder in a long window",
			func(w *results.Witness, _ *Expect) { w.Sources[1].Total, w.Window = new(2*ms), 3000*ms }, ""},
		{"an intruder where there is no lane",
			func(w *results.Witness, e *Expect) { w.Sources[1].Total, e.Lane = new(2*ms), cpuset.Set{} }, ""},
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
