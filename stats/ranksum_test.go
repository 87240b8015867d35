package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Hollander and Wolfe, table 4.1: permeability of placental membranes at term and at 12 to 26 weeks. The rank
// sum of the second sample is 30, P(W <= 30) is 0.127, and the estimate is 0.305 with an interval of
// (-0.15, 0.76) at 96%.
func TestRankSumWorkedExample(t *testing.T) {
	term := []float64{0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46}
	early := []float64{1.15, 0.88, 0.90, 0.74, 1.21}
	if p := rankSumP(term, early); !near(p, 2*0.1272, 0.0001) {
		t.Errorf("p = %v, want %v", p, 2*0.1272)
	}
	if i := shift(term, early, 0.95); !near(i.Estimate, 0.305, 1e-9) || !near(i.Lo, -0.15, 1e-9) || !near(i.Hi, 0.76, 1e-9) || !near(i.Confidence, 0.96, 0.005) {
		t.Errorf("got %+v", i)
	}
}

// One more than the published critical values of the Mann-Whitney U at 5%, two-sided: 0 at four each, 2 at
// five, 5 at six, 13 at eight, 23 at ten, 127 at twenty, 8 at five and ten. Three each have none.
func TestCriticalCount(t *testing.T) {
	for _, c := range [][3]int{{3, 3, 0}, {4, 4, 1}, {5, 5, 3}, {6, 6, 6}, {8, 8, 14}, {10, 10, 24}, {20, 20, 128}, {5, 10, 9}, {10, 5, 9}, {0, 9, 0}} {
		if k, _ := criticalCount(c[0], c[1], 0.025); k != c[2] {
			t.Errorf("%d and %d: k = %d, want %d", c[0], c[1], k, c[2])
		}
	}
	exact, _ := criticalCount(exactUpTo, exactUpTo, 0.025)
	if normal, _ := criticalCount(exactUpTo, exactUpTo+1, 0.025); normal < exact || normal > exact+exactUpTo {
		t.Errorf("k = %d just above the exact ones, %d at their end", normal, exact)
	}
}

// The distribution equals that of all choices of n of the ranks, with ties.
func TestRankSumsAgainstAllChoices(t *testing.T) {
	for _, x := range [][]float64{{1, 2, 3, 4, 5}, {1, 1, 2, 3, 3, 3, 7}, {2, 2, 2, 2}, {5, 4, 4, 4, 9, 9, 1, 0, 0, 3}} {
		ranks := doubledMidranksOf(x)
		for n := 1; n < len(x); n++ {
			got := rankSums(ranks, n)
			want, choices := make([]float64, len(got)), 0.0
			for chosen := range 1 << len(x) {
				sum, count := 0, 0
				for i, r := range ranks {
					if chosen&(1<<i) != 0 {
						sum, count = sum+r, count+1
					}
				}
				if count == n {
					want[sum]++
					choices++
				}
			}
			for s := range want {
				if !near(got[s], want[s]/choices, 1e-12) {
					t.Errorf("%v, %d: P(%d/2) = %v, want %v", x, n, s, got[s], want[s]/choices)
				}
			}
		}
	}
}

func TestUnpairedEdges(t *testing.T) {
	if c := CompareUnpaired(nil, []float64{1}, 0.95); c.Known() || c.P != 1 || c.Confidence != 0 {
		t.Errorf("no values: %+v", c)
	}
	c := CompareUnpaired([]float64{2, 4, 8}, []float64{1, 2, 4}, 0.95)
	if !near(c.Estimate, 2, 1e-12) || c.Lo != 0 || !math.IsInf(c.Hi, 1) || c.Confidence != 0 || c.N != 6 || len(c.Warnings) != 1 {
		t.Errorf("three each: %+v", c)
	}
	c = CompareUnpaired([]float64{2, 2, 2, 2, 0, math.NaN()}, []float64{2, 2, 2, 2, -1, math.Inf(1)}, 0.95)
	if c.N != 8 || c.Estimate != 1 || c.P != 1 || len(c.Warnings) != 1 {
		t.Errorf("bad values and ties: %+v", c)
	}
	many := make([]float64, exactUpTo+1)
	if p := rankSumP(many, many); p != 1 {
		t.Errorf("many equal ones: p = %v", p)
	}
}

// The normal approximation continues the exact distribution.
func TestRankSumManyValues(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 20 {
		x, y := make([]float64, exactUpTo), make([]float64, exactUpTo)
		for i := range x {
			x[i], y[i] = math.Round(10*r.NormFloat64()), math.Round(10*r.NormFloat64()+3)
		}
		ranks, sum := doubledMidranksOf(slices.Concat(x, y)), 0
		for _, v := range ranks[:len(x)] {
			sum += v
		}
		if exact, normal := rankSumP(x, y), normalRankSumP(sum, ranks, len(x)); !near(exact, normal, 0.01) {
			t.Errorf("exact p = %v, normal approximation %v", exact, normal)
		}
	}
}

// The estimate follows shift and scale, turns with the samples, and the interval excludes a shift exactly where
// the test rejects it.
func TestUnpairedProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := rapid.IntRange(4, 20).Draw(t, "n"), rapid.IntRange(4, 20).Draw(t, "m")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		x, y := make([]float64, n), make([]float64, m)
		for k := range x {
			x[k] = 100 * r.NormFloat64()
		}
		for k := range y {
			y[k] = 100 * r.NormFloat64()
		}
		i, turned := shift(x, y, 0.95), shift(y, x, 0.95)
		if !near(i.Estimate, -turned.Estimate, 1e-9) || !near(i.Lo, -turned.Hi, 1e-9) || !near(i.Hi, -turned.Lo, 1e-9) {
			t.Fatalf("%+v turned is %+v", i, turned)
		}
		const eps = 1e-9
		after := func(by float64) float64 {
			moved := slices.Clone(x)
			for k := range moved {
				moved[k] -= by
			}
			return rankSumP(moved, y)
		}
		if i.Hi-i.Lo > 4*eps {
			if p := after(i.Lo - eps); p > 0.05 {
				t.Fatalf("below the interval: p = %v, %+v", p, i)
			}
			if p := after(i.Lo + eps); p <= 0.05 {
				t.Fatalf("within the interval: p = %v, %+v", p, i)
			}
		}
	})
}

// Two sessions of one configuration are called different in at most 7% of the pairs, and in at most 7% anywhere
// among five cells with Holm's adjustment, where nothing drifts; one that is 5% better is found. With drift from
// the one session to the other the methods find the drift: that is what compare warns of.
func TestUnpairedFalseAlarmsAndPower(t *testing.T) {
	const sessions, cells, blocks = 1500, 5, 10
	r := rand.New(rand.NewPCG(3, 3))
	sample := func(level float64) []float64 {
		x := make([]float64, blocks)
		for k := range x {
			x[k] = level * math.Exp(0.03*r.NormFloat64())
			if r.Float64() < 0.05 {
				x[k] *= 1.25
			}
		}
		return x
	}
	different := func(c Comparison) bool { return c.Lo > 1 || c.Hi < 1 }
	single, family, found, covered, drifted := 0, 0, 0, 0, 0
	for range sessions {
		var all []*Comparison
		for range cells {
			c := CompareUnpaired(sample(7), sample(7), 0.95)
			all = append(all, &c)
		}
		Holm(all)
		if different(*all[0]) {
			single++
		}
		if slices.ContainsFunc(all, func(c *Comparison) bool { return c.Adjusted <= 0.05 }) {
			family++
		}
		c := CompareUnpaired(sample(1.05), sample(1), 0.95)
		if c.Lo > 1 {
			found++
		}
		if c.Lo <= 1.05 && c.Hi >= 1.05 {
			covered++
		}
		if different(CompareUnpaired(sample(1.03), sample(1), 0.95)) {
			drifted++
		}
	}
	rate := func(n int) float64 { return 100 * float64(n) / sessions }
	if rate(single) > 7 || rate(family) > 7 {
		t.Errorf("%.1f%% false alarms, %.1f%% over %d cells with Holm", rate(single), rate(family), cells)
	}
	if rate(found) < 75 || rate(covered) < 94 {
		t.Errorf("5%% better is found in %.1f%%, and within the interval in %.1f%%", rate(found), rate(covered))
	}
	if rate(drifted) < 20 {
		t.Errorf("drift of 3%%: only %.1f%% are called different: this simulation shows nothing", rate(drifted))
	}
}
