package evidence

import (
	"math"
	"slices"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Way is how long a cache line took between client and application while something was measured.
type Way struct {
	Block int
	Took  float64 // nanoseconds, the median
}

// FarApart reports whether a cache line took so much longer at one time than at the other that the CPUs
// cannot have been as far from each other.
func FarApart(a, b float64) bool {
	const steps = 2 * 16 // nanoseconds, of results.CacheLine
	return max(a, b) >= 2*min(a, b) && math.Abs(a-b) >= steps
}

// Ways returns the way in each block while the named metrics were measured; none where it is unknown, or
// where it was not alike for all of them.
func Ways(used []results.Run, metrics ...string) (all []Way) {
	for _, r := range used {
		var took []float64
		for _, m := range r.Measured {
			if m.CacheLine != nil && slices.ContainsFunc(metrics, m.Has) {
				took = append(took, float64(m.CacheLine.Median))
			}
		}
		if len(took) > 0 && !FarApart(slices.Min(took), slices.Max(took)) {
			all = append(all, Way{r.Block, stats.Median(took)})
		}
	}
	return all
}
