package probe

import (
	"math"
	"testing"

	"isolane.dev/isolane/results"
)

// A second half that takes half as long again is beyond what a metric allows; a steady one is not.
func TestTrend(t *testing.T) {
	check := Trend(results.Metric{Name: "trip", Margin: 0.1})
	for _, c := range []struct {
		second int64
		want   float64
		beyond bool
	}{{10_000, 0, false}, {15_000, 50, true}, {5_000, -50, true}} {
		first, second := NewHistogram(), NewHistogram()
		for range 100 {
			Record(first, 10_000)
			Record(second, c.second)
		}
		m := results.Measurement{Name: "trip"}
		AddTrend(&m, first, second)
		got := m.Values[check.Name]
		if math.Abs(got-c.want) > 0.2 || (math.Abs(got) > check.Limit) != c.beyond || check.Guards != "trip" {
			t.Errorf("%d ns: %g%% of %+v, want %g%%", c.second, got, check, c.want)
		}
	}
	// Of 100 samples the median alone says little: a quarter more may be chance, half more is not.
	for more, want := range map[int64]float64{12: 0, 25: 50} {
		first, second := NewHistogram(), NewHistogram()
		for i := range int64(100) {
			Record(first, 1000*(i+1))
			Record(second, 1000*(i+1+more))
		}
		m := results.Measurement{Name: "trip"}
		if AddTrend(&m, first, second); math.Abs(m.Values[check.Name]-want) > 0.5 {
			t.Errorf("medians of 50 and %d µs: %g%%, want %g%%", 50+more, m.Values[check.Name], want)
		}
	}
	m := results.Measurement{Name: "trip"}
	if AddTrend(&m, NewHistogram(), NewHistogram()); len(m.Values) > 0 {
		t.Errorf("nothing has no trend: %v", m.Values)
	}
}
