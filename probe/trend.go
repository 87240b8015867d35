package probe

import (
	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/results"
)

// TrendWord ends the name of the check that Trend describes.
const TrendWord = "-trend"

// Trend is the check of a sampled metric: by how much its median in the second half of the window is longer.
// Where that matters, the machine was not warm yet, or something changed while it was measured.
func Trend(of results.Metric) results.Metric {
	return results.Metric{Name: of.Name + TrendWord, Quantity: "trend", Noun: "second half against the first",
		Title: "Trend", Unit: "%", Better: results.Lower, Margin: of.Margin, Role: results.Check, Guards: of.Name,
		Limit: 100 * of.Margin}
}

// AddTrend adds that check to what was measured. Of an empty half there is none.
func AddTrend(m *results.Measurement, first, second *hdrhistogram.Histogram) {
	before, after := first.ValueAtQuantile(50), second.ValueAtQuantile(50)
	if before <= 0 || after <= 0 {
		return
	}
	if m.Values == nil {
		m.Values = map[string]float64{}
	}
	m.Values[m.Name+TrendWord] = 100 * (float64(after)/float64(before) - 1)
}
