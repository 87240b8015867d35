package figures

import (
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
	"isolane.dev/isolane/test/session"
)

// behind makes the client of a probe late in runs of a cell up to a block, by so much.
func behind(t *testing.T, s *results.Session, cell, probe string, last int, by time.Duration) {
	t.Helper()
	lag := results.NewHistogram()
	if err := lag.RecordValues(int64(by), 4000); err != nil {
		t.Fatal(err)
	}
	packed, err := results.Encode(lag)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range s.Runs {
		for k := range r.Measured {
			m := &s.Runs[i].Measured[k]
			if r.Cell == cell && m.Name == probe && r.Block <= last {
				m.ClientLate("the client could not keep up: send lag P99.9 2 µs, latency P99 10 µs")
				m.Window = results.Nanoseconds(time.Second)
				if one, is := m.Samples[probe]; is {
					one.Lag = packed
					m.Samples[probe] = one
				}
			}
		}
	}
}

// A late client makes latencies longer, so what it finds is an upper bound: enough for better, and for
// nothing else.
func TestLateClient(t *testing.T) {
	const ping, laned, pinned, base = "rtt-udp-64-pingpong", "noisy-lane-express", "noisy-pinned-bridge", "quiet-floating-bridge"
	for name, c := range map[string]struct {
		cell    string // with the late client
		blocks  int
		by      time.Duration
		p50     string // of the lane
		n       int    // blocks with a ratio
		percent string // of the baseline
		want    stats.Verdict
		lowered string
		aims    string
		void    int // measurements
	}{
		"in time":                     {laned, 0, 0, "7.81 µs", 10, "35.8%", stats.Better, "", "reached, reached", 0},
		"late":                        {laned, 10, 2 * time.Microsecond, "≤ 9.81 µs", 10, "≤ 45.1%", stats.Better, "at least: late client", "reached, reached", 0},
		"late in three blocks":        {laned, 3, 2 * time.Microsecond, "≤ 8.44 µs", 10, "≤ 38.6%", stats.Better, "at least: late client", "reached, reached", 0},
		"so late that it is no bound": {laned, 10, 20 * time.Millisecond, "–", 0, "–", "", "", "no figure, no figure", 10},
		"late elsewhere":              {pinned, 10, 2 * time.Microsecond, "7.81 µs", 10, "35.8%", stats.Better, "", "reached, reached", 0},
		"late in the baseline":        {base, 10, 2 * time.Microsecond, "7.81 µs", 10, "≥ 32.9%", stats.Inconclusive, "late client", "open, open", 0},
		"late by more than the aim": {laned, 10, 200 * time.Microsecond, "≤ 208 µs", 10, "≤ 954%", stats.Inconclusive, "late client",
			"open, open", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := session.Made(t, "standard", 10, session.SixCells())
			for i := range s.Metrics {
				if s.Metrics[i].Sampled {
					s.Metrics[i].Loop = results.Open
				}
			}
			behind(t, &s, c.cell, ping, c.blocks, c.by)
			sum := summarize(t, s)
			m, f := *sum.Metric(ping), sum.Cell(laned).Figure(*sum.Metric(ping))
			if p50, percent := f.Shown(m), sum.Estimate(*sum.Cell(laned), m); p50 != c.p50 || percent != c.percent {
				t.Errorf("P50 %s, %s", p50, percent)
			}
			if f.Verdict != c.want || f.Lowered != c.lowered || f.Ratio.N != c.n {
				t.Errorf("%s (%s), %d blocks", f.Verdict, f.Lowered, f.Ratio.N)
			}
			if states := string(sum.Aims[1].State + ", " + sum.Aims[2].State); states != c.aims {
				t.Errorf("aims: %s", states)
			}
			if sum.VoidValues != c.void || c.void == 0 && sum.Late != c.blocks {
				t.Errorf("%d void, %d late", sum.VoidValues, sum.Late)
			}
		})
	}
}

// What is worse may be so by the late client alone.
func TestLateIsNotWorse(t *testing.T) {
	const ping, worse, base = "rtt-udp-64-pingpong", "quiet-floating-bridge", "noisy-lane-express"
	for last, want := range map[int]stats.Verdict{0: stats.Worse, 1: stats.Inconclusive} {
		s := session.Made(t, "standard", 10, session.SixCells())
		for i, c := range s.Cells {
			s.Cells[i].Baseline = c.Name == base
		}
		for i := range s.Metrics {
			if s.Metrics[i].Sampled {
				s.Metrics[i].Loop = results.Open
			}
		}
		behind(t, &s, worse, ping, last, time.Microsecond)
		sum := summarize(t, s)
		if f := sum.Cell(worse).Figures[ping]; f.Verdict != want {
			t.Errorf("late in %d blocks: %s (%s), want %s", last, f.Verdict, f.Lowered, want)
		}
	}
}

// Of what is carried a late client gives a lower bound.
func TestLateRates(t *testing.T) {
	const open, rate = "rtt-udp-64-open", "throughput-tcp-up"
	s := session.Made(t, "standard", 10, session.SixCells())
	for i, r := range s.Runs { // the open loop says what was carried
		values := map[string]map[string]float64{}
		for k, m := range r.Measured {
			if values[m.Name] = m.Values; m.Name == rate {
				s.Runs[i].Measured[k].Values = nil
			}
		}
		for k, m := range r.Measured {
			if m.Name == open {
				s.Runs[i].Measured[k].Values = values[rate]
			}
		}
	}
	behind(t, &s, "noisy-lane-express", open, 10, 0)
	sum := summarize(t, s)
	for _, name := range []string{"throughput-tcp-up", "throughput"} { // and of the mean that it is a part of
		m := *sum.Metric(name)
		f := sum.Cell("noisy-lane-express").Figure(m)
		if !strings.HasPrefix(f.Shown(m), "≥ ") || f.Lowered != "at least: late client" {
			t.Errorf("%s: %s, %s (%s)", name, f.Shown(m), f.Verdict, f.Lowered)
		}
		for _, b := range f.Blocks {
			if !b.Late {
				t.Errorf("%s of block %d is told as if it were no bound", name, b.Block)
			}
		}
	}
}

// What must not be at all is seen in runs that are void for something else.
func TestForbiddenInVoid(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	unbalanced(&s, "throughput-tcp-up", "noisy-lane-express")
	for i := range s.Runs {
		for k, m := range s.Runs[i].Measured {
			if m.Values["unnamed"] > 0 {
				s.Runs[i].Measured[k].NotCarried("overloaded")
			}
		}
	}
	sum := summarize(t, s)
	if f := sum.Cell("noisy-lane-express").Figures["throughput-tcp-up"]; f.Verdict != stats.Inconclusive {
		t.Errorf("%s (%s)", f.Verdict, f.Lowered)
	}
}

// A bound of an objective is held by upper bounds, and not missed by them.
func TestLateObjective(t *testing.T) {
	for name, c := range map[string]struct {
		o    time.Duration
		last int
		want lane.Verdict
	}{
		"held":                     {30 * time.Microsecond, 10, lane.Held},
		"perhaps missed":           {10 * time.Microsecond, 10, lane.Unproven},
		"missed whatever is added": {10 * time.Microsecond, 1, lane.Missed},
	} {
		s := session.Proved(t, "standard", 10, within("p50", c.o))
		for _, cell := range s.Cells {
			for _, probe := range []string{"rtt-udp-64-pingpong", "rtt-udp-64-open"} {
				behind(t, &s, cell.Name, probe, c.last, time.Microsecond)
			}
		}
		sum := summarize(t, s)
		if j := sum.Objective[0]; j.Verdict != c.want {
			t.Errorf("%s: %s", name, j)
		}
	}
}
