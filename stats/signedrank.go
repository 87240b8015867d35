// Package stats has the estimators, intervals and verdicts of a proof. It does no I/O.
//
// Blocks are the unit of replication: each gives one ratio of a cell to the baseline of the same block, so
// that drift over a session cancels out. The logarithms of the ratios go into the one-sample methods of
// Hodges and Lehmann and of Wilcoxon, which assume only symmetry. A bootstrap would be wrong here: with five
// blocks it calls one in six equal pairs different.
//
// Two sessions have no blocks in common. CompareUnpaired has the two-sample methods of Hodges and Lehmann and
// of Mann, Whitney and Wilcoxon, which see drift between the sessions as a difference.
package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Interval is an estimate with its confidence interval. If there are too few values for the requested
// confidence, Confidence is 0 and the ends are infinite (for a ratio, 0 and +Inf).
type Interval struct {
	Estimate, Lo, Hi float64
	Confidence       float64 // achieved, not requested
	N                int
	Warnings         []string
}

// exactUpTo is the largest sample size for which the null distribution of the signed-rank statistic is
// enumerated. Above it, signedRankP uses the normal approximation with continuity correction.
const exactUpTo = 50

// walsh returns the averages of all pairs of x, including each value with itself, in ascending order.
func walsh(x []float64) []float64 {
	w := make([]float64, 0, len(x)*(len(x)+1)/2)
	for i, a := range x {
		for _, b := range x[i:] {
			w = append(w, a/2+b/2)
		}
	}
	slices.Sort(w)
	return w
}

// hodgesLehmann estimates the centre of a symmetric distribution: the median of the Walsh averages
// (Hollander and Wolfe, Nonparametric Statistical Methods, 2nd ed., section 3.2). It is NaN for no
// values.
func hodgesLehmann(x []float64) float64 { return median(walsh(x)) }

// median returns the median of sorted values.
func median(sorted []float64) float64 {
	n := len(sorted)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return sorted[n/2]
	}
	return sorted[n/2-1]/2 + sorted[n/2]/2
}

// Centre estimates the centre of values that each come from a different block, as Compare does with the
// logarithms of ratios.
func Centre(x []float64, confidence float64) Interval { return signedRank(x, confidence) }

// signedRank estimates the centre of x. Its interval inverts the exact two-sided Wilcoxon signed-rank test
// (Hollander and Wolfe, section 3.3): its ends are the k-th Walsh average from either side, with the largest
// k for which P(T < k) <= (1-confidence)/2. At 95% that needs six values (k = 1); with eight k is 4, with ten
// 9. Values that are not finite are dropped with a warning.
func signedRank(x []float64, confidence float64) Interval {
	valid := finite(x)
	n := len(valid)
	i := Interval{Estimate: hodgesLehmann(valid), Lo: math.Inf(-1), Hi: math.Inf(1), N: n}
	if n < len(x) {
		i.Warnings = append(i.Warnings,
			fmt.Sprintf("%d of %d values are not finite and left out", len(x)-n, len(x)))
	}
	k, tail := criticalRank(n, (1-confidence)/2)
	if k == 0 {
		i.Warnings = append(i.Warnings, fmt.Sprintf("%d values are too few for an interval at %g%%: %d are needed",
			n, 100*confidence, valuesFor(confidence)))
		return i
	}
	w := walsh(valid)
	i.Lo, i.Hi, i.Confidence = w[k-1], w[len(w)-k], 1-2*tail
	return i
}

func finite(x []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(x), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

// criticalRank returns the largest k with P(T < k) = P(T <= k-1) <= alpha under the null hypothesis, and that
// probability; 0 if there is none.
func criticalRank(n int, alpha float64) (int, float64) {
	if n == 0 {
		return 0, 0
	}
	p := nullDistribution(untied(n))
	sum, k, tail := 0.0, 0, 0.0
	for t := 0; t < len(p); t += 2 {
		sum += p[t]
		if sum > alpha {
			break
		}
		k, tail = t/2+1, sum
	}
	return k, tail
}

func valuesFor(confidence float64) int {
	n := 1
	for math.Pow(0.5, float64(n)) > (1-confidence)/2 {
		n++
	}
	return n
}

// nullDistribution returns the probability of each sum of the doubled ranks with a positive sign, if each
// sign is a fair coin. Ranks are doubled because midranks end in halves.
func nullDistribution(doubled []int) []float64 {
	total := 0
	for _, r := range doubled {
		total += r
	}
	p := make([]float64, total+1)
	p[0] = 1
	for _, r := range doubled {
		for t := total; t >= 0; t-- {
			p[t] /= 2
			if t >= r {
				p[t] += p[t-r] / 2
			}
		}
	}
	return p
}

// signedRankP returns the two-sided p-value of the Wilcoxon signed-rank test that the centre is 0 (Hollander
// and Wolfe, section 3.1). Zeros are dropped, equal distances share their midrank, and the distribution is
// exact for up to 50 values. It is 1 for no values.
func signedRankP(x []float64) float64 {
	d := slices.DeleteFunc(finite(x), func(v float64) bool { return v == 0 })
	if len(d) == 0 {
		return 1
	}
	ranks := doubledMidranks(d)
	t := 0
	for i, v := range d {
		if v > 0 {
			t += ranks[i]
		}
	}
	if len(d) > exactUpTo {
		return normalP(t, ranks)
	}
	p := nullDistribution(ranks)
	below, above := 0.0, 0.0
	for v, q := range p {
		if v <= t {
			below += q
		}
		if v >= t {
			above += q
		}
	}
	return min(1, 2*min(below, above))
}

// doubledMidranks returns the ranks of the distances |d| from 1, times two; equal ones share the mean.
func doubledMidranks(d []float64) []int {
	distances := make([]float64, len(d))
	for i, v := range d {
		distances[i] = math.Abs(v)
	}
	return doubledMidranksOf(distances)
}

// doubledMidranksOf returns the ranks of values from 1, times two; equal ones share the mean.
func doubledMidranksOf(x []float64) []int {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(x[a], x[b]) })
	ranks := make([]int, len(x))
	for from := 0; from < len(order); {
		to := from
		for to < len(order) && x[order[to]] == x[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			ranks[i] = from + 1 + to // twice the mean of from+1 … to
		}
		from = to
	}
	return ranks
}

// normalP returns the large-sample p-value, corrected for continuity.
func normalP(t int, doubled []int) float64 {
	mean, variance := 0.0, 0.0
	for _, r := range doubled {
		mean += float64(r) / 2
		variance += float64(r) * float64(r) / 4
	}
	z := max(0, math.Abs(float64(t)-mean)-1) / math.Sqrt(variance) // 1: half a rank, doubled
	return math.Erfc(z / math.Sqrt2)
}

// Median returns the median of x; NaN for no values.
func Median(x []float64) float64 {
	sorted := slices.Clone(x)
	slices.Sort(sorted)
	return median(sorted)
}
