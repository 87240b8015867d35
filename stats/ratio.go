package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Comparison is by what factor a cell differs from the baseline, and how certain that is.
type Comparison struct {
	Interval         // of the ratio
	P        float64 // two-sided, that the ratio is 1; not adjusted
	Adjusted float64 // P adjusted for the family it belongs to; NaN before Holm
}

// Compare estimates the ratio of a cell to the baseline. Values of the same index must come from the same
// block. It is the exponential of the signed-rank methods over the logarithms of the ratios. A pair with a
// value that is not positive and finite is left out with a warning.
func Compare(cell, baseline []float64, confidence float64) Comparison {
	n := min(len(cell), len(baseline))
	dropped := max(len(cell), len(baseline)) - n
	var logs []float64
	for i := range n {
		l := math.Log(cell[i] / baseline[i])
		if !(cell[i] > 0) || !(baseline[i] > 0) || math.IsInf(l, 0) || math.IsNaN(l) {
			dropped++
			continue
		}
		logs = append(logs, l)
	}
	c := Comparison{Interval: signedRank(logs, confidence), P: signedRankP(logs), Adjusted: math.NaN()}
	c.Estimate, c.Lo, c.Hi = math.Exp(c.Estimate), math.Exp(c.Lo), math.Exp(c.Hi)
	if dropped > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%d pairs without two positive values are left out", dropped))
	}
	return c
}

// Known reports whether there is an estimate.
func (c Comparison) Known() bool { return c.N > 0 && !math.IsNaN(c.Estimate) }

// Holm adjusts the p-values of a family of comparisons, so that each may be compared with alpha although all
// of them are looked at (Holm, Scandinavian Journal of Statistics 6, 1979). A NaN stays and does not count.
func Holm(family []*Comparison) {
	order := slices.DeleteFunc(slices.Clone(family), func(c *Comparison) bool { return math.IsNaN(c.P) })
	slices.SortStableFunc(order, func(a, b *Comparison) int { return cmp.Compare(a.P, b.P) })
	highest := 0.0
	for k, c := range order {
		highest = max(highest, min(1, c.P*float64(len(order)-k)))
		c.Adjusted = highest
	}
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

// Margin says how large a difference must be to count.
type Margin struct {
	Goal  Goal
	Size  float64 // a ratio within 1/(1+Size) and 1+Size does not matter
	Alpha float64 // the error rate of the whole family
}

// Judge compares a ratio with 1. It is better or worse if the interval excludes 1, the adjusted p-value is at
// most alpha, and the estimate is beyond the margin; equivalent if the interval lies within the margin on
// both sides; and inconclusive otherwise, or if Holm has not adjusted it.
func Judge(c Comparison, m Margin) Verdict {
	lo, hi := 1/(1+m.Size), 1+m.Size
	switch {
	case c.Confidence == 0 || math.IsNaN(c.Estimate):
		return Inconclusive
	case c.Lo >= lo && c.Hi <= hi:
		return Equivalent
	case !(c.Adjusted <= m.Alpha) || c.Lo <= 1 && c.Hi >= 1:
		return Inconclusive
	case c.Estimate > hi && m.Goal == HigherIsBetter, c.Estimate < lo && m.Goal == LowerIsBetter:
		return Better
	case c.Estimate > hi, c.Estimate < lo:
		return Worse
	}
	return Inconclusive
}

// SamplesFor returns the least number of samples of which some order statistic bounds the quantile p from
// above with 97.5%, as a two-sided 95% interval requires, whatever the distribution: the least n with 1 - p^n
// >= 0.975 (David and Nagaraja, Order Statistics, 3rd ed., section 7.1).
func SamplesFor(p float64) uint64 {
	if p <= 0 {
		return 1
	}
	if p >= 1 {
		return math.MaxUint64
	}
	return uint64(math.Ceil(math.Log(0.025) / math.Log(p)))
}

// SupportedQuantile returns the highest of the usual quantiles that n samples support, or 0 if there is none.
func SupportedQuantile(n uint64) float64 {
	for _, p := range []float64{0.999999, 0.99999, 0.9999, 0.999, 0.99, 0.9, 0.5} {
		if n >= SamplesFor(p) {
			return p
		}
	}
	return 0
}
