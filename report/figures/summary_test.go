package figures

import (
	"math"
	"strings"
	"testing"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
	"isolane.dev/isolane/test/session"
)

// lose says that in the blocks up to the last one some of a cell's round trips did not come back.
func lose(s *results.Session, cell string, last int, n uint64) {
	for i, r := range s.Runs {
		for k, m := range r.Measured {
			for name, samples := range m.Samples {
				if r.Cell == cell && r.Block <= last {
					samples.Lost = n
					s.Runs[i].Measured[k].Samples[name] = samples
				}
			}
		}
	}
}

// What was lost took longer than all else, in percentiles, verdicts and aims: 0.9% of what was asked hides no
// tail, and blocks of which the median was lost are worse than any number.
func TestLost(t *testing.T) {
	const ping, lane, base = "rtt-udp-64-pingpong", "noisy-lane-express", "quiet-floating-bridge"
	for name, c := range map[string]struct {
		cell      string
		blocks    int
		lost      uint64
		p50, p999 string // of the lane
		verdict   stats.Verdict
		infinite  bool   // the ratio
		aims      string // of RTT P50 and P99.9
	}{
		"nothing":                {lane, 0, 0, "7.81 µs", "13.6 µs", stats.Better, false, "reached, reached"},
		"0.9%":                   {lane, 10, 36, "7.82 µs", "lost", stats.Better, false, "reached, not reached"},
		"0.9% of the baseline":   {base, 10, 36, "7.81 µs", "13.6 µs", stats.Better, false, "reached, reached"},
		"0.2% in four blocks":    {lane, 4, 8, "7.81 µs", "20.4 µs", stats.Better, false, "reached, open"},
		"most in three blocks":   {lane, 3, 5000, "8.33 µs", "lost", stats.Inconclusive, false, "open, not reached"},
		"most":                   {lane, 10, 5000, "lost", "lost", stats.Worse, true, "not reached, not reached"},
		"most of the baseline's": {base, 10, 5000, "7.81 µs", "13.6 µs", stats.Better, false, "reached, reached"},
	} {
		t.Run(name, func(t *testing.T) {
			s := session.Made(t, "standard", 10, session.SixCells())
			lose(&s, c.cell, c.blocks, c.lost)
			sum := summarize(t, s)
			m, f := *sum.Metric(ping), sum.Cell(lane).Figures[ping]
			p50, p999 := f.Shown(m), m.Unit.Full(f.Merged.Quantile(0.999))
			if p50 != c.p50 || p999 != c.p999 {
				t.Errorf("P50 %s, P99.9 %s", p50, p999)
			}
			if f.Verdict != c.verdict || f.Ratio.N != 10 || math.IsNaN(f.Ratio.Estimate) || math.IsInf(f.Ratio.Estimate, 1) != c.infinite {
				t.Errorf("%s (%s), %+v", f.Verdict, f.Lowered, f.Ratio)
			}
			if states := string(sum.Aims[1].State + ", " + sum.Aims[2].State); states != c.aims || strings.Contains(sum.Aims[2].Found, "NaN") {
				t.Errorf("aims %s: %+v", states, sum.Aims[1:])
			}
		})
	}
}
