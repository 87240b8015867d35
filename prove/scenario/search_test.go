package scenario

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"isolane.dev/isolane/probe/frames"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/scenarios"
)

const searching = `apiVersion: isolane.dev/v1alpha3
kind: Scenario
metadata: {name: small, title: t}
spec:
  factors:
    - {name: place, kind: placement, levels: [floating, lane]}
    - {name: cpus, where: {place: [lane]}, levels: [1, 2, 4]}
    - {name: size, kind: setting, levels: [{name: small, probes: {open: {payload: 64}}}, {name: large, probes: {open: {payload: 1400}}}]}
  exclude: [{where: {cpus: [4], size: [large]}, because: too much}]
  baseline: floating-small
  lane: {cpus: {count: 1}}
  probes: [{name: open, kind: echo, mode: open, rate: 100}, {name: closed, kind: echo}, {name: up, kind: iperf3, direction: up}]
  searches:
    - {name: fewest, kind: smallest, factor: cpus, cells: [lane-1-large], goal: {metric: up, percent: 99, of: 10Gbit/s}}
    - {name: in-time, kind: highest, probe: open, from: 1000, to: 64000, cells: [floating-small, lane-2-large], goal: {metric: open, statistic: p99, atMost: 2ms}}
    - {name: limits, kind: bounds, probe: open, from: 0.5, to: 64000, width: 20%, cells: [floating-small]}
  modes:
    quick: {blocks: 1, windows: {echo: {measure: 1s}, iperf3: {measure: 1s}}}
    standard: {blocks: 1, windows: {echo: {measure: 1s}, iperf3: {measure: 1s}}, searches: {trial: 2s}}
`

// In a lane in force searches are made in the cells around it, each once, but for what varies the lane.
func TestSearchesBeside(t *testing.T) {
	s, err := Parse("f", strings.NewReader(strings.Replace(searching, "cells: [floating-small, lane-2-large]",
		"cells: [floating-small, lane-2-large, lane-1-small]", 1)), kinds())
	if err != nil {
		t.Fatal(err)
	}
	around := s.Beside(s.Spec.Lane, "")
	if q := around.Spec.Searches; len(q) != 2 || strings.Join(q[0].Cells, " ") != "small large" || strings.Join(q[1].Cells, " ") != "small" {
		t.Errorf("%+v", q)
	}
	if len(s.Spec.Searches) != 3 || len(s.Spec.Searches[1].Cells) != 3 {
		t.Errorf("the scenario itself: %+v", s.Spec.Searches)
	}
}

// The forwarder's limits are searched with frames of one size and with IMIX: each trial has those of its cell.
func TestSearchesOfFrames(t *testing.T) {
	text, err := scenarios.Files.ReadFile("forwarder.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("forwarder.yaml", bytes.NewReader(text), kinds())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, q := range s.Spec.Searches {
		for _, cell := range q.Cells {
			p, err := s.Trial(q, s.cell(cell), 2500, kinds())
			if err != nil {
				t.Fatal(err)
			}
			f := p.Probe.(frames.Probe)
			got[q.Name] = append(got[q.Name], fmt.Sprintf("%s of %s at %g/s", q.Kind, f.Size, float64(f.Rate)))
		}
	}
	want := map[string][]string{"limits": {"bounds of 64 bytes at 2500/s", "bounds of 64 bytes at 2500/s"},
		"limits-imix": {"bounds of IMIX at 2500/s", "bounds of IMIX at 2500/s"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestSearches(t *testing.T) {
	s, err := Parse("f", strings.NewReader(searching), kinds())
	if err != nil {
		t.Fatal(err)
	}
	fewest, inTime := s.Spec.Searches[0], s.Spec.Searches[1]
	if inTime.Setting != "rate" || inTime.Width != 0.05 || s.Spec.Modes["quick"].Searches != nil {
		t.Errorf("%+v", inTime)
	}
	want := Trials{quantity.Duration(2 * time.Second), quantity.Duration(21 * time.Second), quantity.Duration(60 * time.Second)}
	if d := cmp.Diff(want, *s.Spec.Modes["standard"].Searches); d != "" {
		t.Error(d)
	}
	name, cells := s.Varied(fewest, "lane-1-large")
	if name != "lane-large" || len(cells) != 2 || cells[0].Name != "lane-1-large" || cells[1].Name != "lane-2-large" {
		t.Errorf("%s %+v", name, cells)
	}
	// The load comes on top of what the cell's levels set.
	p, err := s.Trial(inTime, s.cell("lane-2-large"), 2500, kinds())
	if text, _ := yaml.Marshal(p); err != nil || !strings.Contains(string(text), "rate: 2500") || !strings.Contains(string(text), `payload: "1400"`) {
		t.Errorf("%s %v", text, err)
	}
	if p, err = s.Trial(fewest, cells[1], 2, kinds()); err != nil || p.Name != "up" {
		t.Errorf("%s %v", p.Name, err)
	}
	if c := s.Spec.Modes["standard"].Try().Conditions(p); c.Window != 2*time.Second {
		t.Errorf("a trial takes %s", c.Window)
	}
	// What a session stores reads back as the same.
	text, err := yaml.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("source", strings.NewReader(string(text)), kinds())
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if d := cmp.Diff(s.Spec.Searches, again.Spec.Searches); d != "" {
		t.Error(d)
	}
}

func TestGoal(t *testing.T) {
	latency, rate := results.Metric{Name: "m", Unit: "ns"}, results.Metric{Name: "m", Unit: "requests/s"}
	for _, c := range []struct {
		goal  SearchGoal
		of    results.Metric
		bound float64
		least bool
		words string
	}{
		{SearchGoal{Metric: "m", Statistic: "p99.9", AtMost: "2ms"}, latency, 2e6, false, "p99.9 of m at most 2ms"},
		{SearchGoal{Metric: "m", AtLeast: "150"}, rate, 150, true, "m at least 150 requests/s"},
		{SearchGoal{Metric: "m", Percent: 99, Of: "200"}, rate, 198, true, "m at least 99% of 200 requests/s"},
	} {
		bound, least, err := c.goal.Bound(c.of)
		if err != nil || bound != c.bound || least != c.least || c.goal.Text(c.of) != c.words {
			t.Errorf("%+v: %g, %t, %q, %v", c.goal, bound, least, c.goal.Text(c.of), err)
		}
	}
}

func TestSearchesRefused(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"name: limits", "name: fewest", `spec.searches[2].name: "fewest" is listed twice`},
		{"name: limits", `name: "li mits"`, `spec.searches[2].name: expected 1-40 characters without blanks`},
		{"  searches:\n", "  aims: {cell: lane-1-small, goals: []}\n  searches:\n", "spec.aims.goals: at least one is needed"},
		{", searches: {trial: 2s}", "", "spec.modes: expected searches in one of them"},
		{"kind: bounds", "kind: widest", `spec.searches[2] (limits).kind: "widest": expected smallest, highest or bounds`},
		{"kind: bounds", "kind: bounds, speed: 1", `unknown field "speed"`},
		{"cells: [floating-small]}", "cells: []}", "(limits).cells: at least one is needed"},
		{"cells: [floating-small]}", "cells: [moon]}", `(limits).cells: "moon" is none of the combinations`},
		{"cells: [lane-1-large]", "cells: [floating-small]", "(fewest).cells: floating-small has no level of factor cpus"},
		{"cells: [lane-1-large]", "cells: [lane-4-large]", `(fewest).cells: "lane-4-large" is excluded: too much`},
		{"cells: [lane-1-large]", "cells: [lane-1-large, lane-2-large]", "(fewest).cells: lane-large is listed twice"},
		{"factor: cpus", "factor: moon", `(fewest).factor: "moon" is no factor`},
		{"factor: cpus", "factor: size", `(fewest).factor: size: level "small" is no number`},
		{"factor: cpus", "factor: cpus, probe: up", "(fewest).kind: smallest takes factor, cells and goal"},
		{"kind: bounds", "kind: bounds, factor: cpus", "(limits).factor: bounds varies the setting of a probe"},
		{"from: 0.5", "from: 64000", "(limits).from: expected more than 0, less than to"},
		{"from: 0.5", "from: -1", "(limits).from: expected more than 0, less than to"},
		{"width: 20%", "width: 0%", "spec.searches[2].width: \"0%\": expected more than 0%"},
		{"width: 20%", "width: 20", "expected a percentage such as 5%"},
		{"width: 20%", "width: 0.01%", "(limits).width: expected 0.1% to 1000%, found 0.01%"},
		{"kind: bounds, probe: open", "kind: bounds, probe: closed", "(limits).setting: probe closed: mode pingpong: rate 0.5"},
		{"from: 0.5, to: 64000", "setting: payload, from: 64, to: 1400", ""},
		{"kind: bounds, probe: open, from: 0.5, to: 64000", "kind: bounds, probe: closed, setting: payload, from: 64, to: 1400", "(limits).probe: closed: expected an open loop"},
		{"kind: bounds, probe: open", "kind: bounds, probe: moon", `"moon"`},
		{"kind: bounds", "kind: bounds, goal: {metric: open}", "(limits).goal: bounds has its own three"},
		{", goal: {metric: up, percent: 99, of: 10Gbit/s}", "", "(fewest).goal: missing: smallest needs a metric"},
		{"metric: up", "metric: moon", `(fewest).goal.metric: "moon" is none of a probe`},
		{"metric: up, percent: 99, of: 10Gbit/s", "metric: closed, statistic: p99, atMost: 1ms", "(fewest).goal.metric: closed: expected no samples of a closed loop"},
		{"metric: open, ", "metric: up, ", `(in-time).goal.metric: "up" is none of probe open`},
		{"statistic: p99, ", "", `(in-time).goal.statistic: "": expected p99`},
		{"statistic: p99, ", "statistic: p0, ", `(in-time).goal.statistic: "p0": expected p50, p99.9 or max`},
		{"metric: up, ", "metric: up, statistic: p99, ", `(fewest).goal.statistic: "p99": expected p99 or the like for a metric with samples`},
		{"atMost: 2ms", "atMost: 2", `(in-time).goal.atMost: duration "2"`},
		{"atMost: 2ms", "atMost: 0s", `(in-time).goal.atMost: "0s": expected more than 0`},
		{"atMost: 2ms", "atMost: 2ms, atLeast: 1ms", "(in-time).goal: expected one of atMost, atLeast, or percent and of"},
		{"percent: 99", "percent: 101", "(fewest).goal.percent: expected more than 0 and at most 100, found 101"},
		{"of: 10Gbit/s", "of: fast", `(fewest).goal.of: rate "fast"`},
		{"from: 1000", "from: 100", "(in-time).from: p99 needs 368 samples, a trial of 2s at 100 has 200 (spec.modes.standard.searches)"},
		{"trial: 2s", "trial: 30s", "spec.modes.standard.searches: expected trial above 0, sum and long"},
		{"trial: 2s", "trial: 0s", "spec.modes.standard.searches: expected trial above 0, sum and long, each at least the one before, and at most 1000 trials, found 0s, 21s, 1m0s"},
		{"trial: 2s", "sum: 0s", "spec.modes.standard.searches: expected trial above 0, sum and long, each at least the one before, and at most 1000 trials, found 1s, 0s, 1m0s"},
		{"trial: 2s", "trials: 2s", `spec.modes.standard.searches: unknown field "trials"`},
		{"trial: 2s", "trial: 1500ms", "(fewest).probe: up, spec.modes.standard.searches: "},
	} {
		text := strings.Replace(searching, c.old, c.new, 1)
		if text == searching {
			t.Fatalf("%q is not there", c.old)
		}
		_, err := Parse("f", strings.NewReader(text), kinds())
		if c.want == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q instead of %q: %v; want one line with %q", c.new, c.old, err, c.want)
		}
	}
}
