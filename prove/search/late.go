package search

import "isolane.dev/isolane/results"

// few is the share of samples that is ignored here.
const few = 0.001

// BeyondClient reports whether latencies exceed a bound at a quantile, whatever a late client has added. A
// client is late by its lag when it sends, and may be as late when it receives. So twice the lag of all but
// few messages is subtracted, and for each of the two as many of the worst samples are left out.
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
