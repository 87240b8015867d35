package figures

import (
	"strings"
	"testing"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
	"isolane.dev/isolane/test/session"
)

// spoil makes the runs of a cell up to a block void, or one of their measurements.
func spoil(s *results.Session, cell string, last int, why string, probe string) {
	for i, r := range s.Runs {
		if r.Cell != cell || r.Block == 0 || r.Block > last {
			continue
		}
		if probe == "" {
			s.Runs[i].Void = []string{why}
			continue
		}
		for k, m := range r.Measured {
			switch {
			case m.Name != probe:
			case why == "overloaded":
				s.Runs[i].Measured[k].NotCarried(why)
			default:
				s.Runs[i].Measured[k].Void = []string{why}
			}
		}
	}
}

// Runs that are void for what may be the cell's own doing are left out of its figures, which flatters them.
func TestVoidRuns(t *testing.T) {
	const laned, base, up, intruders = "noisy-lane-express", "quiet-floating-bridge", "throughput-tcp-up", "intruders ran 2ms on the lane's CPUs"
	for name, c := range map[string]struct {
		cell, why, probe string
		last             int
		lane, floating   stats.Verdict // the throughput of noisy cells, which is better and worse
		aim              State
		text             string
	}{
		"none":                    {laned, "", "", 0, stats.Better, stats.Worse, Reached, ""},
		"one of twelve":           {laned, intruders, "", 1, stats.Better, stats.Worse, Reached, ""},
		"two of them":             {laned, intruders, "", 2, stats.Inconclusive, stats.Worse, Open, "2 of 12 runs void (" + intruders + ")"},
		"steal":                   {laned, "steal 8.1% on CPU 0, budget 5%", "", 3, stats.Better, stats.Worse, Reached, ""},
		"a probe failed":          {laned, up + ": it crashed", "", 3, stats.Inconclusive, stats.Worse, Open, "3 of 12 runs void (" + up + ": it crashed)"},
		"void measurements":       {laned, "a window of 0.8 s", up, 2, stats.Inconclusive, stats.Worse, Open, "2 of 12 runs void (a window of 0.8 s)"},
		"nothing was carried":     {laned, "overloaded", up, 1, stats.Inconclusive, stats.Worse, Open, "more than 1% in 1 run"},
		"of the baseline":         {base, intruders, "", 2, stats.Better, stats.Inconclusive, Reached, "2 of 12 runs void"},
		"of what is worse anyhow": {"noisy-floating-bridge", intruders, "", 2, stats.Better, stats.Worse, Reached, "2 of 12 runs void"},
	} {
		t.Run(name, func(t *testing.T) {
			s := session.Made(t, "standard", 12, session.SixCells())
			spoil(&s, c.cell, c.last, c.why, c.probe)
			sum := summarize(t, s)
			own, other := sum.Cell(laned).Figures["throughput"], sum.Cell("noisy-floating-bridge").Figures["throughput"]
			if own.Verdict != c.lane || other.Verdict != c.floating || sum.Aims[0].State != c.aim {
				t.Errorf("lane %s (%s), floating %s (%s), aim %s", own.Verdict, own.Lowered, other.Verdict, other.Lowered, sum.Aims[0].State)
			}
			text := ""
			for _, g := range sum.Guards {
				if g.Name == leftOut {
					text = g.Text
				}
			}
			if !strings.Contains(text, c.text) || (c.text == "") != (text == "") {
				t.Errorf("guard %q, want %q", text, c.text)
			}
		})
	}
}

// An objective is not held by what is left of a lane's runs.
func TestVoidRunsOfAnObjective(t *testing.T) {
	for name, c := range map[string]struct {
		bound  lane.Objective
		change func(*results.Session)
		want   string
	}{
		"intruders":  {within("p99", 1e9), func(s *results.Session) { spoil(s, "noisy-lane-bridge", 2, "intruders", "") }, "2 of 10 runs void (intruders)"},
		"one in ten": {within("p99", 1e9), func(s *results.Session) { spoil(s, "noisy-lane-bridge", 1, "intruders", "") }, ""},
		"a rate of nothing": {atLeast(20e9), func(s *results.Session) {
			spoil(s, "noisy-lane-bridge", 1, "overloaded", "throughput-tcp-up")
		}, "not carried in 1 run"},
	} {
		s := session.Proved(t, "standard", 10, c.bound)
		c.change(&s)
		j := summarize(t, s).Objective[0]
		if want := map[bool]lane.Verdict{true: lane.Held, false: lane.Unproven}[c.want == ""]; j.Verdict != want || !strings.Contains(j.Reason, c.want) {
			t.Errorf("%s: %s, want %s %q", name, j, want, c.want)
		}
	}
}
