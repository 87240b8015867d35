// Package session invents sessions of measurements for tests.
package session

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/results"
)

// behaviour is what an invented cell does.
type behaviour struct {
	up, down   float64 // Gbit/s
	p50, tail  float64 // µs: the median, and what one in 400 takes
	samples    int     // of each RTT measurement in a run
	bogo, cpus float64
}

// behaviours are like those of a real machine: a quiet host answers late because its CPUs sleep, a noisy one
// fast but sometimes very late.
func behaviours() map[string]behaviour {
	return map[string]behaviour{
		"quiet-floating-bridge":  {22, 62, 20, 90, 4000, 0, 0},
		"noisy-floating-bridge":  {12, 17, 6, 3000, 4000, 3900, 2.9},
		"quiet-pinned-bridge":    {23, 58, 19, 80, 4000, 0, 0},
		"noisy-pinned-bridge":    {15, 40, 9, 600, 60, 2900, 1.9},
		"quiet-lane-express":     {64, 66, 7, 12, 4000, 0, 0},
		"noisy-lane-express":     {64, 65, 7, 13, 4000, 2850, 1.9},
		"quiet-floating-express": {30, 64, 18, 85, 4000, 0, 0},
		"noisy-floating-express": {16, 20, 6, 2500, 4000, 3900, 2.9},
		"quiet-pinned-express":   {32, 64, 17, 80, 4000, 0, 0},
		"noisy-pinned-express":   {24, 50, 9, 500, 4000, 2900, 1.9},
		"quiet-lane-bridge":      {26, 63, 12, 30, 4000, 0, 0},
		"noisy-lane-bridge":      {25, 63, 12, 35, 4000, 2900, 1.9},
	}
}

// SixCells returns the cells of the paper, and their quiet counterparts.
func SixCells() []string {
	return []string{"quiet-floating-bridge", "noisy-floating-bridge", "quiet-pinned-bridge",
		"noisy-pinned-bridge", "quiet-lane-express", "noisy-lane-express"}
}

// AllCells returns all combinations.
func AllCells() []string {
	var all []string
	for _, path := range []string{"bridge", "express"} {
		for _, placement := range []string{"floating", "pinned", "lane"} {
			for _, noise := range []string{"quiet", "noisy"} {
				all = append(all, noise+"-"+placement+"-"+path)
			}
		}
	}
	return all
}

func cellNamed(name string) results.Cell {
	c := results.Cell{Name: name, Baseline: name == "quiet-floating-bridge", Client: cpuset.MustParse("0"),
		Application: cpuset.MustParse("1")}
	parts := strings.Split(name, "-")
	c.Levels = map[string]string{"noise": parts[0], "placement": parts[1], "path": parts[2]}
	if parts[1] == "floating" {
		c.Application = cpuset.MustParse("1-3")
	}
	if parts[0] == "noisy" {
		c.Neighbours = cpuset.MustParse("1-3").Difference(cpuset.MustParse("1"))
		if parts[1] == "floating" {
			c.Neighbours = c.Application
		}
	}
	return c
}

// published returns the paper's figures for the cells.
func published(names []string) []results.Published {
	const source = "Samajdar and Ranjan (white paper), Figures 3 to 6"
	var all []results.Published
	figures := map[string][2]float64{"quiet-floating-bridge": {100, 100}, "noisy-floating-bridge": {60, 160},
		"noisy-pinned-bridge": {68, 120}, "noisy-lane-express": {118, 98}}
	for _, name := range names {
		if f, ok := figures[name]; ok {
			qualifier := "exact"
			if name == "noisy-floating-bridge" {
				qualifier = "about"
			}
			all = append(all, results.Published{Cell: name, Metric: "throughput", Percent: f[0], Qualifier: qualifier,
				Source: source}, results.Published{Cell: name, Metric: "rtt-udp-64-pingpong", Percent: f[1],
				Qualifier: "average", Source: source})
		}
	}
	return all
}

func factors() []results.Factor {
	return []results.Factor{
		{Name: "noise", Levels: []results.Level{{Name: "quiet"}, {Name: "noisy"}}, Quiet: "quiet"},
		{Name: "placement", Levels: []results.Level{{Name: "floating"}, {Name: "pinned"}, {Name: "lane"}}},
		{Name: "path", Levels: []results.Level{{Name: "bridge"}, {Name: "express"}}}}
}

func metrics() []results.Metric {
	rate := results.Metric{Name: "throughput", Quantity: "throughput", Noun: "throughput", Title: "Throughput",
		About: "TCP, geometric mean of up and down", Unit: "bit/s", Better: results.Higher, Margin: 0.05,
		Role: results.Primary, MeanOf: []string{"throughput-tcp-up", "throughput-tcp-down"}}
	all := []results.Metric{rate}
	for _, direction := range []string{"up", "down"} {
		one := rate
		one.Name, one.Role, one.MeanOf, one.Short = "throughput-tcp-"+direction, "", nil, direction
		one.About = "TCP, " + one.Name
		all = append(all, one)
	}
	trip := results.Metric{Name: "rtt-udp-64-pingpong", Quantity: "rtt", Noun: "RTT", Title: "Round trip",
		About: "Median round trip (P50)", Unit: "ns", Better: results.Lower, Margin: 0.10, Role: results.Primary,
		Sampled: true, Loop: results.Closed}
	open := trip
	open.Name, open.Role, open.Loop = "rtt-udp-64-open", "", results.Open
	return append(all, trip, open)
}

// Made invents a session, always the same for the same arguments.
func Made(tb testing.TB, mode string, blocks int, names []string) results.Session {
	tb.Helper()
	started := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := results.Session{
		APIVersion: results.APIVersion, Kind: results.Kind, Schema: results.Schema, Complete: true,
		Scenario: results.Scenario{Name: "edge",
			Title: "What noisy neighbours do to an edge application, and what a lane gives back",
			Mode:  mode, Blocks: blocks, Seed: 7, Source: "kind: Scenario\n",
			Aims: &results.Aims{Cell: "noisy-lane-express", Goals: []results.Goal{{Metric: "throughput", Percent: 150},
				{Metric: "rtt-udp-64-pingpong", Percent: 50},
				{Metric: "rtt-udp-64-pingpong", Statistic: "p99.9", Percent: 100}}},
			Published: published(names)},
		Factors: factors(), Metrics: metrics(),
		Environment: results.Environment{Hostname: "bench", Kernel: "6.12.0 #1 SMP", CPUModel: "Some <CPU> & Co",
			Online: cpuset.MustParse("0-3"), Clocksource: "tsc", MemoryBytes: 16 << 30,
			Versions: map[string]string{"isolane": "test", "iperf3": "3.12"}},
		Started: started}
	for _, n := range names {
		s.Cells = append(s.Cells, cellNamed(n))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for block := range blocks + 1 {
		order := r.Perm(len(s.Cells))
		for _, i := range order {
			run := syntheticRun(tb, r, s.Cells[i], block)
			run.Started = started.Add(time.Duration(len(s.Runs)) * 10 * time.Second)
			s.Runs = append(s.Runs, run)
		}
	}
	s.Ended = started.Add(time.Duration(len(s.Runs)) * 10 * time.Second)
	return s
}

func syntheticRun(tb testing.TB, r *rand.Rand, c results.Cell, block int) results.Run {
	tb.Helper()
	b := behaviours()[c.Name]
	drift := 1 + 0.02*float64(block)
	vary := func(v float64) float64 { return v * drift * math.Exp(0.03*r.NormFloat64()) }
	run := results.Run{Block: block, Cell: c.Name, Duration: results.Nanoseconds(9 * time.Second)}
	if block == 0 {
		run.Dropped = "warm-up block"
	}
	for _, name := range []string{"rtt-udp-64-pingpong", "rtt-udp-64-open"} {
		trips := syntheticRTT(tb, r, name, vary(b.p50), b.tail, b.samples)
		one := trips.Samples[name]
		one.Wanted = 4000 // the same for each cell
		trips.Samples[name] = one
		run.Measured = append(run.Measured, trips)
	}
	for name, v := range map[string]float64{"throughput-tcp-up": b.up, "throughput-tcp-down": b.down} {
		run.Measured = append(run.Measured, results.Measurement{Name: name,
			Window: results.Nanoseconds(time.Second), Values: map[string]float64{name: v}})
	}
	rates := run.Measured[2:]
	slices.SortFunc(rates, func(a, b results.Measurement) int { return cmp.Compare(b.Name, a.Name) })
	for i := range rates {
		rates[i].Values[rates[i].Name] = vary(rates[i].Values[rates[i].Name] * 1e9)
	}
	w := &run.Witness
	w.Window, w.Source = results.Nanoseconds(5*time.Second), "bpf"
	w.Threads = []results.Thread{
		{Role: "application", Comm: "echo", Planned: c.Application, Seen: c.Application, Voluntary: 5000,
			Involuntary: 40},
		{Role: "client", Comm: "probe", Planned: c.Client, Seen: c.Client}}
	w.Cpusets = []results.Cpuset{{Path: "/groups/prove-application", Planned: c.Application,
		InForce: c.Application}}
	w.CPUs = []results.CPU{{ID: 1, Interrupts: 1000, Softirqs: map[string]uint64{"NET_RX": 2500},
		ContextSwitches: 9000, Steal: results.Nanoseconds(5 * time.Millisecond)}}
	w.Sources = []results.Source{{CPU: 1, Kind: "tick", Name: "local timer", Count: new(uint64(1250)),
		Total: nanoseconds(9_000_000), P99: nanoseconds(9_200), Longest: nanoseconds(31_000)}}
	run.Measured[0].Tail = syntheticTail(c, block)
	if c.Levels["placement"] == "lane" {
		w.Sources = append(w.Sources, results.Source{CPU: 1, Kind: "kernel thread", Name: "kworker/1:0",
			Count: new(uint64(3)), Total: nanoseconds(40_000), Longest: nanoseconds(21_000),
			Remedy: "bound to its CPU"})
	}
	if c.Levels["noise"] == "noisy" {
		w.Neighbours = results.Neighbours{Alive: true, Seen: c.Neighbours,
			CPUTime:    results.Nanoseconds(vary(b.cpus) * 5e9),
			BogoPerSec: map[string]float64{"cpu": vary(b.bogo), "malloc": vary(10 * b.bogo)}}
	}
	return run
}

func nanoseconds(n int64) *results.Nanoseconds { return new(results.Nanoseconds(n)) }

// syntheticTail returns nil for one cell, and in a block with too few samples for P99.9.
func syntheticTail(c results.Cell, block int) *results.Tail {
	t := &results.Tail{Quantile: 0.999, Samples: 4, Excess: 4_000_000, Unexplained: 320_000, Met: []results.Met{
		{Kind: "kernel thread", Name: "ksoftirqd/1", Took: 2_440_000},
		{Kind: "task", Name: "stress-ng", Took: 880_000},
		{Kind: "softirq", Name: "NET_RX", Took: 200_000}, {Kind: "tick", Name: "local timer", Took: 80_000},
		{Kind: "interrupt", Name: "eth0", Took: 80_000}}}
	switch c.Name {
	case "quiet-pinned-bridge":
		return nil
	case "noisy-pinned-bridge":
		t.Quantile, t.Samples = 0, 1
	case "noisy-floating-bridge":
		t.Lost, t.Missing = 7, block
	case "noisy-lane-express":
		t.Excess, t.Unexplained, t.Met = 9_000, 9_000, nil
	}
	return t
}

func syntheticRTT(
	tb testing.TB, r *rand.Rand, name string, p50, tail float64, samples int,
) results.Measurement {
	tb.Helper()
	h, lag := results.NewHistogram(), results.NewHistogram()
	for range samples {
		v := p50 * math.Exp(0.12*r.NormFloat64())
		if r.Float64() < 0.0025 {
			v = tail * math.Exp(0.3*r.NormFloat64())
		}
		if err := h.RecordValue(int64(1000 * v)); err != nil {
			tb.Fatal(err)
		}
		if err := lag.RecordValue(int64(200 + 100*r.Float64())); err != nil {
			tb.Fatal(err)
		}
	}
	trips, err := results.Samples{Wanted: uint64(samples)}, error(nil)
	if trips.Histogram, err = results.Encode(h); err != nil {
		tb.Fatal(err)
	}
	if name == "rtt-udp-64-open" {
		if trips.Lag, err = results.Encode(lag); err != nil {
			tb.Fatal(err)
		}
	}
	return results.Measurement{Name: name, Window: results.Nanoseconds(time.Second),
		Samples: map[string]results.Samples{name: trips}}
}

// Quick returns a session with everything that can be wrong: a void run, a void measurement and a cell with
// few samples.
func Quick(tb testing.TB) results.Session {
	tb.Helper()
	s := Made(tb, "quick", 4, SixCells())
	s.Notes = []string{"This is a <made-up> session."}
	RunOf(tb, s, "noisy-pinned-bridge", 2).Void = []string{"application thread 7 (echo) ran on CPU 2, planned 1"}
	RunOf(tb, s, "noisy-lane-express", 3).Measured[1].Void = []string{
		"the client could not keep up: send lag P99.9 40µs, latency P99 13µs"}
	RunOf(tb, s, "quiet-lane-express", 1).Notes = []string{"refused: file /proc/irq/36/smp_affinity_list"}
	return s
}

// RunOf returns the run of a cell in a block, for changes.
func RunOf(tb testing.TB, s results.Session, cell string, block int) *results.Run {
	tb.Helper()
	for i := range s.Runs {
		if s.Runs[i].Cell == cell && s.Runs[i].Block == block {
			return &s.Runs[i]
		}
	}
	tb.Fatalf("no run of %s in block %d", cell, block)
	return nil
}

// Proved returns a session beside a lane in force whose P50 is 12 µs (a tenth more at its end), whose longest
// 1 in 400 take 30 to 35 µs, and whose slower direction has 25 Gbit/s.
func Proved(tb testing.TB, mode string, blocks int, o lane.Objective) results.Session {
	tb.Helper()
	s := Made(tb, mode, blocks, []string{"quiet-lane-bridge", "noisy-lane-bridge"})
	s.Cells[0].Baseline = true
	s.Lane = &results.Lane{Name: "web", Bounds: o.Bounds()}
	return s
}
