package figures

import (
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/report/evidence"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
	"isolane.dev/isolane/test/session"
)

// rebooted is a session whose paths were measured in boots of their own.
func rebooted(t *testing.T) results.Session {
	t.Helper()
	s := session.Made(t, "standard", 10, session.SixCells())
	s.Factors[2].PerBoot = true
	second := s.Environment
	second.BootID, second.Cmdline, second.IdleGov = "2", "isolcpus=1", "teo"
	s.Boots = []results.Environment{s.Environment, second}
	for i, r := range s.Runs {
		if strings.HasSuffix(r.Cell, "express") {
			s.Runs[i].Boot = 1
		}
	}
	return s
}

// A difference between two boots is not called shown, and is said at the figures; within a boot it is.
func TestAnotherBoot(t *testing.T) {
	sum := summarize(t, rebooted(t))
	if f := sum.Cell("noisy-lane-express").Figures["throughput"]; f.Verdict != stats.Inconclusive || f.Lowered != "few boots" || f.Ratio.N != 1 {
		t.Errorf("another boot: %s (%s) of %d", f.Verdict, f.Lowered, f.Ratio.N)
	}
	// Of the ten figures one boot each is of other boots: 2 of 924 ways to have six above six are at most
	// 0.05/10.
	if want := "a verdict needs about 6 boots for 4 figures."; !strings.HasSuffix(sum.Undecided(), want) {
		t.Errorf("%q, want %q", sum.Undecided(), want)
	}
	if f := sum.Cell("noisy-pinned-bridge").Figures["throughput"]; f.Verdict != stats.Worse {
		t.Errorf("the same boot: %s (%s)", f.Verdict, f.Lowered)
	}
	if note := sum.BootNote(); !strings.HasPrefix(note, "path is changed by a boot (bridge 1 boot, express 1 boot): ") {
		t.Errorf("note %q", note)
	}
	text := ""
	for _, g := range sum.Guards {
		if g.Name == "few boots" && g.State == Failed {
			text = g.Text
		}
	}
	if text != "quiet-lane-express, noisy-lane-express: of other boots than the baseline, and a verdict needs 4 boots a level at least; between the boots also differ: idle governor (none, then teo)" {
		t.Errorf("guard %q", text)
	}
	for _, a := range sum.Aims {
		if a.State == Reached {
			t.Errorf("reached in another boot: %+v", a)
		}
	}
	if lines := evidence.BootLines(sum.Session); len(lines) != 2 || !strings.HasSuffix(lines[1], "command line isolcpus=1") {
		t.Errorf("%q", lines)
	}
}

// Over some boots of each level a difference is shown, where it is larger than what a boot does by itself.
func TestSeveralBoots(t *testing.T) {
	for _, c := range []struct {
		effect  float64 // of each other boot on throughput
		verdict stats.Verdict
		aim     State
		apart   string
	}{{1, stats.Better, Reached, ""}, {20, stats.Inconclusive, NotReached, "; boots of one level are up to "}} {
		s := session.Made(t, "standard", 12, session.SixCells())
		s.Factors[2].PerBoot, s.Scenario.Boots = true, 6
		s.Scenario.Aims = &results.Aims{Cell: "noisy-lane-express", Goals: []results.Goal{{Metric: "throughput", Percent: 120}}}
		s.Boots = slices.Repeat([]results.Environment{s.Environment}, 12)
		for i := range s.Runs {
			r := &s.Runs[i]
			share := s.Scenario.Share(r.Block)
			r.Boot = 2 * share
			if !strings.HasSuffix(r.Cell, "express") {
				continue
			}
			r.Boot++
			for _, m := range r.Measured {
				for name := range m.Values {
					if share%2 == 1 {
						m.Values[name] /= c.effect
					}
				}
			}
		}
		sum := summarize(t, s)
		f := sum.Cell("noisy-lane-express").Figures["throughput"]
		if f.Verdict != c.verdict || f.Ratio.N != 6 || !f.Ratio.Boots || !strings.HasSuffix(f.Ratio.SpreadWords(), " (6 boots)") {
			t.Errorf("effect %g: %s (%s), %s", c.effect, f.Verdict, f.Lowered, f.Ratio.SpreadWords())
		}
		if f := sum.Cell("noisy-floating-bridge").Figures["throughput"]; f.Ratio.N != 12 || f.Ratio.Boots {
			t.Errorf("within a boot: %d", f.Ratio.N)
		}
		if sum.Aims[0].State != c.aim || !sum.Aims[0].Firm {
			t.Errorf("effect %g: aim %+v", c.effect, sum.Aims[0])
		}
		if !slices.ContainsFunc(sum.Guards, func(g Guard) bool {
			return g.Name == "boots" && g.State == Kept && strings.Contains(g.Text, "6 of each level, in turns"+c.apart)
		}) {
			t.Errorf("effect %g: guards %+v", c.effect, sum.Guards)
		}
	}
}

// A session that was interrupted by a reboot compares within its blocks, which are of one boot each.
func TestRebootWithin(t *testing.T) {
	s := rebooted(t)
	s.Factors[2].PerBoot = false
	for i, r := range s.Runs {
		s.Runs[i].Boot = min(1, r.Block/5)
	}
	sum := summarize(t, s)
	if f := sum.Cell("noisy-lane-express").Figures["throughput"]; f.Verdict != stats.Better || sum.BootNote() != "" {
		t.Errorf("%s (%s), %q", f.Verdict, f.Lowered, sum.BootNote())
	}
	if !slices.ContainsFunc(sum.Guards, func(g Guard) bool {
		return g == Guard{"reboot", Failed, "since the machine was rebooted within the session differ: idle governor (none, then teo)"}
	}) {
		t.Errorf("guards %+v", sum.Guards)
	}
	s.Boots[1].Clocksource = "hpet"
	sum = summarize(t, s)
	if f := sum.Cell("noisy-lane-express").Figures[sum.PrimaryDistribution().Name]; f.Lowered != "clock" {
		t.Error("a slow clock of the second boot does not lower the verdict on round trips")
	}
}

// What a session waits for is said in the place of an interruption.
func TestWaits(t *testing.T) {
	s := rebooted(t)
	s.Complete, s.Awaits = false, []results.Await{{Cells: []string{"quiet-lane-express"}, Boot: "isolcpus=1 on the kernel's command line"}}
	sum := summarize(t, s)
	want := "Waits for another boot (1 cell for isolcpus=1 on the kernel's command line): 66 of 66 runs were made. What follows is of those."
	if got := sum.Unfinished(); got != want {
		t.Errorf("got %q", got)
	}
}

// A reader learns what ended a session.
func TestUnfinished(t *testing.T) {
	s := rebooted(t)
	s.Complete = false
	for want, stop := range map[string]*results.Stop{
		"CUT OFF (it was ended without a word": nil,
		"INTERRUPTED (a signal): 66 of 66":     {Interrupted: true, Why: "a signal"},
		"FAILED (no space left): 66 of 66":     {Why: "no space left"},
	} {
		s.Stopped, s.Awaits = stop, nil
		sum := summarize(t, s)
		if got := sum.Unfinished(); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	s.Stopped, s.Awaits = &results.Stop{Why: "no space left"}, []results.Await{{Cells: []string{"quiet-lane-express"}, Boot: "another"}}
	if sum := summarize(t, s); !strings.HasPrefix(sum.Unfinished(), "FAILED") {
		t.Errorf("it failed before it came to wait: %q", sum.Unfinished())
	}
}
