package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

// Hollander and Wolfe, table 3.1: depression factors of nine patients before and after a
// tranquilizer. T+ of after minus before is 5; the exact two-sided p is 0.039 (20 of 512 sign
// patterns); the estimate is -0.46, and the interval at 96.1% is (-0.786, -0.010).
func TestWorkedExample(t *testing.T) {
	before := []float64{1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30}
	after := []float64{0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29}
	var d []float64
	for i := range before {
		d = append(d, after[i]-before[i])
	}
	if p := signedRankP(d); !near(p, 20.0/512, 1e-12) {
		t.Errorf("p = %v, want %v", p, 20.0/512)
	}
	i := signedRank(d, 0.96)
	if !near(i.Estimate, -0.46, 0.0005) || !near(i.Lo, -0.786, 0.0005) || !near(i.Hi, -0.010, 0.0005) || !near(i.Confidence, 0.961, 0.0005) {
		t.Errorf("got %+v", i)
	}
}

// The rank k at 95%: none at 5, then as in the published tables of the signed-rank statistic.
func TestCriticalRank(t *testing.T) {
	for n, want := range map[int]int{5: 0, 6: 1, 7: 3, 8: 4, 9: 6, 10: 9, 20: 53} {
		if k, _ := criticalRank(n, 0.025); k != want {
			t.Errorf("n = %d: k = %d, want %d", n, k, want)
		}
	}
}

// The distribution equals that of all 2^n sign patterns, with ties.
func TestNullDistributionAgainstAllSigns(t *testing.T) {
	for _, d := range [][]float64{{1, 2, 3, 4, 5}, {1, 1, 2, 3, 3, 3}, {2, 2, 2, 2}, {1, -2, 3, -4, 5, 6, 7, 8, 9, 10, 11, 11}} {
		ranks := doubledMidranks(d)
		got := nullDistribution(ranks)
		want := make([]float64, len(got))
		for signs := range 1 << len(d) {
			sum := 0
			for i, r := range ranks {
				if signs&(1<<i) != 0 {
					sum += r
				}
			}
			want[sum] += 1 / float64(int(1)<<len(d))
		}
		for v := range want {
			if !near(got[v], want[v], 1e-12) {
				t.Errorf("%v: P(%d/2) = %v, want %v", d, v, got[v], want[v])
			}
		}
	}
}

func TestEdges(t *testing.T) {
	if i := signedRank(nil, 0.95); !math.IsNaN(i.Estimate) || i.Confidence != 0 {
		t.Errorf("no values: %+v", i)
	}
	// Walsh averages of ln 1, ln 2, ln 3: the middle two are ln √3 and ln 2, so the estimate is √(2√3).
	if i := Compare([]float64{1, 2, 3}, []float64{1, 1, 1}, 0.95); !near(i.Estimate, math.Sqrt(2*math.Sqrt(3)), 1e-12) ||
		i.Lo != 0 || !math.IsInf(i.Hi, 1) || i.Confidence != 0 || len(i.Warnings) != 1 {
		t.Errorf("three blocks: %+v", i)
	}
	i := Compare([]float64{1, 0, math.NaN(), 2, 2, 2, 2, 2, 2}, []float64{1, 1, 1, 1, 1, 1, 1, 1, math.Inf(1)}, 0.95)
	if i.N != 6 || len(i.Warnings) != 1 || i.Estimate != 2 {
		t.Errorf("bad pairs: %+v", i)
	}
	if p := signedRankP([]float64{0, 0, 0}); p != 1 {
		t.Errorf("all equal to the centre: p = %v", p)
	}
}

func TestHolm(t *testing.T) {
	// Four p-values: 0.005×4, 0.01×3, then 0.03×2 and 0.04×1, which may not be below it.
	var family []*Comparison
	for _, p := range []float64{0.01, 0.04, 0.03, 0.005, math.NaN()} {
		family = append(family, &Comparison{P: p, Adjusted: math.NaN()})
	}
	Holm(family)
	for i, want := range []float64{0.03, 0.06, 0.06, 0.02} {
		if got := family[i].Adjusted; !near(got, want, 1e-12) {
			t.Errorf("adjusted p %d = %v, want %v", i, got, want)
		}
	}
	if got := family[4].Adjusted; !math.IsNaN(got) {
		t.Errorf("NaN became %v", got)
	}
}

func TestSamplesFor(t *testing.T) {
	for p, want := range map[float64]uint64{0.5: 6, 0.9: 36, 0.99: 368, 0.999: 3688, 0.9999: 36888, 0.99999: 368887} {
		if got := SamplesFor(p); got != want && got != want-1 {
			t.Errorf("P%g: %d samples, want %d", 100*p, got, want)
		}
		if n := SamplesFor(p); 1-math.Pow(p, float64(n)) < 0.975 || 1-math.Pow(p, float64(n-1)) >= 0.975 {
			t.Errorf("P%g: %d is not the least", 100*p, n)
		}
	}
	if SupportedQuantile(5) != 0 || SupportedQuantile(3688) != 0.999 || SupportedQuantile(3687) != 0.99 {
		t.Error("wrong quantiles supported")
	}
}

func TestJudge(t *testing.T) {
	i := func(lo, e, hi float64) Interval {
		return Interval{Estimate: e, Lo: lo, Hi: hi, Confidence: 0.95, N: 10}
	}
	for _, c := range []struct {
		name   string
		ratio  Interval
		p      float64
		goal   Goal
		expect Verdict
	}{
		{"clearly more", i(1.4, 1.5, 1.6), 0.01, HigherIsBetter, Better},
		{"clearly more latency", i(1.4, 1.5, 1.6), 0.01, LowerIsBetter, Worse},
		{"clearly less latency", i(0.4, 0.5, 0.6), 0.01, LowerIsBetter, Better},
		{"not after Holm", i(1.4, 1.5, 1.6), 0.06, HigherIsBetter, Inconclusive},
		{"wide", i(0.9, 1.5, 2.6), 0.01, HigherIsBetter, Inconclusive},
		{"within the margin", i(0.97, 1, 1.03), 0.9, HigherIsBetter, Equivalent},
		{"different, within the margin", i(1.01, 1.02, 1.03), 0.001, HigherIsBetter, Equivalent},
		{"before Holm", i(1.4, 1.5, 1.6), math.NaN(), HigherIsBetter, Inconclusive},
		{"three blocks", Interval{Estimate: 9, Lo: 0, Hi: math.Inf(1), N: 3}, 0.25, HigherIsBetter, Inconclusive},
	} {
		compared := Comparison{Interval: c.ratio, Adjusted: c.p}
		if got := Judge(compared, Margin{Goal: c.goal, Size: 0.05, Alpha: 0.05}); got != c.expect {
			t.Errorf("%s: %s, want %s", c.name, got, c.expect)
		}
	}
}

// The estimate follows shift and scale and does not depend on the order, and the interval excludes
// a centre exactly where the test rejects it.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(6, 20).Draw(t, "n")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		x := make([]float64, n) // without ties, for which test and interval need not agree
		for k := range x {
			x[k] = 100 * r.NormFloat64()
		}
		a, b := rapid.Float64Range(-10, 10).Draw(t, "a"), rapid.Float64Range(0.1, 10).Draw(t, "b")
		i := signedRank(x, 0.95)
		moved := make([]float64, len(x))
		for k := range x {
			moved[len(x)-1-k] = a + b*x[k]
		}
		if m := signedRank(moved, 0.95); !near(m.Estimate, a+b*i.Estimate, 1e-6) || !near(m.Lo, a+b*i.Lo, 1e-6) || !near(m.Hi, a+b*i.Hi, 1e-6) {
			t.Fatalf("%+v moved by %v×+%v: %+v", i, b, a, m)
		}
		const eps = 1e-9
		around := func(centre float64) float64 {
			for k := range x {
				moved[k] = x[k] - centre
			}
			return signedRankP(moved)
		}
		if i.Hi-i.Lo > 4*eps {
			if p := around(i.Lo - eps); p > 0.05 {
				t.Fatalf("below the interval: p = %v, %+v", p, i)
			}
			if p := around(i.Lo + eps); p <= 0.05 {
				t.Fatalf("within the interval: p = %v, %+v", p, i)
			}
		}
	})
}

// session simulates one session of identical cells: what a block's runs give, in random order
// within each block, under a disturbance that grows over the session.
func session(r *rand.Rand, cells, blocks int, disturb func(r *rand.Rand, at float64) float64) [][]float64 {
	x := make([][]float64, cells)
	for block := range blocks {
		for place, c := range r.Perm(cells) {
			at := float64(block*cells+place) / float64(blocks*cells)
			x[c] = append(x[c], disturb(r, at)*math.Exp(0.03*r.NormFloat64()))
		}
	}
	return x
}

func disturbances() map[string]func(*rand.Rand) func(*rand.Rand, float64) float64 {
	return map[string]func(*rand.Rand) func(*rand.Rand, float64) float64{
		"drift of 6%": func(*rand.Rand) func(*rand.Rand, float64) float64 {
			return func(_ *rand.Rand, at float64) float64 { return 1 + 0.06*at }
		},
		"random walk of 1% a run": func(*rand.Rand) func(*rand.Rand, float64) float64 {
			level := 0.0
			return func(r *rand.Rand, _ float64) float64 {
				level += 0.01 * r.NormFloat64()
				return math.Exp(level)
			}
		},
		"5% outliers of +25%": func(*rand.Rand) func(*rand.Rand, float64) float64 {
			return func(r *rand.Rand, _ float64) float64 {
				if r.Float64() < 0.05 {
					return 1.25
				}
				return 1
			}
		},
	}
}

// Identical configurations are called different in at most 6% of the sessions: one cell against
// the baseline without adjustment, and any of five cells with Holm's.
func TestFalseAlarms(t *testing.T) {
	const sessions, cells = 4000, 6
	for name, make := range disturbances() {
		for _, blocks := range []int{10, 20} {
			r := rand.New(rand.NewPCG(1, uint64(blocks)))
			single, family := 0, 0
			for range sessions {
				x := session(r, cells, blocks, make(r))
				if i := Compare(x[1], x[0], 0.95); i.Lo > 1 || i.Hi < 1 {
					single++
				}
				var all []*Comparison
				for c := 1; c < cells; c++ {
					compared := Compare(x[c], x[0], 0.95)
					all = append(all, &compared)
				}
				Holm(all)
				if slices.ContainsFunc(all, func(c *Comparison) bool { return c.Adjusted <= 0.05 }) {
					family++
				}
			}
			if rate := float64(single) / sessions; rate > 0.06 {
				t.Errorf("%s, %d blocks: %.1f%% false alarms", name, blocks, 100*rate)
			}
			if rate := float64(family) / sessions; rate > 0.06 {
				t.Errorf("%s, %d blocks: %.1f%% false alarms over %d cells with Holm", name, blocks, 100*rate, cells-1)
			}
		}
	}
}

// What the blocks are for: all runs of one cell and then all of the other, under the same drift,
// differ in more than a fifth of the sessions. And a cell that is 5% better is found.
func TestBlockedOrderAndPower(t *testing.T) {
	const sessions, blocks = 2000, 10
	r := rand.New(rand.NewPCG(2, 2))
	blocked, found := 0, 0
	for range sessions {
		var a, b []float64
		for k := range 2 * blocks {
			v := (1 + 0.06*float64(k)/(2*blocks)) * math.Exp(0.03*r.NormFloat64())
			if k < blocks {
				a = append(a, v)
			} else {
				b = append(b, v)
			}
		}
		if i := Compare(b, a, 0.95); i.Lo > 1 || i.Hi < 1 {
			blocked++
		}
		x := session(r, 2, blocks, disturbances()["drift of 6%"](r))
		for k := range x[1] {
			x[1][k] *= 1.05
		}
		if i := Compare(x[1], x[0], 0.95); i.Lo > 1 {
			found++
		}
	}
	if rate := float64(blocked) / sessions; rate < 0.2 {
		t.Errorf("blocked order: only %.1f%% false alarms: this simulation shows nothing", 100*rate)
	}
	if rate := float64(found) / sessions; rate < 0.85 {
		t.Errorf("a cell that is 5%% better is found in %.1f%% of the sessions", 100*rate)
	}
}

// The quantiles are those of tables, and one run with all that was late weighs more than the same in each.
func TestUpperMean(t *testing.T) {
	for free, want := range map[float64]float64{5: 2.5706, 9: 2.2622, 19: 2.0930} {
		if got := student(0.95, free); math.Abs(got/want-1) > 0.002 {
			t.Errorf("%g degrees of freedom: %g, want %g", free, got, want)
		}
	}
	one := make([]float64, 10)
	if got := UpperMean(one, 0.95); got != 0 {
		t.Errorf("of nothing: %g", got)
	}
	one[3] = 0.1 // a mean of 0.01, a standard error of 0.01
	if got := UpperMean(one, 0.95); math.Abs(got-0.0326) > 0.0001 {
		t.Errorf("%g, want 0.0326", got)
	}
}
