package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestLeast(t *testing.T) {
	for _, c := range []struct {
		d           Design
		comparisons int
		want        int
	}{
		{Paired, 1, 6}, {Paired, 12, 9}, {Paired, 39, 11}, // 2/2^n
		{Unpaired, 1, 4}, {Unpaired, 12, 6}, {Unpaired, 20, 6}, {Unpaired, 40, 7}, // 2/C(2n,n)
		{Unpaired, 0, 4},
	} {
		if got := c.d.Least(c.comparisons, 0.05); got != c.want {
			t.Errorf("design %d, %d comparisons: %d, want %d", c.d, c.comparisons, got, c.want)
		}
	}
	// Needed returns at least what the tests themselves need.
	x := []float64{11, 12, 13, 14, 15, 16}
	y := []float64{1, 2, 3, 4, 5, 6}
	if p := rankSumP(x, y); math.Abs(p-Unpaired.least(6)) > 1e-12 {
		t.Errorf("unpaired: %g, want %g", Unpaired.least(6), p)
	}
	if p := signedRankP(x); math.Abs(p-Paired.least(6)) > 1e-12 {
		t.Errorf("paired: %g, want %g", Paired.least(6), p)
	}
}

// With as many values as Needed returns, most sessions have a verdict; with a third of them, few.
func TestNeeded(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	margin := Margin{Goal: HigherIsBetter, Size: 0.05, Alpha: 0.05}
	sample := func(n int, ratio float64) Comparison {
		a, b := make([]float64, n), make([]float64, n)
		for i := range n {
			a[i], b[i] = ratio*math.Exp(0.1*r.NormFloat64()), math.Exp(0.1*r.NormFloat64())
		}
		c := Compare(a, b, 0.95)
		Holm([]*Comparison{&c})
		return c
	}
	for _, ratio := range []float64{1, 1.15} {
		half := math.Exp(1.96 * 0.1 * math.Sqrt2 / math.Sqrt(7)) // of the interval of seven values
		c := Comparison{Interval: Interval{Estimate: ratio, Lo: ratio / half, Hi: ratio * half, Confidence: 0.95, N: 7}}
		n := Paired.Needed(c, margin, 7, 1)
		verdicts := func(n int) (some float64) {
			for range 300 {
				if Judge(sample(n, ratio), margin) != Inconclusive {
					some += 1.0 / 300
				}
			}
			return some
		}
		if many, few := verdicts(n), verdicts(n/3); many < 0.6 || few > 0.4 {
			t.Errorf("ratio %g: %d needed; verdicts in %g of the sessions, of those with a third in %g", ratio, n, many, few)
		}
	}
	for name, c := range map[string]struct {
		c    Comparison
		want int
	}{
		"no interval":   {Comparison{Interval: Interval{Estimate: 2, N: 3}}, 6},
		"at the margin": {Comparison{Interval: Interval{Estimate: 1.05, Lo: 0.9, Hi: 1.2, Confidence: 0.95, N: 40}}, MostNeeded},
		"one more":      {Comparison{Interval: Interval{Estimate: 2, Lo: 1.9, Hi: 2.1, Confidence: 0.95, N: 40}}, 41},
	} {
		if got := Paired.Needed(c.c, margin, c.c.N, 1); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
