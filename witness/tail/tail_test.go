package tail

import (
	"testing"

	"isolane.dev/isolane/results"
)

// The samples are those from the highest percentile on that so many support, P99.9 at most, as far as they
// were kept.
func TestTail(t *testing.T) {
	for _, c := range []struct {
		n, samples, missing int
		quantile            float64
	}{{1, 1, 0, 0}, {99, 1, 0, 0}, {367, 4, 0, 0}, {368, 4, 0, 0.99}, {3687, 37, 0, 0.99}, {3688, 4, 0, 0.999}, {100_000, 64, 37, 0.999}} {
		h := results.NewHistogram()
		m, trips := results.Measurement{Name: "rtt"}, results.Samples{}
		for i := range c.n {
			if err := h.RecordValue(1000); err != nil {
				t.Fatal(err)
			}
			if i < 64 {
				m.Worst = append(m.Worst, results.Sample{Begin: 5000, End: 8000})
			}
		}
		var err error
		if trips.Histogram, err = results.Encode(h); err != nil {
			t.Fatal(err)
		}
		m.Samples = map[string]results.Samples{"rtt": trips}
		if got, why, werr := Of(results.Measurement{Name: "rtt", Samples: m.Samples}, nil, 0); got != nil || why == "" || werr != nil {
			t.Errorf("of %d that nobody knows: %+v, %q, %v", c.n, got, why, werr)
		}
		got, _, err := Of(m, []Intrusion{{Kind: results.Task, Name: "a", Begin: 5000, End: 6000}}, 3)
		if err != nil {
			t.Fatal(err)
		}
		if got.Samples != c.samples || got.Missing != c.missing || got.Quantile != c.quantile || got.Lost != 3 ||
			got.Met[0].Took != results.Nanoseconds(1000*c.samples) {
			t.Errorf("of %d: %+v", c.n, got)
		}
	}
	if got, why, err := Of(results.Measurement{Name: "rtt"}, nil, 0); got != nil || why != "" || err != nil {
		t.Errorf("of nothing: %+v, %q, %v", got, why, err)
	}
}
