package stats

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The ranks of the literature: Conover, Practical Nonparametric Statistics, 3rd ed., table A3 (n 20), and the
// sample sizes of SamplesFor, from which on there is an upper bound.
func TestQuantileRanks(t *testing.T) {
	if low, high := QuantileRanks(20, 0.5); low != 6 || high != 15 {
		t.Errorf("median of 20: %d and %d, want 6 and 15", low, high)
	}
	for _, p := range []float64{0.5, 0.9, 0.99, 0.999, 0.9999} {
		n := SamplesFor(p)
		if _, high := QuantileRanks(n, p); high != n {
			t.Errorf("p %v of %d samples: rank %d, want the largest", p, n, high)
		}
		if _, high := QuantileRanks(n-1, p); high != 0 {
			t.Errorf("p %v of %d samples: rank %d, want none", p, n-1, high)
		}
	}
	for _, c := range []struct {
		n uint64
		p float64
	}{{0, 0.5}, {100, 0}, {100, 1}, {100, -1}} {
		if low, high := QuantileRanks(c.n, c.p); low != 0 || high != 0 {
			t.Errorf("n %d, p %v: %d and %d, want none", c.n, c.p, low, high)
		}
	}
}

// Each end misses the true quantile in at most 2.5 of 100 samples.
func TestQuantileRanksCover(t *testing.T) {
	const n, p, trials = 1000, 0.99, 4000
	random := rand.New(rand.NewPCG(1, 2))
	low, high := QuantileRanks(n, p)
	below, above := 0, 0
	for range trials {
		x := make([]float64, n)
		for i := range x {
			x[i] = random.Float64() // whose quantile p is p
		}
		slices.Sort(x)
		if x[high-1] < p {
			below++
		}
		if x[low-1] > p {
			above++
		}
	}
	const most = 0.025*trials + 3*10 // three standard deviations of the count
	if below > most || above > most {
		t.Errorf("of %d samples %d bounds from above were too low, and %d from below too high: at most %v each",
			trials, below, above, most)
	}
}
