package stats

import (
	"fmt"
	"math"
	"slices"
)

// CompareUnpaired estimates the ratio of the medians of two independent samples, which were not taken in the
// same blocks: what changed in the time between them is part of the difference. It is the exponential of the
// methods of Hodges and Lehmann and of Mann, Whitney and Wilcoxon over the logarithms, which assume that the
// samples differ by a factor and in nothing else. N is the size of both samples together. A value that is not
// positive and finite is left out with a warning.
func CompareUnpaired(own, baseline []float64, confidence float64) Comparison {
	x, y := logarithms(own), logarithms(baseline)
	c := Comparison{Interval: shift(x, y, confidence), P: rankSumP(x, y), Adjusted: math.NaN()}
	c.Estimate, c.Lo, c.Hi = math.Exp(c.Estimate), math.Exp(c.Lo), math.Exp(c.Hi)
	if dropped := len(own) + len(baseline) - len(x) - len(y); dropped > 0 {
		c.Warnings = append(c.Warnings,
			fmt.Sprintf("%d values that are not positive and finite are left out", dropped))
	}
	return c
}

func logarithms(values []float64) []float64 {
	var logs []float64
	for _, v := range values {
		if l := math.Log(v); v > 0 && !math.IsInf(l, 0) {
			logs = append(logs, l)
		}
	}
	return logs
}

// shift estimates by how much x lies above y: the median of all differences (Hollander and Wolfe,
// Nonparametric Statistical Methods, 2nd ed., section 4.2). Its interval inverts the two-sided rank sum test
// (Moses; section 4.3): its ends are the k-th difference from either side, with the largest k for which P(U <
// k) <= (1-confidence)/2. At 95% that needs four values each; with ten each, k is 24.
func shift(x, y []float64, confidence float64) Interval {
	var d []float64
	for _, a := range x {
		for _, b := range y {
			d = append(d, a-b)
		}
	}
	slices.Sort(d)
	i := Interval{Estimate: median(d), Lo: math.Inf(-1), Hi: math.Inf(1), N: len(x) + len(y)}
	k, tail := criticalCount(len(x), len(y), (1-confidence)/2)
	if k == 0 {
		i.Warnings = append(i.Warnings,
			fmt.Sprintf("%d and %d values are too few for an interval at %g%%", len(x), len(y), 100*confidence))
		return i
	}
	i.Lo, i.Hi, i.Confidence = d[k-1], d[len(d)-k], 1-2*tail
	return i
}

// criticalCount returns the largest k with P(U < k) <= alpha under the null hypothesis, and that probability;
// 0 if there is none. U counts the pairs in which the value of the first sample, of size n, is above that of
// the second, of size m. If a sample has more than exactUpTo values, it uses the normal approximation
// (section 4.3, formula 4.41).
func criticalCount(n, m int, alpha float64) (int, float64) {
	switch {
	case n == 0 || m == 0:
		return 0, 0
	case max(n, m) > exactUpTo:
		pairs := float64(n * m)
		z := math.Sqrt2 * math.Erfinv(1-2*alpha)
		return max(0, int(pairs/2-z*math.Sqrt(pairs*float64(n+m+1)/12))), alpha
	}
	p := rankSums(untied(n+m), n)
	sum, k, tail := 0.0, 0, 0.0
	for s := n * (n + 1); s < len(p); s += 2 {
		sum += p[s]
		if sum > alpha {
			break
		}
		k, tail = (s-n*(n+1))/2+1, sum
	}
	return k, tail
}

// untied returns the ranks of n values without ties, doubled.
func untied(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = 2 * (i + 1)
	}
	return ranks
}

// rankSums returns the probability of each sum of n of the doubled ranks, if each choice of n is equally
// likely to be the first sample: the distribution of the rank sum given the ties.
func rankSums(doubled []int, n int) []float64 {
	total := 0
	for _, r := range doubled {
		total += r
	}
	ways := make([][]float64, n+1) // to choose so many ranks with that sum
	for k := range ways {
		ways[k] = make([]float64, total+1)
	}
	ways[0][0] = 1
	most := 0
	all := 1.0 // choices of n of the ranks so far: n of i+1 is n of i times (i+1)/(i+1-n)
	for i, r := range doubled {
		most += r
		for k := min(n, i+1); k > 0; k-- {
			for s := most; s >= r; s-- {
				ways[k][s] += ways[k-1][s-r]
			}
		}
		if i >= n {
			all *= float64(i+1) / float64(i+1-n)
		}
	}
	for s := range ways[n] {
		ways[n][s] /= all
	}
	return ways[n]
}

// rankSumP returns the two-sided p-value of the Wilcoxon rank sum test, which is that of Mann and Whitney,
// that both samples have one distribution (Hollander and Wolfe, section 4.1). Equal values share their
// midrank, and the distribution is exact for up to exactUpTo values each. It is 1 for an empty sample.
func rankSumP(x, y []float64) float64 {
	n, m := len(x), len(y)
	if n == 0 || m == 0 {
		return 1
	}
	ranks := doubledMidranksOf(slices.Concat(x, y))
	sum := 0
	for _, r := range ranks[:n] {
		sum += r
	}
	if max(n, m) > exactUpTo {
		return normalRankSumP(sum, ranks, n)
	}
	below, above := 0.0, 0.0
	for s, p := range rankSums(ranks, n) {
		if s <= sum {
			below += p
		}
		if s >= sum {
			above += p
		}
	}
	return min(1, 2*min(below, above))
}

// normalRankSumP returns the large-sample p-value, corrected for continuity and for ties.
func normalRankSumP(sum int, doubled []int, n int) float64 {
	size := float64(len(doubled))
	mean, variance := 0.0, 0.0
	for _, r := range doubled {
		mean += float64(r) / size
	}
	for _, r := range doubled {
		variance += (float64(r) - mean) * (float64(r) - mean) / size
	}
	// The variance of a sum of n drawn without replacement.
	variance *= float64(n) * (size - float64(n)) / (size - 1)
	if variance == 0 {
		return 1 // all are equal
	}
	z := max(0, math.Abs(float64(sum)-float64(n)*mean)-1) / math.Sqrt(variance) // 1: half a rank, doubled
	return math.Erfc(z / math.Sqrt2)
}
