package figures

import (
	"math"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
	"isolane.dev/isolane/test/session"
)

func TestVerdicts(t *testing.T) {
	sum := summarize(t, session.Made(t, "standard", 10, session.SixCells()))
	for name, want := range map[string][2]stats.Verdict{
		"quiet-floating-bridge": {"", ""},
		"noisy-floating-bridge": {stats.Worse, stats.Better},
		"noisy-lane-express":    {stats.Better, stats.Better},
	} {
		c := sum.Cell(name)
		if got := [2]stats.Verdict{c.Figures["throughput"].Verdict, c.Figures[sum.PrimaryDistribution().Name].Verdict}; got != want {
			t.Errorf("%s: throughput and RTT %v, want %v", name, got, want)
		}
	}
	for _, a := range sum.Aims {
		if a.State != Reached {
			t.Errorf("%s: %s, want %s", a.Text, a.State, Reached)
		}
	}
	f := sum.Cell("noisy-lane-express").Figures["throughput"]
	e := math.Sqrt(64*65) / math.Sqrt(22*62)
	if math.Abs(f.Ratio.Estimate/e-1) > 0.03 || f.Ratio.Confidence < 0.95 {
		t.Errorf("ratio %v, made up with %.3f", f.Ratio.Interval, e)
	}
	// The family is ten comparisons, and the least p of ten blocks is 2/1024.
	if want := 10 * 2.0 / 1024; math.Abs(f.Ratio.Adjusted-want) > 1e-9 {
		t.Errorf("adjusted p = %v, want %v", f.Ratio.Adjusted, want)
	}
}

// Ten blocks are enough for the ten figures of six cells, seven are not: the message says how many are, 2/2^9
// ≤ 0.05/10.
func TestUndecided(t *testing.T) {
	sum := summarize(t, session.Made(t, "standard", 10, session.SixCells()))
	if got := sum.Undecided(); strings.Contains(got, "noisy-lane") {
		t.Errorf("%q", got)
	}
	sum = summarize(t, session.Made(t, "standard", 7, session.SixCells()))
	if got, want := sum.Undecided(), "8 verdicts on the primary figures: inconclusive. Spread as it is, a verdict needs about 9 blocks for "; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	sum.Cell("noisy-lane-express").Figures["throughput"].Lowered = "clock"
	if f := sum.Cell("noisy-lane-express").Figures["throughput"]; f.Undecided() {
		t.Error("more blocks would not help against a slow clock")
	}
	sum = summarize(t, session.Made(t, "quick", 7, session.SixCells()))
	if got := sum.Undecided(); got != "" {
		t.Errorf("a quick session: %q", got)
	}
}

// A cell of which twice as much was asked is no better by what was asked, nor worse by what that takes: it has no
// verdict, and takes no part in the correction of the others. How much closed loops sent follows from the answers.
func TestAnotherLoad(t *testing.T) {
	const other, lane = "noisy-floating-bridge", "noisy-lane-express"
	s := session.Made(t, "standard", 10, session.SixCells())
	plain := summarize(t, s)
	for i, r := range s.Runs {
		for k, m := range r.Measured {
			for name, samples := range m.Samples {
				if r.Cell == other && name == "rtt-udp-64-open" || r.Cell == lane && name == "rtt-udp-64-pingpong" {
					samples.Wanted *= 2
					s.Runs[i].Measured[k].Samples[name] = samples
				}
			}
		}
	}
	sum := summarize(t, s)
	for _, m := range sum.Ordered() {
		f := sum.Cell(other).Figures[m.Name]
		if f.Verdict != "" || f.Lowered != otherLoad || !math.IsNaN(f.Ratio.Adjusted) || !f.Ratio.Known() {
			t.Errorf("%s: %s (%s), adjusted to %g", m.Name, f.Verdict, f.Lowered, f.Ratio.Adjusted)
		}
	}
	was, is := plain.Cell(lane).Figures["throughput"], sum.Cell(lane).Figures["throughput"]
	if is.Verdict != stats.Better || !(is.Ratio.Adjusted < was.Ratio.Adjusted) {
		t.Errorf("%s, of a family of fewer adjusted to %g, before to %g", is.Verdict, is.Ratio.Adjusted, was.Ratio.Adjusted)
	}
	s.Scenario.Aims.Cell = other
	s.Scenario.Aims.Goals = []results.Goal{{Metric: "rtt-udp-64-pingpong", Percent: 50}}
	if a := summarize(t, s).Aims[0]; a.State != Open || !strings.Contains(a.Found, "but at another load") {
		t.Errorf("%+v", a)
	}
}

// An aim may be against another cell than the baseline; against one that was not measured there is none.
func TestAimAgainstAnotherCell(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	s.Scenario.Aims.Goals = nil
	for _, other := range []string{"", "quiet-pinned-bridge", "quiet-lane-express", "not-measured"} {
		s.Scenario.Aims.Goals = append(s.Scenario.Aims.Goals, results.Goal{Metric: "throughput", Percent: 160, Against: other})
	}
	s.Scenario.Aims.Goals = append(s.Scenario.Aims.Goals, results.Goal{Metric: "throughput", Percent: 111}) // no 111.00000000000001
	var got []string
	for _, a := range summarize(t, s).Aims {
		got = append(got, a.Goal+": "+string(a.State))
	}
	want := []string{"at least 160%: reached", "at least 160% of quiet-pinned-bridge: reached",
		"at least 160% of quiet-lane-express: not reached", "at least 111%: reached"}
	if !slices.Equal(got, want) {
		t.Errorf("aims %q, want %q", got, want)
	}
}

func TestPairsOnlyTheSameBlock(t *testing.T) {
	s := session.Made(t, "quick", 4, session.SixCells())
	session.RunOf(t, s, "quiet-floating-bridge", 3).Void = []string{"made void"}
	for i := range session.RunOf(t, s, "noisy-lane-express", 1).Measured {
		if m := &session.RunOf(t, s, "noisy-lane-express", 1).Measured[i]; m.Name == "throughput-tcp-up" {
			m.Void = []string{"nothing was received"}
		}
	}
	sum := summarize(t, s)
	c := sum.Cell("noisy-lane-express")
	blocks := func(c Comparison) (all []int) {
		for _, r := range c.Blocks {
			all = append(all, r.Block)
		}
		return all
	}
	for name, want := range map[string][]int{"throughput": {2, 4}, "throughput-tcp-up": {2, 4},
		"throughput-tcp-down": {1, 2, 4}, sum.PrimaryDistribution().Name: {1, 2, 4}} {
		if got := blocks(c.Figures[name].Ratio); !slices.Equal(got, want) {
			t.Errorf("%s is compared in blocks %v, want %v", name, got, want)
		}
	}
	if n := len(c.Figures[sum.PrimaryDistribution().Name].Blocks); n != 4 {
		t.Errorf("%d runs have an RTT, want all 4: the baseline's void run takes nothing from it", n)
	}
	ratio := c.Figures[sum.PrimaryDistribution().Name].Ratio
	if _, _, interval := ratio.Spread(); interval || ratio.N != 3 {
		t.Errorf("an interval of %d blocks", ratio.N)
	}
}

func summarize(t *testing.T, s results.Session) Summary {
	t.Helper()
	sum, err := Summarize(s)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
