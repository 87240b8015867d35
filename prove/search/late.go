package search

import "isolane.dev/isolane/results"

// few is the share of samples of which nothing is asked here.
const few = 0.001

// BeyondClient reports whether latencies are beyond a bound at a quantile, whatever a late client has added.
// It is late by its lag when it sends, and may be as late when it receives: twice the lag that all but a few
// of the messages had is taken off, and as many of the worst samples are left out for either.
func BeyondClient(s results.Samples, quantile, bound float64) (bool, error) {
	lag, err := s.Lag.Decode()
	if err != nil || lag.TotalCount() == 0 || quantile <= 2*few {
		return false, err
	}
	all, err := s.Histogram.Decode()
	if err != nil {
		return false, err
	}
	added := 2 * results.Percentile(lag, 1-few, 0)
	return results.Percentile(all, quantile-2*few, s.Lost)-added > bound, nil
}
