package figures

import (
	"math"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/test/session"
)

// give sets the throughput of a cell in a block, the same in both directions.
func give(t *testing.T, s results.Session, cell string, block int, value float64) {
	t.Helper()
	for _, m := range session.RunOf(t, s, cell, block).Measured {
		for name := range m.Values {
			m.Values[name] = value
		}
	}
}

// wins are the cells that may win something back.
func wins(s Summary) []Isolation {
	return slices.DeleteFunc(slices.Clone(s.Isolation), func(i Isolation) bool { return i.Loser == nil })
}

func TestWins(t *testing.T) {
	made := func() results.Session {
		s := session.Made(t, "standard", 8, session.SixCells())
		for block := 1; block <= 8; block++ {
			scale := float64(block) // drift falls out
			give(t, s, "quiet-floating-bridge", block, 100*scale)
			give(t, s, "noisy-floating-bridge", block, 60*scale)
			give(t, s, "noisy-pinned-bridge", block, 68*scale)
			give(t, s, "noisy-lane-express", block, 118*scale)
		}
		return s
	}
	cases := map[string]struct {
		change func(results.Session)
		want   map[string]float64 // share of the throughput by name of the win
		why    string
	}{
		"as published": {func(results.Session) {}, map[string]float64{"pinned-bridge": 0.2, "lane-express": 1.45}, ""},
		"factors in another order": {func(s results.Session) {
			slices.Reverse(s.Factors)
		}, map[string]float64{"bridge-pinned": 0.2, "express-lane": 1.45}, ""},
		"nothing lost": {func(s results.Session) {
			for b := 1; b <= 8; b++ {
				give(t, s, "noisy-floating-bridge", b, 100*float64(b)*(1+0.1*float64(b%2)-0.05))
			}
		}, nil, "cannot be told from chance"},
		"nothing at all in one block": {func(s results.Session) {
			give(t, s, "noisy-pinned-bridge", 3, 0) // a share of -1.5
		}, map[string]float64{"pinned-bridge": 0.2, "lane-express": 1.45}, ""},
		"nothing or all": {func(s results.Session) {
			for b := 1; b <= 8; b++ {
				give(t, s, "noisy-pinned-bridge", b, float64(b)*(80+40*float64(b%2*2-1)))
				give(t, s, "noisy-lane-express", b, float64(b)*(80+40*float64(b%2*2-1)))
			}
		}, nil, "may win back nothing as well as everything"},
		"no noisy baseline": {func(s results.Session) {
			for b := 1; b <= 8; b++ {
				session.RunOf(t, s, "noisy-floating-bridge", b).Void = []string{"made void"}
			}
		}, nil, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			own := made()
			c.change(own)
			sum := summarize(t, own)
			for _, w := range wins(sum) {
				share := w.Aspects[0].Back
				want, expected := c.want[w.Name]
				if share.Known() != expected || expected && (math.Abs(share.Estimate-want) > 1e-9 ||
					share.Confidence < 0.95 || share.N != 8) {
					t.Errorf("%s wins back %v, want %v: %s", w.Name, share.Interval, want, w.Aspects[0].Why)
				}
				if !strings.Contains(w.Aspects[0].Why, c.why) || (c.why == "") != (w.Aspects[0].Why == "") {
					t.Errorf("%s: %q, want %q", w.Name, w.Aspects[0].Why, c.why)
				}
			}
			if n := len(wins(sum)); n != 2 {
				t.Errorf("%d cells win something back, want 2", n)
			}
		})
	}
}

// A load is no step: what carries it is held against what lost at the same load.
func TestWinsAtTheSameLoad(t *testing.T) {
	s := session.Made(t, "standard", 6, session.SixCells())
	s.Factors[2].Outside = true // "path" plays the load
	sum := summarize(t, s)
	if all := wins(sum); len(all) != 1 || all[0].Name != "pinned-bridge" {
		t.Errorf("found %v: want pinned-bridge alone, as there is no floating-express", all)
	}
	s.Factors = s.Factors[1:] // nothing disturbs
	if sum = summarize(t, s); len(sum.Isolation) > 0 {
		t.Errorf("%v without a disturbance", sum.Isolation)
	}
}

// What the client limits is at least what was found; what is published at a limit is at least that.
func TestBounds(t *testing.T) {
	s := session.Made(t, "standard", 6, session.SixCells())
	s.Metrics = append(s.Metrics, results.Metric{Name: "cpu", Noun: "client's CPU", Unit: "%", Role: results.Check,
		Guards: "throughput-tcp-up", Limit: 90})
	for b := 1; b <= 6; b++ {
		session.RunOf(t, s, "noisy-lane-express", b).Measured[2].Values["cpu"] = 95
	}
	s.Scenario.Published = []results.Published{
		{Cell: "noisy-lane-express", Metric: "throughput", Percent: 118, Qualifier: "limit of the card"},
		{Cell: "quiet-lane-express", Metric: "throughput", Percent: 110, Qualifier: "censored"},
		{Cell: "noisy-lane-express", Metric: "rtt-udp-64-pingpong", Percent: 3, Qualifier: "limit"},
		{Cell: "quiet-lane-express", Metric: "rtt-udp-64-pingpong", Percent: 3, Qualifier: "censored: stopped"},
	}
	sum := summarize(t, s)
	rate, trip := sum.Primary()[0], sum.Primary()[1]
	own, base := *sum.Cell("noisy-lane-express"), *sum.Cell("quiet-lane-express")
	for got, want := range map[string]string{sum.Estimate(own, rate): "≥ 175%", own.Figure(rate).Shown(rate): "≥ 67.7 Gbit/s",
		sum.Estimate(base, rate): "181%", own.Quoted(rate): "≥ 118%", base.Quoted(rate): "≥ 110%",
		own.Quoted(trip): "≤ 3%", base.Quoted(trip): "≥ 3%"} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
