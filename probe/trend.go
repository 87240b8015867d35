package probe

import (
	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/results"
)

// TrendWord ends the name of the check that Trend describes.
const TrendWord = "-trend"

// Trend is the check of a metric: by how much its median in the second half of the window is longer, or the
// rate higher. Where that matters, the machine was not warm yet, or something changed while it was measured.
func Trend(of results.Metric) results.Metric {
	return results.Metric{Name: of.Name + TrendWord, Quantity: "trend", Noun: "second half against the first",
		Title: "Trend", Unit: "%", Better: results.Lower, Margin: of.Margin, Role: results.Check, Guards: of.Name,
		Limit: 100 * of.Margin, Trend: true}
}

// AddTrend adds that check to what was measured. Of an empty half there is none.
func AddTrend(m *results.Measurement, first, second *hdrhistogram.Histogram) {
	AddTrendOf(m, float64(first.ValueAtQuantile(50)), float64(second.ValueAtQuantile(50)))
}

// AddTrendOf is AddTrend of a figure of each half. Of NaN there is none.
func AddTrendOf(m *results.Measurement, first, second float64) {
	if !(first > 0 && second > 0) {
		return
	}
	if m.Values == nil {
		m.Values = map[string]float64{}
	}
	m.Values[m.Name+TrendWord] = 100 * (second/first - 1)
}
