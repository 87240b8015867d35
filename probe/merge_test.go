package probe

import (
	"strings"
	"testing"

	"isolane.dev/isolane/results"
)

// one returns a measurement of some latencies at a rate.
func one(t *testing.T, rate float64, latencies ...int64) results.Measurement {
	t.Helper()
	h := NewHistogram()
	var longest Longest
	for _, l := range latencies {
		Record(h, l)
		longest.Add(0, l)
	}
	text, err := results.Encode(h)
	if err != nil {
		t.Fatal(err)
	}
	return results.Measurement{Name: "get", Window: 1000, Values: map[string]float64{"get-rate": rate}, Worst: longest.Samples(),
		Samples: map[string]results.Samples{"get": {Wanted: uint64(len(latencies)) + 1, Lost: 1, Histogram: text}}, Facts: map[string]string{"arrivals": "paced"}}
}

func sum(_ string, all []float64) (v float64) {
	for _, x := range all {
		v += x
	}
	return v
}

// Merging the measurements of several instances loses nothing and counts nothing twice. What is wrong with
// one is said once, with its number.
func TestMerge(t *testing.T) {
	a, b := one(t, 3, 100, 200, 300), one(t, 2, 900, 1000)
	for i := range b.Worst {
		b.Worst[i].CPU = new(int)
	}
	b.Facts["arrivals"] = "poisson"
	m, err := Merge("get", []results.Measurement{a, b}, sum)
	if err != nil {
		t.Fatal(err)
	}
	s := m.Samples["get"]
	h, err := s.Histogram.Decode()
	if err != nil || s.Wanted != 7 || s.Lost != 2 || h.TotalCount() != 5 || h.Max() != 1000 || h.Min() != 100 {
		t.Errorf("%v, wanted %d, lost %d, histogram of %d", err, s.Wanted, s.Lost, h.TotalCount())
	}
	if m.Values["get-rate"] != 5 || len(m.Void) > 0 || len(m.Worst) != 5 || m.Worst[0].End != 1000 || m.Worst[0].CPU == nil || m.Worst[2].CPU != nil {
		t.Errorf("%+v", m)
	}
	if m.Facts["arrivals"] != "paced" || m.Facts["arrivals of instance 2"] != "poisson" {
		t.Errorf("facts %q", m.Facts)
	}
	for common, begin := range map[string]results.Nanoseconds{"": 7050, "94%": 7060, "0%": 9000} {
		a.Begin, b.Begin = begin, 7000
		if m, err = Merge("get", []results.Measurement{a, b}, sum); err != nil || m.Begin != begin || (common == "") != (len(m.Void) == 0) ||
			!strings.Contains(strings.Join(m.Void, ""), common) {
			t.Errorf("windows of 1000 that begin at 7000 and %d: begin %d, void %q, %v", begin, m.Begin, m.Void, err)
		}
	}
	a.Begin, b.Begin = 0, 0
	c := one(t, 1, 5)
	b.NotCarried("no replies")
	c.NotCarried("overloaded")
	c.ClientLate("late")
	if m, err = Merge("get", []results.Measurement{a, b, c}, sum); err != nil {
		t.Fatal(err)
	}
	void := strings.Join(m.Void, "; ")
	if void != "instance 2: no replies (2 of 3 instances are so); instance 3: late" || len(m.Overloaded) != 1 || len(m.Late) != 1 {
		t.Errorf("void %q, overloaded %q, late %q", void, m.Overloaded, m.Late)
	}
	if s := m.Samples["get"]; s.Wanted != 9 || s.Histogram != "" || m.Worst != nil {
		t.Errorf("the latencies of an overloaded measurement are told: %+v", s)
	}
	if m, err = Merge("get", []results.Measurement{b}, sum); err != nil || m.Void[0] != "no replies" {
		t.Errorf("%v, %q", err, m.Void)
	}
}
