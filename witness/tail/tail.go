// Package tail says which part of the worst samples of a measurement is explained by what intruded meanwhile.
// It only computes, from what a witness has recorded.
package tail

import (
	"math"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Of relates the longest samples of a measurement to what intruded meanwhile: those from P99.9 on if the
// sample supports that, else from P99 on, else the longest hundredth. It returns nil if there are no samples,
// or if why says why not.
func Of(m results.Measurement, all []Intrusion, lost uint64) (t *results.Tail, why string, err error) {
	samples, ok := m.Samples[m.Name]
	if !ok {
		return nil, "", nil // no tail is no error
	}
	latency, err := samples.Histogram.Decode()
	if err != nil || latency.TotalCount() == 0 {
		return nil, "", err
	}
	if len(m.Worst) == 0 {
		return nil, m.Name + ": when its longest samples were, and on which CPU, is not known", nil
	}
	n := uint64(latency.TotalCount())
	of, quantile := 0.99, 0.0
	switch {
	case n >= stats.SamplesFor(0.999):
		of, quantile = 0.999, 0.999
	case n >= stats.SamplesFor(0.99):
		quantile = 0.99
	}
	from := int(n) - int(math.Ceil(of*float64(n))) + 1
	known := min(from, len(m.Worst))
	found, why := Explain(m.Worst[:known], results.Nanoseconds(latency.ValueAtQuantile(50)), all)
	if why != "" {
		return nil, m.Name + ": " + why, nil
	}
	found.Quantile, found.Missing, found.Lost = quantile, from-known, lost
	return &found, "", nil
}
