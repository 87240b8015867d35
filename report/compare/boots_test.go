package compare

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
	"isolane.dev/isolane/test/session"
)

// inBootsOf is a session whose 12 blocks are spread over so many boots of an hour, from a first one on. The rates of a
// cell are so many times as high, and what each boot does by itself comes on top.
func inBootsOf(t *testing.T, first, boots int, factor float64, own func(boot int) float64) results.Session {
	t.Helper()
	s := session.Made(t, "standard", 12, session.SixCells())
	s.Started = s.Started.AddDate(0, 0, first)
	s.Scenario.Boots = boots
	for k := range boots {
		e := s.Environment
		e.BootID = fmt.Sprint(first + k)
		s.Boots = append(s.Boots, e)
	}
	s.Environment = s.Boots[0]
	for i := range s.Runs {
		r := &s.Runs[i]
		r.Boot = s.Scenario.Share(r.Block)
		for _, m := range r.Measured {
			for name := range m.Values {
				m.Values[name] *= factor * own(first+r.Boot)
			}
		}
	}
	return s
}

const lane = "noisy-lane-express"

// Twelve runs of one boot each differ clearly, and say nothing of what was changed: a boot may do as much by itself.
func TestOneBootEach(t *testing.T) {
	own := func(boot int) float64 { return 1 + 0.3*float64(boot) }
	d := compared(t, inBootsOf(t, 0, 1, 1, own), inBootsOf(t, 1, 1, 1, own), false)
	c := d.of(t, lane, "throughput")
	if c.Verdict != stats.Inconclusive || c.Over != "boots" || c.A != (Figure{c.A.Median, 12, 1, ""}) || c.Adjusted != nil {
		t.Errorf("one boot each: %+v", c)
	}
	// Of twelve figures the first has to have p at most 0.05/12: 2 of 924 ways to have six boots above six.
	if c.Needed != 6 || math.Abs(c.Ratio.Estimate-1.3) > 0.01 || c.Ratio.Confidence != 0 || !(c.Ratio.Low < 1.3 && c.Ratio.High > 1.3) {
		t.Errorf("one boot each: %+v", c)
	}
	var b bytes.Buffer
	t.Setenv("COLUMNS", "120")
	d.Write(&b)
	for _, want := range []string{"open: 6 boots", "A verdict needs 4 boots of each"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing:\n%s", want, b.String())
		}
	}
	if one := inBootsOf(t, 0, 1, 1, own); compared(t, one, inBootsOf(t, 0, 1, 2, own), false).of(t, lane, "throughput").Verdict != stats.Better {
		t.Error("twice the throughput in the same boot is not better")
	}
}

// Six boots of each session are enough for twelve figures; five are not, nor six that lie far apart by themselves.
func TestManyBoots(t *testing.T) {
	alike := func(int) float64 { return 1 }
	apart := func(boot int) float64 { return []float64{1, 8}[boot%2] }
	for _, c := range []struct {
		name    string
		boots   [2]int
		own     func(int) float64
		verdict stats.Verdict
		least   int // needed
	}{
		{"six and six", [2]int{6, 6}, alike, stats.Better, 0},
		{"five and five", [2]int{5, 5}, alike, stats.Inconclusive, 6},
		{"six and three", [2]int{6, 3}, alike, stats.Inconclusive, 6},
		{"six that lie apart", [2]int{6, 6}, apart, stats.Inconclusive, 20},
	} {
		d := compared(t, inBootsOf(t, 0, c.boots[0], 1, c.own), inBootsOf(t, 10, c.boots[1], 2, c.own), false)
		got := d.of(t, lane, "throughput")
		if got.Verdict != c.verdict || got.Needed < c.least || c.least == 0 && got.Needed != 0 || got.A.Boots != c.boots[0] || got.B.Boots != c.boots[1] {
			t.Errorf("%s: %+v", c.name, got)
		}
		if !(got.Ratio.Estimate > 1.9 && got.Ratio.Estimate < 2.1) && c.name != "six that lie apart" {
			t.Errorf("%s: %+v", c.name, got.Ratio)
		}
	}
}

// Of a boot the geometric mean counts: a block that is four times as high is one of two.
func TestByBoot(t *testing.T) {
	a, b := inBootsOf(t, 0, 6, 1, func(int) float64 { return 1 }), inBootsOf(t, 10, 6, 1, func(int) float64 { return 1 })
	for _, s := range []results.Session{a, b} {
		for i := range s.Runs {
			for _, m := range s.Runs[i].Measured {
				for name := range m.Values {
					m.Values[name] = 100
				}
			}
		}
	}
	for block := 1; block <= 12; block += 2 {
		for _, m := range session.RunOf(t, b, lane, block).Measured {
			for name := range m.Values {
				m.Values[name] = 400
			}
		}
	}
	if c := compared(t, a, b, false).of(t, lane, "throughput"); math.Abs(c.Ratio.Estimate-2) > 1e-9 {
		t.Errorf("a boot of 400 and 100 against one of 100: %+v", c)
	}
}

// What differs is that of all boots.
func TestConditionsOfBoots(t *testing.T) {
	alike := func(int) float64 { return 1 }
	a, b := inBootsOf(t, 0, 2, 1, alike), inBootsOf(t, 10, 2, 1, alike)
	a.Boots[1].Cmdline, b.Boots[1].Cmdline = "isolcpus=1 quiet", "quiet isolcpus=1"
	a.Boots[1].Kernel, b.Boots[1].IdleGov = "6.18", "teo"
	d := compared(t, a, b, false)
	for _, want := range []Difference{
		{"environment: kernel", "6.12.0 #1 SMP, then 6.18", "6.12.0 #1 SMP"},
		{"environment: idle governor", "none", ", then teo"},
	} {
		if !slices.Contains(d.Differences, want) {
			t.Errorf("%+v is not said: %+v", want, d.Differences)
		}
	}
}
