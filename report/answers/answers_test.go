package answers

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"isolane.dev/isolane/claims/rules"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/scenarios"
	"isolane.dev/isolane/test/session"
)

const table = `scenario,config,metric,unit,value,qualifier,line
paper,noisy; pinned,throughput_rel_quiet,percent,68,exact,1
paper,noisy; floating,throughput_rel_quiet,percent,20,exact,2
paper,noisy; short,throughput_rel_quiet,percent,500,exact,3
paper,noisy; limited,throughput_rel_quiet,percent,101,limit,4
paper,elsewhere,throughput_rel_quiet,percent,98,range_low,5
paper,elsewhere,throughput_rel_quiet,percent,99,range_high,5
paper,hop,throughput,Gbps,9,approx,6
paper,quiet,rtt_mean,us,100000,exact,7
paper,somewhere,throughput,Gbps,3,exact,8
paper-setup,host,cores,count,4,exact,9
extremes,quiet,rtt_max,us,100000,exact,10
`

func made(t *testing.T, mode string) Page {
	t.Helper()
	report, err := rules.Audit(t.Context(), strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	stored := session.Made(t, mode, 10, []string{"quiet-floating-bridge", "noisy-floating-bridge", "noisy-pinned-bridge", "noisy-lane-express"})
	stored.Scenario.Excluded = []results.Excluded{{Cell: "other", Because: "not on this machine: no second node"}}
	p := Page{Table: report}
	if err = p.Add("here", stored); err != nil {
		t.Fatal(err)
	}
	s := scenario.Scenario{Metadata: scenario.Metadata{Name: stored.Scenario.Name}}
	figure := func(cell string, percent float64, row string) scenario.PublishedFigure {
		return scenario.PublishedFigure{Cell: cell, Metric: "throughput", Percent: percent, Row: row}
	}
	limited := figure("noisy-lane-express", 101, "paper:4")
	limited.Qualifier = results.Limit
	s.Spec.Published = []scenario.PublishedSource{{Source: "A paper", Differs: []string{"They had | more."},
		Doubts: []string{"No lengths."},
		Figures: []scenario.PublishedFigure{figure("noisy-pinned-bridge", 68, "paper:1"), figure("noisy-floating-bridge", 20, "paper:2"),
			figure("noisy-lane-express", 500, "paper:3"), limited, figure("other", 98, "paper:5"),
			{Cell: "quiet-floating-bridge", Metric: "rtt-udp-64-pingpong", Statistic: "mean", Value: 1e8, Row: "paper:7:rtt_mean"},
			{Cell: "quiet-floating-bridge", Metric: "rtt-udp-64-pingpong", Statistic: "max", Value: 1e8, Row: "extremes:10:rtt_max"}},
		Unanswered: []scenario.Unanswered{{Row: "paper:6", Because: "two things changed"}}}}
	p.Scenarios = []scenario.Scenario{s}
	return p
}

// Each verdict is given where it is due, and none of a quick session.
func TestVerdicts(t *testing.T) {
	p := made(t, "standard")
	pinned := p.Sessions[0].Cell("noisy-pinned-bridge").Figures["throughput"].Ratio.Estimate
	p.Scenarios[0].Spec.Published[0].Figures[0].Percent = math.Round(100 * pinned)
	for _, c := range []struct{ row, want string }{
		{"paper:1", "held"},
		{"paper:2", "better"},
		{"paper:3", "not held"},
		{"paper:4", "held, and more: theirs was at a limit"},
		{"paper:5", "cannot be seen: other: not on this machine: no second node"},
		{"paper:6", "cannot be seen: two things changed"},
		{"paper:7", "better, absolute"},
		{"paper:10", "open: a maximum grows with the time measured"},
	} {
		found := false
		for _, a := range p.answers(p.Scenarios[0], p.Scenarios[0].Spec.Published[0]) {
			if "paper:"+a.rows[0].At != c.row {
				continue
			}
			if found = true; a.verdict != c.want {
				t.Errorf("%s: %s, %s, want %s", c.row, a.ours, a.verdict, c.want)
			}
		}
		if !found {
			t.Errorf("%s: no answer", c.row)
		}
	}
	quick := made(t, "quick")
	for _, a := range quick.answers(quick.Scenarios[0], quick.Scenarios[0].Spec.Published[0]) {
		if strings.Contains(a.verdict, "held") || strings.Contains(a.verdict, "better") {
			t.Errorf("of a quick session: %v", a)
		}
	}
}

// A ratio of two figures at a limit bounds nothing, and what fewer connections than theirs get is no answer to
// theirs, be it a ratio; nor is a mean without what was lost.
func TestOpenAnswers(t *testing.T) {
	p := made(t, "standard")
	from := p.Scenarios[0].Spec.Published[0]
	s := p.Sessions[0].Session
	const ping = "rtt-wrk-p99"
	s.Metrics = append(s.Metrics, results.Metric{Name: ping, Unit: results.TimeUnit, Better: results.Lower},
		results.Metric{Name: "cpu", Noun: "client's CPU", Unit: "%", Better: results.Lower, Role: results.Check, Guards: "throughput", Limit: 90})
	for i, r := range s.Runs {
		busy := map[bool]float64{true: 50, false: 95}[r.Cell == "noisy-lane-express"]
		s.Runs[i].Measured = append(r.Measured, results.Measurement{Name: "wrk", Values: map[string]float64{ping: 1e6, "cpu": busy},
			Facts: map[string]string{"scale": "1 of 16 CPUs: -t 1 -c 1 for -t 4 -c 20"}})
	}
	sum, err := figures.Summarize(s)
	if err != nil {
		t.Fatal(err)
	}
	sum.Cell("quiet-floating-bridge").Figures["rtt-udp-64-pingpong"].Merged.Lost = 7
	p.Sessions[0] = sum
	from.Figures[0] = scenario.PublishedFigure{Cell: "quiet-floating-bridge", Metric: ping, Value: 1e7, Row: "paper:1"}
	from.Figures[2] = scenario.PublishedFigure{Cell: "noisy-lane-express", Metric: ping, Percent: 50, Row: "paper:3"}
	from.Figures[3].Percent = math.Round(100 * sum.Cell("noisy-lane-express").Figures["throughput"].Ratio.Estimate)
	const fewer = "open: another load than theirs: -t 1 -c 1 for -t 4 -c 20"
	want := map[string]string{"7": "open: a mean leaves out the 7 that were lost, absolute", "1": fewer, "3": fewer,
		"4": "open: ours is at most this, as client's CPU was at its limit in what it is compared with",
		"2": "open: a ratio of two lower bounds bounds nothing, as client's CPU was at its limit in both cells"}
	for _, a := range p.answers(p.Scenarios[0], from) {
		if w := want[a.rows[0].At]; w != "" && a.verdict != w {
			t.Errorf("%s: %s, %s, want %s", a.rows[0].At, a.ours, a.verdict, w)
		}
	}
}

// What is too wide is not held for that, a bound holds in one direction, a guard that failed opens each answer of
// its cell and is told on the page, and a machine in software is no machine.
func TestDoubts(t *testing.T) {
	p := made(t, "standard")
	s := p.Sessions[0].Session
	s.Metrics = append(s.Metrics, results.Metric{Name: "cpu", Noun: "client's CPU", Unit: "%", Better: results.Lower,
		Role: results.Check, Guards: "throughput", Limit: 90})
	for i := range s.Runs {
		switch r := &s.Runs[i]; r.Cell {
		case "quiet-floating-bridge":
			r.Measured[0].Facts = map[string]string{"accelerator": "tcg: software emulation"}
		case "noisy-floating-bridge":
			r.Measured = append(r.Measured, results.Measurement{Name: "cpu", Values: map[string]float64{"cpu": 95}})
		case "noisy-pinned-bridge":
			for _, m := range r.Measured {
				for name := range m.Values {
					m.Values[name] *= []float64{0.7, 1.4}[r.Block%2]
				}
			}
		case "noisy-lane-express":
			r.Witness.CPUs[0].Throttled = 1
		}
	}
	sum, err := figures.Summarize(s)
	if err != nil {
		t.Fatal(err)
	}
	p.Sessions[0] = sum
	from := &p.Scenarios[0].Spec.Published[0]
	for i, cell := range []string{"noisy-pinned-bridge", "noisy-floating-bridge"} {
		from.Figures[i].Percent = math.Round(100 * sum.Cell(cell).Figures["throughput"].Ratio.Estimate)
	}
	from.Figures[4].Cell = "machine"
	from.Unanswered = append(from.Unanswered, scenario.Unanswered{Cell: "machine", Because: "it needs one"})
	want := map[string]string{"1": "open: too wide to tell",
		"2": "open: ours is at least this, as client's CPU was at its limit",
		"3": "open: a guard failed: heat", "4": "open: a guard failed: heat",
		"5": "cannot be seen: the session has no cell machine: it needs one",
		"7": "cannot be seen: software emulation took the place of a machine"}
	for _, a := range p.answers(p.Scenarios[0], *from) {
		if w := want[a.rows[0].At]; w != "" && a.verdict != w {
			t.Errorf("%s: %s, %s, want %s", a.rows[0].At, a.ours, a.verdict, w)
		}
	}
	var b strings.Builder
	if err = p.Write(&b); err != nil {
		t.Fatal(err)
	}
	if _, text, _ := strings.Cut(b.String(), "**Guards that failed**\n\n"); !strings.HasPrefix(text,
		"- heat: measured CPUs were slowed down by it in noisy-lane-express (10 runs)") {
		t.Error(b.String())
	}
}

// The page has what differs before the verdicts, each row once, and what is left over.
func TestPage(t *testing.T) {
	var b strings.Builder
	if err := made(t, "standard").Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	at := 0
	for _, want := range []string{"## A paper", "They had &#124; more.", "Ours: isolane prove edge --standard --seed 7 --cells quiet-floating-bridge,noisy-floating-bridge,noisy-pinned-bridge,noisy-lane-express on a machine",
		"| line |", "| 5 | throughput\\_rel\\_quiet: 98 to 99 percent",
		"audit-claims finds**", "mean-only", "No lengths.", "Of 11 rows 9 have an answer above, 1 describe conditions",
		"- paper, line 8: throughput: 3 Gbps (somewhere)"} {
		next := strings.Index(text[at:], want)
		if next < 0 {
			t.Fatalf("no %q behind\n%s\nin\n%s", want, text[:at], text)
		}
		at += next
	}
	if strings.Contains(text[at:], "line 9") || strings.Count(text, "98 to 99") != 1 {
		t.Error(text)
	}
	two := made(t, "quick")
	if err := two.Add("there", two.Sessions[0].Session); err == nil || len(two.Sessions) != 1 ||
		err.Error() != "there: a second session of scenario edge, beside that of 2026-11-20 12:00 UTC: expected one of each" {
		t.Error(err)
	}
	empty := made(t, "standard")
	empty.Sessions = nil
	b.Reset()
	if err := empty.Write(&b); err != nil || !strings.Contains(b.String(), "not asked here: no session of") || strings.Contains(b.String(), "| held") {
		t.Error(err, b.String())
	}
}

// The rows that scenarios name are in the published tables, with the figures that they have, and no row of a result
// is left without an answer or the reason.
func TestRows(t *testing.T) {
	report, err := rules.AuditFile(t.Context(), "../../claims/testdata/published.csv")
	if err != nil {
		t.Fatal(err)
	}
	p := Page{Table: report}
	units := map[string]float64{"Gbps": 1e9, "us": 1e3, "ms": 1e6, "req/s": 1, "percent": 1, "ratio": 100}
	files, err := scenarios.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found, named := 0, map[int]bool{}
	for _, f := range files {
		text, err := scenarios.Files.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		var s struct {
			Spec struct{ Published []scenario.PublishedSource }
		}
		if err = yaml.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		for _, from := range s.Spec.Published {
			for _, u := range from.Unanswered {
				rows := p.rows(u.Row)
				for _, row := range rows {
					named[row.Line] = true
				}
				if len(rows) == 0 && !slices.ContainsFunc(from.Figures, func(f scenario.PublishedFigure) bool { return f.Cell == u.Cell }) {
					t.Errorf("%s: no table or figure has %+v", f.Name(), u)
				}
			}
			for _, f := range from.Figures {
				rows := p.rows(f.Row)
				for _, row := range rows {
					named[row.Line] = true
				}
				if f.Row == "" {
					continue
				}
				same := false
				for _, row := range rows {
					v, err := strconv.ParseFloat(row.Value, 64)
					v *= units[row.Unit]
					same = same || err == nil && (math.Abs(v-f.Value) < 1e-6*v || math.Abs(v-f.Percent) < 1e-6*v)
				}
				if !same {
					t.Errorf("%+v: the table has %v", f, rows)
				}
				found++
			}
		}
	}
	if found < 50 {
		t.Errorf("%d rows", found)
	}
	for _, row := range report.Table {
		if !named[row.Line] && !row.Setup {
			t.Errorf("no scenario has %+v", row)
		}
	}
}
