package compare

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
	"isolane.dev/isolane/test/session"
)

// later is a session like another, of the next day, in which a cell's rates and times are so many times as high.
func later(t *testing.T, cell string, factor float64) results.Session {
	t.Helper()
	s := session.Made(t, "standard", 10, session.SixCells())
	s.Started, s.Ended = s.Started.Add(24*time.Hour), s.Ended.Add(24*time.Hour)
	for i := range s.Runs {
		for k := range s.Runs[i].Measured {
			m := &s.Runs[i].Measured[k]
			for name, v := range m.Values {
				if s.Runs[i].Cell == cell {
					m.Values[name] = v * factor
				}
			}
		}
	}
	return s
}

func compared(t *testing.T, a, b results.Session, all bool) Document {
	t.Helper()
	d, err := Sessions(Side{"before", a}, Side{"after", b}, all)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d Document) of(t *testing.T, cell, metric string) Comparison {
	t.Helper()
	k := slices.IndexFunc(d.Comparisons, func(c Comparison) bool { return c.Cell == cell && c.Metric == metric })
	if k < 0 {
		t.Fatalf("%s in %s is not compared", metric, cell)
	}
	return d.Comparisons[k]
}

// What a late client found is a bound in a comparison, too, and so is the ratio; of two bounds there is none.
func TestBounds(t *testing.T) {
	const cell, ping = "noisy-lane-express", "rtt-udp-64-pingpong"
	made := func(late bool) results.Session {
		s := session.Made(t, "standard", 10, session.SixCells())
		for i, r := range s.Runs {
			for k := range r.Measured {
				if m := &s.Runs[i].Measured[k]; late && r.Cell == cell && m.Name == ping {
					one := m.Samples[ping]
					one.Lag = one.Histogram
					m.Samples[ping], m.Window = one, results.Nanoseconds(time.Second)
					m.ClientLate("the client could not keep up")
				}
			}
		}
		return s
	}
	for _, c := range []struct {
		a, b bool
		want [3]string // of A, of B, of the ratio
		text string
	}{
		{false, false, [3]string{}, ""},
		{true, false, [3]string{"at most", "", "at least"}, "≥ "},
		{false, true, [3]string{"", "at most", "at most"}, "≤ "},
		{true, true, [3]string{"at most", "at most", ""}, "≤ "},
	} {
		d := compared(t, made(c.a), made(c.b), false)
		one := d.of(t, cell, ping)
		if got := [3]string{one.A.Bound, one.B.Bound, one.Ratio.Bound}; got != c.want {
			t.Errorf("late in A %t, in B %t: %q, want %q", c.a, c.b, got, c.want)
		}
		var out bytes.Buffer
		d.Write(&out)
		text := strings.Join(strings.Fields(out.String()), " ")
		note := strings.Contains(text, "≤: the client was late in some runs, so the true figure may be lower.")
		if note != (c.a || c.b) || !strings.Contains(text, c.text) {
			t.Errorf("late in A %t, in B %t: %s", c.a, c.b, text)
		}
	}
}

func TestVerdicts(t *testing.T) {
	const cell = "noisy-lane-express"
	a := session.Made(t, "standard", 10, session.SixCells())
	d := compared(t, a, later(t, cell, 0.5), false)
	c := d.of(t, cell, "throughput")
	if c.Verdict != stats.Worse || math.Abs(c.Ratio.Estimate-0.5) > 1e-9 || c.Ratio.Confidence < 0.95 || c.A.Runs != 10 {
		t.Errorf("half of the throughput: %+v", c)
	}
	// Of ten and ten runs the least p is 2 of 184,756; there are twelve comparisons.
	if want := 12 * 2 / 184756.0; math.Abs(*c.Adjusted-want) > 1e-9 {
		t.Errorf("adjusted p = %v, want %v", *c.Adjusted, want)
	}
	if up := compared(t, a, later(t, cell, 2), false).of(t, cell, "throughput"); up.Verdict != stats.Better {
		t.Errorf("twice the throughput: %+v", up)
	}
	same := d.of(t, "quiet-floating-bridge", "throughput")
	if !same.Baseline || same.Ratio.Estimate != 1 || same.Verdict == stats.Better || same.Verdict == stats.Worse {
		t.Errorf("the same runs: %+v", same)
	}
	if len(d.Comparisons) != 12 || len(d.Without) != 0 || !strings.Contains(d.Notes[0], "drift between the two sessions is not excluded") {
		t.Errorf("%d comparisons, without %v, notes %v", len(d.Comparisons), d.Without, d.Notes)
	}
	if len(d.Differences) != 0 {
		t.Errorf("the same conditions differ: %v", d.Differences)
	}
	// What else is shown leaves the verdicts on the primary metrics as they are.
	all := compared(t, a, later(t, cell, 0.5), true)
	if more := all.of(t, cell, "throughput"); *more.Adjusted != *c.Adjusted || len(all.Comparisons) != 30 {
		t.Errorf("with --all: %+v of %d", more, len(all.Comparisons))
	}
}

// A guard that failed in either session lowers the verdict by its name.
func TestGuardsLower(t *testing.T) {
	const cell = "noisy-lane-express"
	a, b := session.Made(t, "standard", 10, session.SixCells()), later(t, cell, 2)
	b.Environment.Clocksource = "hpet"
	d := compared(t, a, b, false)
	if c := d.of(t, cell, "throughput"); c.Verdict != stats.Better || c.Lowered != nil {
		t.Errorf("a rate does not need the clock: %+v", c)
	}
	for _, s := range []*results.Session{&a, &b} {
		one := *s
		one.Complete = false
		first, second := a, one
		if s == &a {
			first, second = one, b
		}
		if c := compared(t, first, second, false).of(t, cell, "throughput"); c.Verdict != stats.Inconclusive ||
			!slices.Equal(c.Lowered, []string{"not complete"}) {
			t.Errorf("a session that was cut: %+v", c)
		}
	}
}

// Runs that carried nothing are in no ratio, so the others give no verdict.
func TestZeros(t *testing.T) {
	const cell = "noisy-lane-express"
	a, b := session.Made(t, "standard", 10, session.SixCells()), later(t, cell, 2)
	for block := range 3 {
		for _, m := range session.RunOf(t, b, cell, 1+block).Measured {
			for name := range m.Values {
				m.Values[name] = 0
			}
		}
	}
	if c := compared(t, a, b, false).of(t, cell, "throughput"); c.Verdict != stats.Inconclusive ||
		!slices.Equal(c.Lowered, []string{"left out"}) {
		t.Errorf("%s %v", c.Verdict, c.Lowered)
	}
}

// Runs whose median was lost are in no ratio either; where that of a cell was, it is compared with nothing.
func TestLost(t *testing.T) {
	const cell, trips = "noisy-lane-express", "rtt-udp-64-pingpong"
	for runs, want := range map[int]string{3: "left out", 10: "B: its median was lost"} {
		a, b := session.Made(t, "standard", 10, session.SixCells()), later(t, cell, 2)
		for block := range runs {
			m := session.RunOf(t, b, cell, 1+block).Measured[0]
			m.Samples[m.Name] = results.Samples{Histogram: m.Samples[m.Name].Histogram, Wanted: 9000, Lost: 5000}
		}
		d := compared(t, a, b, false)
		text, err := json.Marshal(d)
		lowered := slices.ContainsFunc(d.Comparisons, func(c Comparison) bool {
			return c.Cell == cell && c.Metric == trips && slices.Contains(c.Lowered, want)
		})
		without := slices.ContainsFunc(d.Without, func(w Without) bool { return w.Why == want })
		if err != nil || !lowered && !without {
			t.Errorf("%d runs: expected %q: %v %s", runs, want, err, text)
		}
	}
}

func TestNoVerdict(t *testing.T) {
	a, b := session.Made(t, "quick", 3, session.SixCells()), later(t, "", 1)
	d := compared(t, a, b, false)
	for _, c := range d.Comparisons {
		if c.Verdict != "" || c.Adjusted != nil {
			t.Errorf("a verdict on a quick session: %+v", c)
		}
	}
	if !slices.Contains(d.Notes, "A is a quick session: figures, no verdict.") {
		t.Errorf("notes: %v", d.Notes)
	}
	// Three runs against ten have an interval, three against three have none.
	if c := compared(t, a, a, false).of(t, "noisy-lane-express", "throughput"); c.Ratio.Confidence != 0 || !(c.Ratio.Low < 1 && c.Ratio.High > 1) {
		t.Errorf("three against three: %+v", c)
	}
	few := later(t, "", 1)
	for block := 1; block <= 5; block++ {
		session.RunOf(t, few, "quiet-lane-express", block).Void = []string{"made void"}
	}
	d = compared(t, b, few, false)
	if c := d.of(t, "quiet-lane-express", "throughput"); c.Verdict != stats.Inconclusive || c.Needed < 6 || c.B.Runs != 5 || c.Ratio.Confidence == 0 {
		t.Errorf("five runs: %+v", c)
	}
	if c := d.of(t, "quiet-pinned-bridge", "throughput"); c.Verdict == "" || c.Over != "runs" {
		t.Errorf("ten runs: %+v", c)
	}
}

func TestWithoutPartner(t *testing.T) {
	a, b := session.Made(t, "standard", 2, session.SixCells()), session.Made(t, "standard", 2, session.AllCells())
	b.Cells[0].Levels["path"], b.Cells[3].Name = "macvlan", "renamed"
	for i := range b.Runs {
		if b.Runs[i].Cell == "noisy-pinned-bridge" {
			b.Runs[i].Cell = "renamed" // its levels count, not its name
		}
		if b.Runs[i].Cell == "quiet-lane-express" {
			b.Runs[i].Void = []string{"made void"}
		}
	}
	b.Metrics[3].Unit = "us"
	d := compared(t, a, b, false)
	d.of(t, "noisy-pinned-bridge", "throughput")
	for _, want := range []Without{
		{"cell quiet-floating-bridge", "A", "B has no cell of these levels"},
		{"cell noisy-lane-bridge", "B", "A has no cell of these levels"},
		{"metric rtt-udp-64-pingpong", "A", "that of B is another quantity or unit"},
		{"throughput in quiet-lane-express", "A", "B: all runs void"},
	} {
		if !slices.Contains(d.Without, want) {
			t.Errorf("%+v is not said: %+v", want, d.Without)
		}
	}
	for name, change := range map[string]func(*results.Session){
		"no cell in common: expected some of the same factors": func(s *results.Session) {
			s.Cells = s.Cells[3:4]
			s.Cells[0].Levels = map[string]string{"cpus": "2"}
		},
		"no primary metric of one name": func(s *results.Session) {
			s.Metrics = s.Metrics[:0]
			s.Runs = nil
		},
		"before": nil,
	} {
		first := a
		if change == nil {
			first.Metrics = first.Metrics[:2] // not described
		} else {
			change(&b)
		}
		if _, err := Sessions(Side{"before", first}, Side{"after", b}, false); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
		b = session.Made(t, "standard", 2, session.AllCells())
		b.Cells[3].Name = "renamed"
		b.Runs = slices.DeleteFunc(b.Runs, func(r results.Run) bool { return r.Cell == "noisy-pinned-bridge" })
	}
}

func TestConditions(t *testing.T) {
	a, b := session.Made(t, "standard", 10, session.SixCells()), later(t, "", 1)
	a.Scenario.Source = "apiVersion: v1\nspec: {probes: [{kind: echo, gap: 1ms}], lane: {cpus: {count: 1}}, modes: {a: 1}}\n"
	b.Scenario.Source = "apiVersion: v2\nspec:\n  probes:\n  - {gap: 1ms, kind: echo}\n  lane: {cpus: {count: 2}}\n"
	a.Environment.Cmdline, b.Environment.Cmdline = "quiet isolcpus=2 nohz_full=2", "quiet nohz_full=2 mitigations=off"
	b.Environment.Kernel, b.Environment.BootID = "6.18", "other"
	b.Environment.Versions = map[string]string{"isolane": "test", "iperf3": "3.17"}
	b.Scenario.Blocks, b.Metrics[0].Margin = 20, 0.2
	b.Cells[5].InForce = map[string]string{"path": "bridge"}
	for i := range b.Cells {
		b.Cells[i].Client = a.Cells[0].Application
	}
	a.Lane = &results.Lane{Name: "web", Drift: []string{"irq 7"}}
	d := compared(t, a, b, false)
	for _, want := range []Difference{
		{"environment: kernel", "6.12.0 #1 SMP", "6.18"},
		{"environment: boot", "none", "other"},
		{"environment: command line", "isolcpus=2", "mitigations=off"},
		{"environment: version of iperf3", "3.12", "3.17"},
		{"scenario: blocks", "10", "20"},
		{"scenario: apiVersion", "v1", "v2"},
		{"scenario: spec.lane", "declared", "declared otherwise"},
		{"scenario: spec.modes", "declared", "none"},
		{"scenario: margin of throughput", "5% (used here)", "20%"},
		{"lane: name", "web", "none"},
		{"cells: path in force of noisy-lane-express", "express", "bridge"},
	} {
		if !slices.Contains(d.Differences, want) {
			t.Errorf("%+v is not said: %+v", want, d.Differences)
		}
	}
	if slices.ContainsFunc(d.Differences, func(v Difference) bool { return v.What == "scenario: spec.probes" }) {
		t.Error("the same probes in another order of keys differ")
	}
	if !slices.ContainsFunc(d.Differences, func(v Difference) bool { return strings.HasPrefix(v.What, "cells: planned CPUs") }) {
		t.Errorf("other CPUs are not said: %+v", d.Differences)
	}
	if !slices.Contains(d.Notes, "A: lane web was changed while it was measured: irq 7") {
		t.Errorf("notes: %v", d.Notes)
	}
	b.Scenario.Source = "\t"
	if d := compared(t, a, b, false); !slices.Contains(d.Differences, Difference{"scenario: source", "cannot be compared", "cannot be compared"}) {
		t.Errorf("a source that is no YAML: %+v", d.Differences)
	}
}

func TestText(t *testing.T) {
	t.Setenv("COLUMNS", "100")
	var b bytes.Buffer
	d := compared(t, session.Made(t, "standard", 10, session.SixCells()), later(t, "noisy-lane-express", 0.5), false)
	d.Write(&b)
	for _, want := range []string{"A: before: edge, standard, 60 runs used, 2026-11-20 12:00:00 to ", "measured at different times",
		"drift? quiet-floating-bridge, the baseline of both", "B in % of A", "95% interval", "verdict", "worse"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing:\n%s", want, b.String())
		}
	}
	var same bytes.Buffer
	one := session.Made(t, "quick", 1, session.SixCells())
	compared(t, one, one, false).Write(&same)
	if text := same.String(); strings.Contains(text, "different times") || !strings.Contains(text, "they are one session") || strings.Contains(text, "verdict\n") {
		t.Errorf("one session:\n%s", text)
	}
	data, err := json.Marshal(d)
	if err != nil || strings.Contains(string(data), "null,") {
		t.Errorf("%v: %.300s", err, data)
	}
}

// Sessions whose CPUs were each near and far all the time have no failed guard of their own, and cannot be
// compared.
func TestMovedBetweenSessions(t *testing.T) {
	const cell = "noisy-lane-express"
	at := func(s results.Session, took results.Nanoseconds) results.Session {
		for _, r := range s.Runs {
			for k := range r.Measured {
				r.Measured[k].CacheLine = &results.CacheLine{Looks: 100, Median: took}
			}
		}
		return s
	}
	for took, want := range map[results.Nanoseconds][]string{104: {"distance of the CPUs"}, 24: nil} {
		d := compared(t, at(later(t, cell, 1), 24), at(later(t, cell, 2), took), false)
		if c := d.of(t, cell, "throughput"); !slices.Equal(c.Lowered, want) || (c.Verdict == stats.Better) != (want == nil) {
			t.Errorf("24 and %d ns: %s %v", took, c.Verdict, c.Lowered)
		}
	}
}
