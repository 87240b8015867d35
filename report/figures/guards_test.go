package figures

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
	"isolane.dev/isolane/test/session"
)

// check adds a metric that checks another, with a value in each run of a cell, "" for all, and less in the
// others.
func check(s *results.Session, of, cell string, value float64) {
	s.Metrics = append(s.Metrics, results.Metric{Name: "check", Quantity: "check", Noun: "client's CPU", Unit: "%", Better: results.Lower,
		Margin: 0.1, Role: results.Check, Guards: of, Limit: 90})
	for i, r := range s.Runs {
		v := 40.0
		if r.Cell == cell || cell == "" {
			v = value
		}
		s.Runs[i].Measured = append(r.Measured, results.Measurement{Name: "check", Values: map[string]float64{"check": v}})
	}
}

// versions gives all runs a probe whose program is another one in a cell in block 3, and in "" the same.
func versions(tb testing.TB, s *results.Session, cell, probe string) {
	tb.Helper()
	for i, r := range s.Runs {
		k := slices.IndexFunc(r.Measured, func(m results.Measurement) bool { return m.Name == probe })
		if k < 0 {
			tb.Fatal(probe)
		}
		m := &s.Runs[i].Measured[k]
		m.Facts, m.Conditions = map[string]string{"version": "1"}, []string{"version"}
		if r.Cell == cell && r.Block == 3 {
			m.Facts["version"] = "2"
		}
	}
}

// late makes the open loop of a cell void.
func late(cell string) func(*results.Session) {
	return func(s *results.Session) {
		for i, r := range s.Runs {
			for k, m := range r.Measured {
				if r.Cell == cell && m.Name == "rtt-udp-64-open" {
					s.Runs[i].Measured[k].Void = []string{"the client could not keep up"}
				}
			}
		}
	}
}

// trend gives all runs a check that holds halves against each other: value in a cell, else about 0; where it
// is scattered, one run in four is on the other side.
func trend(s *results.Session, of, cell string, value float64, scattered bool) {
	s.Metrics = append(s.Metrics, results.Metric{Name: "trend", Quantity: "trend", Noun: "second half", Unit: "%", Better: results.Lower,
		Margin: 0.05, Role: results.Check, Guards: of, Limit: 5, Trend: true})
	for i, r := range s.Runs {
		v := 0.1 * float64(i%3-1)
		if r.Cell == cell {
			v = value
			if scattered && r.Block%4 == 0 {
				v = -v
			}
		}
		s.Runs[i].Measured = append(r.Measured, results.Measurement{Name: "trend", Values: map[string]float64{"trend": v}})
	}
}

// unbalanced gives all runs a check of what must not be at all, and one run of a cell some of it.
func unbalanced(s *results.Session, of, cell string) {
	s.Metrics = append(s.Metrics, results.Metric{Name: "unnamed", Quantity: "unnamed", Noun: "frames lost", Unit: "frames",
		Better: results.Lower, Margin: 0.1, Role: results.Check, Guards: of})
	for i, r := range s.Runs {
		v := 0.0
		if r.Cell == cell && r.Block == 3 {
			v = 7
		}
		s.Runs[i].Measured = append(r.Measured, results.Measurement{Name: "unnamed", Values: map[string]float64{"unnamed": v}})
	}
}

// carried gives one run of a cell segments: nine that were sent, and what came of them.
func carried(s *results.Session, cell string, got uint64, dropped map[string]uint64) {
	for i, r := range s.Runs {
		for k, m := range r.Measured {
			if r.Cell == cell && r.Block == 3 && m.Name == "throughput-tcp-up" {
				s.Runs[i].Measured[k].Segments = []results.Segments{{Way: "there", Sent: 9, Got: got, Dropped: dropped}}
			}
		}
	}
}

// Each guard is provoked, says so by name, and lowers the verdicts that it touches and no other.
func TestGuards(t *testing.T) {
	made, err := json.Marshal(session.Made(t, "standard", 10, session.SixCells()))
	if err != nil {
		t.Fatal(err)
	}
	const lane, pinned, base = "noisy-lane-express", "noisy-pinned-bridge", "quiet-floating-bridge"
	for name, c := range map[string]struct {
		change     func(*results.Session)
		guard      string
		state      GuardState
		text       string
		cell       string // whose verdict on throughput is lowered
		want       stats.Verdict
		why        string
		laneVerdic stats.Verdict // of the lane's throughput
	}{
		"clean":             {nil, "coordinated omission", Kept, "rtt-udp-64-open", pinned, stats.Worse, "", stats.Better},
		"only closed loops": {func(s *results.Session) { s.Metrics[4].Loop = results.Closed }, "coordinated omission", Failed, "open loop", pinned, stats.Worse, "", stats.Better},
		"an open loop elsewhere": {late(lane), "coordinated omission", Failed, "no open loop has a figure beside rtt-udp-64-pingpong in noisy-lane-express",
			pinned, stats.Worse, "", stats.Better},
		"an open loop of something else": {func(s *results.Session) { s.Metrics[4].Quantity = "other" }, "coordinated omission", Failed,
			"rtt-udp-64-pingpong in quiet-floating-bridge, noisy-floating-bridge", pinned, stats.Worse, "", stats.Better},
		"too short": {func(s *results.Session) {
			s.Runs = slices.DeleteFunc(s.Runs, func(r results.Run) bool { return r.Block > 6 })
		}, "too short", Failed, "no P99 of rtt-udp-64-pingpong in noisy-pinned-bridge", pinned, stats.Inconclusive, "", stats.Inconclusive},
		"client's limit":                 {func(s *results.Session) { check(s, "throughput-tcp-up", pinned, 95) }, "client's CPU", Failed, "throughput-tcp-up in noisy-pinned-bridge: 95.0%", pinned, stats.Inconclusive, "client's CPU", stats.Better},
		"limit of a better":              {func(s *results.Session) { check(s, "throughput-tcp-up", lane, 95) }, "client's CPU", Failed, lane, lane, stats.Better, "at least: client's CPU", stats.Better},
		"baseline's limit":               {func(s *results.Session) { check(s, "throughput-tcp-up", base, 95) }, "client's CPU", Failed, base, lane, stats.Inconclusive, "client's CPU", stats.Inconclusive},
		"within the limit":               {func(s *results.Session) { check(s, "throughput-tcp-up", lane, 80) }, "client's CPU", Kept, "within 90.0%", lane, stats.Better, "", stats.Better},
		"what must not be":               {func(s *results.Session) { unbalanced(s, "throughput-tcp-up", lane) }, "frames lost", Failed, lane + ": 7.00 frames, allowed 0 frames", lane, stats.Inconclusive, "frames lost", stats.Inconclusive},
		"what is not":                    {func(s *results.Session) { unbalanced(s, "throughput-tcp-up", "") }, "frames lost", Kept, "within 0 frames", lane, stats.Better, "", stats.Better},
		"segments of which nobody knows": {func(s *results.Session) { carried(s, lane, 7, nil) }, unaccounted, Failed, "2 of throughput-tcp-up in " + lane, lane, stats.Inconclusive, unaccounted, stats.Inconclusive},
		"segments that a queue had no room for": {func(s *results.Session) { carried(s, lane, 7, map[string]uint64{"eth0 queue": 1}) }, unaccounted, Kept,
			"of 9 of TCP 2 did not come", lane, stats.Better, "", stats.Better},
		"segments that came": {func(s *results.Session) { carried(s, lane, 9, nil) }, unaccounted, Kept, "all 9 of TCP came", lane, stats.Better, "", stats.Better},
		"no frequency":       {nil, "frequency", Unknown, "no cpufreq", pinned, stats.Worse, "", stats.Better},
		"unsteady frequency": {func(s *results.Session) { frequencies(s, pinned, 0.1) }, "frequency", Failed, pinned, pinned, stats.Inconclusive, "frequency", stats.Better},
		"frequencies of two CPUs": {func(s *results.Session) {
			frequencies(s, "noisy-floating-bridge", 0)
			for i, r := range s.Runs {
				s.Runs[i].Witness.CPUs = append(r.Witness.CPUs, results.CPU{ID: 2, Frequency: 4e6})
			}
		}, "frequency", Kept, "within 2%", pinned, stats.Worse, "", stats.Better},
		"steady frequency":   {func(s *results.Session) { frequencies(s, pinned, 0.001) }, "frequency", Kept, "within 2%", pinned, stats.Worse, "", stats.Better},
		"distance not known": {nil, "distance of the CPUs", Unknown, "no run says", pinned, stats.Worse, "", stats.Better},
		"CPUs stay near":     {func(s *results.Session) { distances(s, pinned, 40, nil) }, "distance of the CPUs", Kept, "run of the block", pinned, stats.Worse, "", stats.Better},
		"CPUs are moved": {func(s *results.Session) { distances(s, pinned, 104, nil) }, "distance of the CPUs", Failed,
			"noisy-pinned-bridge (throughput-tcp-up 10 of 10, throughput-tcp-down 10 of 10, ", pinned, stats.Inconclusive, "distance of the CPUs", stats.Better},
		"CPUs of another cache": {func(s *results.Session) { distances(s, pinned, 104, []string{"below another L3"}) }, "distance of the CPUs", Kept,
			"run of the block", pinned, stats.Worse, "", stats.Better},
		"the baseline's CPUs are moved": {func(s *results.Session) { distances(s, base, 104, nil) }, "distance of the CPUs", Failed,
			"noisy-pinned-bridge (throughput-tcp-up 10 of 10, ", pinned, stats.Inconclusive, "distance of the CPUs", stats.Inconclusive},
		"a slow clock": {func(s *results.Session) { s.Environment.Clocksource = "hpet" }, "clock", Failed, "hpet", pinned, stats.Worse, "", stats.Better},
		"drift":        {nil, "order and drift", Kept, "throughput of the baseline: 1", pinned, stats.Worse, "", stats.Better},
		"heat": {func(s *results.Session) { session.RunOf(t, *s, pinned, 3).Witness.CPUs[0].Throttled = 1 }, "heat", Failed,
			pinned + " (1 run)", pinned, stats.Inconclusive, "heat", stats.Better},
		"settings not known": {nil, "confounded", Unknown, "does not say", pinned, stats.Worse, "", stats.Better},
		"the same settings":  {found(map[string]string{}), "confounded", Kept, "1 setting", pinned, stats.Worse, "", stats.Better},
		"another setting": {found(map[string]string{pinned: "powersave"}), "confounded", Failed,
			"governor is powersave in noisy-pinned-bridge and performance in quiet-floating-bridge (block 3)", pinned, stats.Inconclusive, "confounded", stats.Better},
		"another setting for all": {found(map[string]string{"": "powersave"}), "confounded", Kept, "changed governor", pinned, stats.Worse, "", stats.Better},
		"another version": {func(s *results.Session) { versions(t, s, pinned, "throughput-tcp-up") }, "confounded", Failed,
			"version of throughput-tcp-up is 2 in noisy-pinned-bridge and 1 in quiet-floating-bridge (block 3)", pinned, stats.Inconclusive, "confounded", stats.Better},
		"another version of another probe": {func(s *results.Session) { versions(t, s, pinned, "rtt-udp-64-open") }, "confounded", Failed,
			"version of rtt-udp-64-open is 2 in noisy-pinned-bridge", pinned, stats.Worse, "", stats.Better},
		"the same version":   {func(s *results.Session) { versions(t, s, "", "throughput-tcp-up") }, "confounded", Unknown, "does not say", pinned, stats.Worse, "", stats.Better},
		"a rate that falls":  {func(s *results.Session) { trend(s, "throughput-tcp-up", lane, -8, false) }, "second half", Failed, lane + ": -8.00%, allowed 5.00%", lane, stats.Inconclusive, "second half", stats.Inconclusive},
		"a rate that varies": {func(s *results.Session) { trend(s, "throughput-tcp-up", lane, -8, true) }, "second half", Kept, "within 5.00%", lane, stats.Better, "", stats.Better},
		"too few to tell": {func(s *results.Session) {
			trend(s, "throughput-tcp-up", lane, -8, false)
			s.Runs = slices.DeleteFunc(s.Runs, func(r results.Run) bool { return r.Block > 5 })
		}, "second half", Unknown, "too few", lane, stats.Inconclusive, "", stats.Inconclusive},
		"a steady rate":         {func(s *results.Session) { trend(s, "throughput-tcp-up", lane, 3, false) }, "second half", Kept, "within 5.00%", lane, stats.Better, "", stats.Better},
		"idle states not known": {nil, "idle states", Unknown, "no run says", pinned, stats.Worse, "", stats.Better},
		"several at once":       {nil, "several things at once", Failed, "noise, placement, path", pinned, stats.Worse, "", stats.Better},
		"one factor":            {func(s *results.Session) { s.Scenario.Aims.Cell = "noisy-floating-bridge" }, "several things at once", Kept, "one factor", pinned, stats.Worse, "", stats.Better},
		"looked at too early":   {func(s *results.Session) { s.Complete = false }, "looked at before the end", Failed, "66 of 66", lane, stats.Inconclusive, "not complete", stats.Inconclusive},
	} {
		t.Run(name, func(t *testing.T) {
			var s results.Session
			if err := json.Unmarshal(made, &s); err != nil {
				t.Fatal(err)
			}
			if c.change != nil {
				c.change(&s)
			}
			sum := summarize(t, s)
			found := false
			for _, g := range sum.Guards {
				if g.Name == c.guard {
					found = true
					if g.State != c.state || !strings.Contains(g.Text, c.text) {
						t.Errorf("%+v, want %s with %q", g, c.state, c.text)
					}
				}
			}
			if !found {
				t.Fatalf("no guard %q among %+v", c.guard, sum.Guards)
			}
			if f := sum.Cell(c.cell).Figures["throughput"]; f.Verdict != c.want || f.Lowered != c.why {
				t.Errorf("%s: %s (%s), want %s (%s)", c.cell, f.Verdict, f.Lowered, c.want, c.why)
			}
			if f := sum.Cell(lane).Figures["throughput"]; f.Verdict != c.laneVerdic {
				t.Errorf("the lane's verdict is %s, want %s", f.Verdict, c.laneVerdic)
			}
		})
	}
	s := session.Made(t, "standard", 10, session.SixCells())
	s.Environment.Clocksource = "acpi_pm"
	if f := summarize(t, s); f.Cell(lane).Figures[f.PrimaryDistribution().Name].Lowered != "clock" {
		t.Error("a slow clock does not lower the verdict on round trips")
	}
}

// An aim is not reached while a guard failed on either side of it; a better figure at a limit still reaches
// it, and one that does not reach it may do so beyond its limit.
func TestGuardsOpenAims(t *testing.T) {
	made, err := json.Marshal(session.Made(t, "standard", 10, session.SixCells()))
	if err != nil {
		t.Fatal(err)
	}
	const lane, base = "noisy-lane-express", "quiet-floating-bridge"
	for name, c := range map[string]struct {
		change func(*results.Session)
		want   string // the states of the aims on throughput, RTT and its P99.9
		doubt  string // of the last one that is open
	}{
		"clean":                  {func(*results.Session) {}, "reached, reached, reached", ""},
		"a slow clock":           {func(s *results.Session) { s.Environment.Clocksource = "hpet" }, "reached, open, open", "clock"},
		"not complete":           {func(s *results.Session) { s.Complete = false }, "open, open, open", "not complete"},
		"unsteady":               {func(s *results.Session) { frequencies(s, lane, 0.1) }, "open, open, open", "frequency"},
		"another unsteady":       {func(s *results.Session) { frequencies(s, "noisy-pinned-bridge", 0.1) }, "reached, reached, reached", ""},
		"baseline's limit":       {func(s *results.Session) { check(s, "throughput-tcp-up", base, 95) }, "open, reached, reached", "client's CPU"},
		"limit of a better":      {func(s *results.Session) { check(s, "throughput-tcp-up", lane, 95) }, "reached, reached, reached", ""},
		"only closed loops":      {func(s *results.Session) { s.Metrics[4].Loop = results.Closed }, "reached, open, open", "coordinated omission"},
		"an open loop elsewhere": {late(lane), "reached, open, open", "coordinated omission"},
		"too little at its limit": {func(s *results.Session) {
			check(s, "throughput-tcp-up", lane, 95)
			s.Scenario.Aims.Goals[0].Percent = 500
		}, "open, reached, reached", "client's CPU"},
		"too little": {func(s *results.Session) { s.Scenario.Aims.Goals[0].Percent = 500 }, "not reached, reached, reached", ""},
		"a tail that no block shows": {func(s *results.Session) {
			s.Scenario.Aims.Cell = "noisy-pinned-bridge"
			s.Scenario.Aims.Goals[2].Statistic, s.Scenario.Aims.Goals[2].Percent = "p99", 1e6
		}, "not reached, reached, open", ""},
		"quick and a slow clock": {func(s *results.Session) {
			s.Scenario.Mode, s.Environment.Clocksource = "quick", "hpet"
		}, "reached, open, open", "clock"},
	} {
		var s results.Session
		if err := json.Unmarshal(made, &s); err != nil {
			t.Fatal(err)
		}
		c.change(&s)
		var states []string
		doubt := ""
		for _, a := range summarize(t, s).Aims {
			if states = append(states, string(a.State)); a.State == Open {
				doubt = strings.Join(a.Doubts, ", ")
			}
		}
		if got := strings.Join(states, ", "); got != c.want || doubt != c.doubt {
			t.Errorf("%s: %s (%s), want %s (%s)", name, got, doubt, c.want, c.doubt)
		}
	}
}

// wrk prints percentiles of a closed loop without their samples: they miss stalls as others do.
func TestClosedLoopWithoutSamples(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	p99 := results.Metric{Name: "wrk-p99", Quantity: "wrk-p99", Noun: "P99 of wrk", Unit: results.TimeUnit,
		Better: results.Lower, Margin: 0.1, Loop: results.Closed}
	s.Metrics = append(s.Metrics[:3:3], p99)
	for i, r := range s.Runs {
		value := map[string]float64{p99.Name: 1e6}
		if r.Cell == "noisy-lane-express" {
			value[p99.Name] = 1e5
		}
		s.Runs[i].Measured = append(r.Measured[2:4:4], results.Measurement{Name: p99.Name, Values: value})
	}
	sum := summarize(t, s)
	f := sum.Cell("noisy-lane-express").Figures[p99.Name]
	if g := sum.Guards[0]; g.State != Failed || f.Verdict != stats.Inconclusive || f.Lowered != g.Name {
		t.Errorf("%+v: %s (%s)", g, f.Verdict, f.Lowered)
	}
}

// Runs that were overloaded have no figures; those that are left do not speak for the cell.
func TestSurvivors(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	for i, r := range s.Runs {
		for k, m := range r.Measured {
			if r.Cell == "noisy-lane-express" && r.Block > 0 && r.Block < 5 && m.Name == "rtt-udp-64-pingpong" {
				s.Runs[i].Measured[k].NotCarried("overloaded: carried half of it")
			}
		}
	}
	sum := summarize(t, s)
	f := sum.Cell("noisy-lane-express").Figures["rtt-udp-64-pingpong"]
	if f.Ratio.N != 6 || f.Verdict != stats.Inconclusive || sum.Cell("noisy-lane-express").loads["rtt-udp-64-pingpong"].Overloaded != 4 {
		t.Errorf("%d blocks: %s (%s)", f.Ratio.N, f.Verdict, f.Lowered)
	}
	for _, a := range sum.Aims[1:] {
		if a.State != Open || !strings.Contains(a.Found, "without what was not carried in 4 runs") {
			t.Errorf("%+v", a)
		}
	}
}

// found has the runs of block 3 find another setting in the cells named, "" for all.
func found(in map[string]string) func(*results.Session) {
	return func(s *results.Session) {
		s.Environment.Settings = map[string]string{"governor": "performance"}
		for i, r := range s.Runs {
			for cell, value := range in {
				if r.Block == 3 && (cell == "" || cell == r.Cell) {
					s.Runs[i].Changed = map[string]string{"governor": value}
				}
			}
		}
	}
}

// On a busy host what is in no lane is worse than it is by itself: that is no gain of a lane.
func TestProgramsOfOthers(t *testing.T) {
	const laned, base, floating = "noisy-lane-express", "quiet-floating-bridge", "noisy-floating-bridge"
	for name, c := range map[string]struct {
		cell           string // where others run
		last           int    // block
		part           float64
		change         func(*results.Session)
		lane, floating stats.Verdict
		aim            State
		state          GuardState
	}{
		"a quiet host":     {base, 10, 0.04, nil, stats.Better, stats.Worse, Reached, Kept},
		"now and then":     {base, 1, 0.9, nil, stats.Better, stats.Worse, Reached, Kept},
		"a busy baseline":  {base, 2, 0.06, nil, stats.Inconclusive, stats.Worse, Open, Failed},
		"a busy lane":      {laned, 10, 1.5, nil, stats.Better, stats.Worse, Open, Failed},
		"beside noise":     {floating, 10, 1.5, nil, stats.Better, stats.Inconclusive, Reached, Failed},
		"the noise itself": {floating, 10, 0.9, nil, stats.Better, stats.Worse, Reached, Kept},
		"commands of the scenario": {base, 10, 0.9, func(s *results.Session) { s.Cells[0].Commands = true }, stats.Better, stats.Worse,
			Reached, Kept},
		"sampled": {base, 10, 0.9, func(s *results.Session) {
			for i := range s.Runs {
				s.Runs[i].Witness.Sources = []results.Source{{CPU: 1, Kind: results.Task, AtMost: new(results.Nanoseconds(1))}}
			}
		}, stats.Better, stats.Worse, Reached, Unknown},
	} {
		s := session.Made(t, "standard", 10, session.SixCells())
		for i, r := range s.Runs {
			w := &s.Runs[i].Witness
			if w.Neighbours.CPUTime > 0 {
				w.Neighbours.CPUTime = w.Window // one CPU of three
			}
			if r.Cell == c.cell && r.Block <= c.last {
				k := slices.IndexFunc(s.Cells, func(o results.Cell) bool { return o.Name == r.Cell })
				took := results.Nanoseconds(c.part * float64(w.Window) * float64(s.Cells[k].Application.Len()))
				if c.cell == floating {
					took = results.Nanoseconds(c.part * float64(w.Window))
				}
				w.Sources = append(w.Sources, results.Source{CPU: 1, Kind: results.Task, Name: "cc1", Total: &took},
					results.Source{CPU: 0, Kind: results.Task, Name: "elsewhere", Total: &took})
			}
		}
		if c.change != nil {
			c.change(&s)
		}
		sum := summarize(t, s)
		own, other := sum.Cell(laned).Figures["throughput"], sum.Cell(floating).Figures["throughput"]
		k := slices.IndexFunc(sum.Guards, func(g Guard) bool { return g.Name == "programs of others" })
		if g := sum.Guards[k]; own.Verdict != c.lane || other.Verdict != c.floating || sum.Aims[0].State != c.aim || g.State != c.state {
			t.Errorf("%s: lane %s, floating %s, aim %s, %+v", name, own.Verdict, other.Verdict, sum.Aims[0].State, g)
		}
	}
}

// Noise that keeps CPUs awake makes answers faster: that is no gain of the cell. What a lane holds in its
// quiet cell too is one.
func TestIdleStates(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	sleeps := func(cells ...string) {
		for i, r := range s.Runs {
			s.Runs[i].Witness.CPUs[0].IdleExits, s.Runs[i].Witness.CPUs[0].IdleExit = 1000, 1_000_000 // a microsecond each
			if slices.Contains(cells, r.Cell) {
				s.Runs[i].Witness.CPUs[0].IdleExit = 85_000_000
			}
		}
	}
	rtt := func(cell string) (stats.Verdict, string) {
		sum := summarize(t, s)
		f := sum.Cell(cell).Figures["rtt-udp-64-pingpong"]
		return f.Verdict, f.Lowered
	}
	sleeps("quiet-floating-bridge", "quiet-pinned-bridge")
	if v, why := rtt("noisy-floating-bridge"); v != stats.Inconclusive || why != "idle states" {
		t.Errorf("neighbours keep its CPUs awake: %s (%s)", v, why)
	}
	if v, why := rtt("noisy-lane-express"); v != stats.Better || why != "" {
		t.Errorf("its lane keeps its CPUs awake: %s (%s)", v, why)
	}
	sleeps()
	if v, why := rtt("noisy-floating-bridge"); v != stats.Better || why != "" {
		t.Errorf("no CPU sleeps deeply: %s (%s)", v, why)
	}
}

// Blocks in which nothing was carried have no ratio; those that are left do not speak for the cell.
func TestZeros(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	for block := range 3 {
		for _, m := range session.RunOf(t, s, "noisy-lane-express", 1+block).Measured {
			for name := range m.Values {
				m.Values[name] = 0
			}
		}
	}
	sum := summarize(t, s)
	f := sum.Cell("noisy-lane-express").Figures["throughput"]
	if f.Ratio.N != 7 || f.Verdict != stats.Inconclusive || f.Lowered != "left out" || sum.Aims[0].State != Open {
		t.Errorf("%d blocks: %s (%s), aim %s", f.Ratio.N, f.Verdict, f.Lowered, sum.Aims[0].State)
	}
	if k := slices.IndexFunc(sum.Guards, func(g Guard) bool { return g.Name == "left out" }); k < 0 ||
		!strings.Contains(sum.Guards[k].Text, "no ratio, for 0 or lost on both sides: throughput in 3 blocks of noisy-lane-express") {
		t.Errorf("%+v", sum.Guards)
	}
}

// distances lets a cache line take 24 ns in all cells but one, whose CPUs the kernel may place otherwise.
func distances(s *results.Session, cell string, took results.Nanoseconds, apart []string) {
	for i, c := range s.Cells {
		if c.Name == cell {
			s.Cells[i].Apart = apart
		}
	}
	for _, r := range s.Runs {
		line := results.CacheLine{Looks: 1000, Median: 24}
		if r.Cell == cell {
			line.Median = took
		}
		for k := range r.Measured {
			r.Measured[k].CacheLine = &line
		}
	}
}

// frequencies gives the CPUs of a cell's application a frequency that varies from run to run.
func frequencies(s *results.Session, cell string, by float64) {
	for i, r := range s.Runs {
		for k, cpu := range r.Witness.CPUs {
			if r.Cell == cell && cpu.ID == 1 {
				s.Runs[i].Witness.CPUs[k].Frequency = uint64(3e6 * (1 + by*float64(i%2)))
			}
		}
	}
}
