package curves

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/test/session"
)

func TestCurves(t *testing.T) {
	sum := summarize(t, session.Sweep(t, "standard", 6))
	curves := Of(&sum)
	if len(curves) != 1 || curves[0].Factor != "load" || curves[0].Where != "" || len(curves[0].Lines) != 4 ||
		curves[0].By != "placement-noise" || strings.Join(curves[0].Levels, " ") != "250 500 1000 2000 4000" {
		t.Fatalf("found %+v", curves)
	}
	reply, rate := sum.Metrics[0], sum.Metrics[1]
	track := curves[0].Track(reply)
	if !track.Load || strings.Join(track.Statistics, " ") != "P50 P90 P99 P99.9" {
		t.Errorf("found %v over a load, with %v", track.Load, track.Statistics)
	}
	for i, line := range curves[0].Lines {
		floating := strings.HasPrefix(line.Name, "floating")
		for k, r := range track.Lines[i] {
			over := floating && k == 4
			want := []float64{250, 500, 1000, 2000, 4000}[k]
			if over {
				want = 3000
			}
			if r.X != want || r.Over != over || (r.State == "overloaded") != over || math.IsNaN(r.Values[0]) != over {
				t.Errorf("%s, point %d: %+v", line.Name, k, r)
			}
			if !over && !(r.Lo[0] <= r.Values[0] && r.Values[0] <= r.Hi[0]) {
				t.Errorf("%s, point %d: %v is not within %v and %v", line.Name, k, r.Values[0], r.Lo[0], r.Hi[0])
			}
		}
	}
	if track = curves[0].Track(rate); track.Load || track.Lines[0][4].X != 4000 || track.Spread != "95% interval" {
		t.Errorf("the rate: %+v", track)
	}
}

// A sample that was lost has no latency, so that the percentiles of the others are too good.
func TestLost(t *testing.T) {
	s := session.Sweep(t, "quick", 3)
	m := session.RunOf(t, s, "500-lane-quiet", 2).Measured[0]
	for lost, state := range map[uint64]string{1: "lost 1", 100: "overloaded"} {
		trips := m.Samples["reply"]
		trips.Lost = lost
		m.Samples["reply"] = trips
		sum := summarize(t, s)
		r := Of(&sum)[0].Track(sum.Metrics[0]).Lines[2][1]
		if r.State != state || !r.Over {
			t.Errorf("%d lost: %+v, want %s", lost, r, state)
		}
	}
	m.Void = []string{"the client could not keep up"}
	session.RunOf(t, s, "500-lane-quiet", 2).Measured[0] = m
	sum := summarize(t, s)
	if r := Of(&sum)[0].Track(sum.Metrics[0]).Lines[2][1]; r.Over || r.State != "" {
		t.Errorf("what the client lost is no overload: %+v", r)
	}
}

// What a curve is over depends on the levels alone, wherever the factor stands.
func TestCurveFactors(t *testing.T) {
	for levels, want := range map[string]string{"4 1 2": "1 2 4", "1Mi 64Ki 1Ki": "1Ki 64Ki 1Mi", "1ms 200us 1s": "200us 1ms 1s",
		"1 2 many": "", "1": "", "a b c": "", "NaN 1 2": ""} {
		s := session.Made(t, "quick", 1, nil)
		s.Factors = []results.Factor{{Name: "host"}, {Name: "n"}, {Name: "lane"}}
		for i, name := range strings.Fields(levels) {
			s.Factors[1].Levels = append(s.Factors[1].Levels, results.Level{Name: name})
			for k, lane := range []string{"", "yes"} { // without a level of "lane" the number does not matter
				c := results.Cell{Name: fmt.Sprint(lane, name), Levels: map[string]string{"host": "a", "n": name, "lane": "yes"}}
				if lane == "" {
					c.Levels = map[string]string{"host": "a"}
				}
				if i == 0 || k == 1 {
					s.Cells = append(s.Cells, c)
					s.Runs = append(s.Runs, results.Run{Block: 1, Cell: c.Name})
				}
			}
		}
		s.Factors[0].Levels = []results.Level{{Name: "a"}}
		sum := summarize(t, s)
		found := ""
		for _, c := range Of(&sum) {
			found += strings.Join(c.Levels, " ")
			if i := slices.IndexFunc(c.Lines, func(l Line) bool { return len(l.cells) != len(strings.Fields(levels)) || slices.Contains(l.cells, nil) }); i >= 0 {
				t.Errorf("%s: a line of %d points", levels, len(c.Lines[i].cells))
			}
		}
		if found != want {
			t.Errorf("%q: found a curve over %q, want %q", levels, found, want)
		}
	}
}

func summarize(t *testing.T, s results.Session) figures.Summary {
	t.Helper()
	sum, err := figures.Summarize(s)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
