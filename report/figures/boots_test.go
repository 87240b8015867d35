package figures

import (
	"slices"
	"strings"
	"testing"

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
	if f := sum.Cell("noisy-lane-express").Figures["throughput"]; f.Verdict != stats.Inconclusive || f.Lowered != "another boot" {
		t.Errorf("another boot: %s (%s)", f.Verdict, f.Lowered)
	}
	if f := sum.Cell("noisy-pinned-bridge").Figures["throughput"]; f.Verdict != stats.Worse {
		t.Errorf("the same boot: %s (%s)", f.Verdict, f.Lowered)
	}
	if note := sum.BootNote(); !strings.HasPrefix(note, "path is changed by a boot (bridge 1 boot, express 1 boot): ") {
		t.Errorf("note %q", note)
	}
	text := ""
	for _, g := range sum.Guards {
		if g.Name == "one boot a level" && g.State == Failed {
			text = g.Text
		}
	}
	if text != "quiet-lane-express, noisy-lane-express: of other boots than the baseline; between the boots also differ: idle governor (none, then teo)" {
		t.Errorf("guard %q", text)
	}
	for _, a := range sum.Aims {
		if a.State == Reached {
			t.Errorf("reached in another boot: %+v", a)
		}
	}
	if lines := sum.BootLines(); len(lines) != 2 || !strings.HasSuffix(lines[1], "command line isolcpus=1") {
		t.Errorf("%q", lines)
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
