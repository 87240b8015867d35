package stats

import (
	"fmt"
	"math"
	"slices"
)

// Ratio estimates by what factor a cell differs from the baseline: values of the same index come
// from the same block. It is the exponential of SignedRank over the logarithms of the ratios. A
// pair with a value that is not positive and finite is dropped with a warning.
func Ratio(cell, baseline []float64, confidence float64) Interval {
	logs, dropped := LogRatios(cell, baseline)
	i := SignedRank(logs, confidence)
	i.Estimate, i.Lo, i.Hi = math.Exp(i.Estimate), math.Exp(i.Lo), math.Exp(i.Hi)
	if dropped > 0 {
		i.Warnings = append(i.Warnings, fmt.Sprintf("%d pairs without two positive values are left out", dropped))
	}
	return i
}

// LogRatios returns the logarithms of the ratios of the pairs, and how many pairs had none.
func LogRatios(cell, baseline []float64) (logs []float64, dropped int) {
	n := min(len(cell), len(baseline))
	dropped = max(len(cell), len(baseline)) - n
	for i := range n {
		l := math.Log(cell[i] / baseline[i])
		if !(cell[i] > 0) || !(baseline[i] > 0) || math.IsInf(l, 0) || math.IsNaN(l) {
			dropped++
			continue
		}
		logs = append(logs, l)
	}
	return logs, dropped
}

// Holm adjusts p-values for looking at all of them: each is compared with alpha as it stands (Holm,
// Scandinavian Journal of Statistics 6, 1979). The order is kept; a NaN stays and does not count.
func Holm(p []float64) []float64 {
	adjusted := slices.Clone(p)
	var order []int
	for i, v := range p {
		if !math.IsNaN(v) {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case p[a] < p[b]:
			return -1
		case p[a] > p[b]:
			return 1
		}
		return 0
	})
	highest := 0.0
	for k, i := range order {
		highest = max(highest, min(1, p[i]*float64(len(order)-k)))
		adjusted[i] = highest
	}
	return adjusted
}

// Verdict is what a comparison shows.
type Verdict string

// The verdicts of a comparison.
const (
	Better       Verdict = "better"
	Worse        Verdict = "worse"
	Equivalent   Verdict = "equivalent"
	Inconclusive Verdict = "inconclusive"
)

// Goal says which way is better.
type Goal int

// The goals.
const (
	HigherIsBetter Goal = iota
	LowerIsBetter
)

// Judge compares a ratio with 1. It is better or worse where the interval excludes 1, the p-value,
// adjusted for all comparisons, is at most alpha, and the estimate is beyond the margin; equivalent
// where the interval lies within the margin on both sides; and inconclusive otherwise.
func Judge(ratio Interval, adjustedP, alpha, margin float64, goal Goal) Verdict {
	lo, hi := 1/(1+margin), 1+margin
	switch {
	case ratio.Confidence == 0 || math.IsNaN(ratio.Estimate):
		return Inconclusive
	case ratio.Lo >= lo && ratio.Hi <= hi:
		return Equivalent
	case adjustedP > alpha || math.IsNaN(adjustedP) || ratio.Lo <= 1 && ratio.Hi >= 1:
		return Inconclusive
	case ratio.Estimate > hi && goal == HigherIsBetter, ratio.Estimate < lo && goal == LowerIsBetter:
		return Better
	case ratio.Estimate > hi, ratio.Estimate < lo:
		return Worse
	}
	return Inconclusive
}

// SamplesFor is the least number of samples of which some order statistic bounds the quantile p
// from above with 97.5%, as a two-sided 95% interval asks, whatever the distribution: the least n
// with 1 - p^n >= 0.975 (David and Nagaraja, Order Statistics, 3rd ed., section 7.1).
func SamplesFor(p float64) uint64 {
	if p <= 0 {
		return 1
	}
	if p >= 1 {
		return math.MaxUint64
	}
	return uint64(math.Ceil(math.Log(0.025) / math.Log(p)))
}

// SupportedQuantile is the highest of the usual quantiles that n samples support, 0 for none.
func SupportedQuantile(n uint64) float64 {
	for _, p := range []float64{0.999999, 0.99999, 0.9999, 0.999, 0.99, 0.9, 0.5} {
		if n >= SamplesFor(p) {
			return p
		}
	}
	return 0
}
