package probe

import (
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/results"
)

// TrendWord is the suffix of the name of the check that Trend returns.
const TrendWord = "-trend"

// Trend returns the check of a metric: by how much its median is longer, or its rate higher, in the second
// half of the window. If that is a lot, the machine was not yet warm, or something changed during the
// measurement.
func Trend(of results.Metric) results.Metric {
	return results.Metric{Name: of.Name + TrendWord, Quantity: "trend", Noun: "second half against the first",
		Title: "Trend", Unit: "%", Better: results.Lower, Margin: of.Margin, Role: results.Check, Guards: of.Name,
		Limit: 100 * of.Margin, Trend: true}
}

// AddTrend adds that check to a measurement. It is 0 if the 95% intervals of both medians overlap, because
// then the difference may be chance. If a half is empty, there is no check.
func AddTrend(m *results.Measurement, first, second *hdrhistogram.Histogram) {
	before, after := float64(first.ValueAtQuantile(50)), float64(second.ValueAtQuantile(50))
	least, most := medianInterval(first)
	if from, to := medianInterval(second); from <= most && to >= least {
		after = before
	}
	AddTrendOf(m, before, after)
}

// medianInterval returns the 95% interval of a median by the ranks of the sign test, which are binomial and
// so nearly normal (Conover, Practical Nonparametric Statistics, 3.2).
func medianInterval(h *hdrhistogram.Histogram) (least, most int64) {
	beside := min(50, 98/math.Sqrt(float64(h.TotalCount()))) // 1.96 standard deviations of the rank, in percent
	return h.ValueAtQuantile(50 - beside), h.ValueAtQuantile(50 + beside)
}

// AddTrendOf is AddTrend for a figure of each half. If one is NaN, there is no check.
func AddTrendOf(m *results.Measurement, first, second float64) {
	if !(first > 0 && second > 0) {
		return
	}
	if m.Values == nil {
		m.Values = map[string]float64{}
	}
	m.Values[m.Name+TrendWord] = 100 * (second/first - 1)
}
