// Package objective judges the bounds of a lane's objective by measurements. It uses confidence intervals, so
// that a bound is held or missed only if chance does not decide.
package objective

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/samples"
	"isolane.dev/isolane/stats"
)

// LeastRuns is the least number of runs for an interval, and so for a verdict.
const LeastRuns = 6

const confidence = 0.95 // of the intervals

// Compare orders judgements from the best to the worst.
func Compare(a, b lane.Judgement) int {
	return cmp.Or(cmp.Compare(severity(a.Verdict), severity(b.Verdict)), cmp.Compare(excess(a), excess(b)))
}

// severity orders verdicts from the best to the worst.
func severity(v lane.Verdict) int {
	return slices.Index([]lane.Verdict{lane.Held, lane.Unproven, lane.Void, lane.Missed}, v)
}

// excess returns the ratio of the unfavourable end to the bound; infinite if there is no such end.
func excess(j lane.Judgement) float64 {
	switch e := j.Evidence; {
	case e == nil, j.Metric == "rtt" && e.High == 0, j.Metric != "rtt" && e.Low == 0:
		return math.Inf(1)
	case j.Metric == "rtt":
		return e.High / float64(j.MaxNanoseconds)
	default:
		return float64(j.MinBitsPerSecond) / e.Low
	}
}

// Trips judges a bound on round trips by the samples of all runs together, and by those of each.
func Trips(b lane.Bound, all *samples.Distribution, runs []*samples.Distribution) lane.Judgement {
	j := trips(b, all)
	if j.Verdict == lane.Held {
		j.Verdict, j.Reason = heldByRuns(b, runs)
	}
	return j
}

// heldByRuns bounds the share of samples beyond the bound a second time, with the run as the unit: a stall
// makes many late samples at once, so the samples of a run are not independent.
func heldByRuns(b lane.Bound, runs []*samples.Distribution) (lane.Verdict, string) {
	if len(runs) < LeastRuns {
		return lane.Unproven, fmt.Sprintf("an interval needs %d runs: --standard has them", LeastRuns)
	}
	var shares []float64
	for _, d := range runs {
		late := d.Lost
		for _, bar := range d.Histogram.Distribution() {
			if bar.To > b.MaxNanoseconds {
				late += uint64(bar.Count)
			}
		}
		shares = append(shares, float64(late)/float64(d.Size()))
	}
	q, _ := lane.Quantile(b.Percentile) // it was checked when read
	if most := stats.UpperMean(shares, confidence); most > 1-q {
		return lane.Unproven, fmt.Sprintf("the runs differ: by them up to %s of the samples may be beyond it",
			format.Percent(most))
	}
	return lane.Held, ""
}

// trips bounds the percentile by order statistics. What was lost took longer than all else.
func trips(b lane.Bound, d *samples.Distribution) lane.Judgement {
	j := lane.Judgement{Bound: b, Verdict: lane.Unproven, Evidence: &lane.Evidence{Samples: d.Size()}}
	q, err := lane.Quantile(b.Percentile)
	if err != nil {
		j.Reason = err.Error()
		return j
	}
	limit, low, high := float64(b.MaxNanoseconds), float64(d.Exact.Max()), 0.0
	if q == 1 {
		j.Reason = "no sample bounds a maximum from above"
	} else {
		from, to := stats.QuantileRanks(d.Size(), q)
		low, high = least(d, from), ranked(d.Histogram, to)
		j.Reason = fmt.Sprintf("the sample is too small to bound it: at least %d are needed", stats.SamplesFor(q))
	}
	switch {
	case low > limit, q == 1 && d.Lost > 0:
		j.Verdict, j.Reason = lane.Missed, ""
	case high > limit:
		j.Reason = "the bound is within the interval"
	case high > 0:
		j.Verdict, j.Reason = lane.Held, ""
	}
	j.Evidence.Low, j.Evidence.High = finite(low), finite(high)
	if d.Lost > 0 && j.Verdict != lane.Held {
		j.Reason = fmt.Sprintf("%d were lost", d.Lost)
	}
	return j
}

// finite returns 0 for an end that bounds nothing, as programs read it.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 1) {
		return 0
	}
	return v
}

// ranked returns the order statistic of a rank (from 1) in nanoseconds: 0 for rank 0, infinite for what was
// lost.
func ranked(h *hdrhistogram.Histogram, rank uint64) float64 {
	switch {
	case rank == 0:
		return 0
	case rank > uint64(h.TotalCount()):
		return math.Inf(1)
	}
	return float64(h.ValueAtQuantile(100 * float64(rank) / float64(h.TotalCount())))
}

// least is ranked for a lower bound: what a late client found is an upper bound and may have taken no time at
// all.
func least(d *samples.Distribution, rank uint64) float64 {
	late := d.N() - uint64(d.Exact.TotalCount())
	return ranked(d.Exact, rank-min(rank, late))
}

// Rates judges a bound on throughput by the median of the runs, see stats.Compare.
func Rates(b lane.Bound, rates []float64) lane.Judgement {
	least := slices.Repeat([]float64{float64(b.MinBitsPerSecond)}, len(rates))
	c := stats.Compare(rates, least, confidence)
	j := lane.Judgement{Bound: b, Verdict: lane.Unproven,
		Evidence: &lane.Evidence{Samples: uint64(len(rates))}}
	switch {
	case len(rates) < LeastRuns || !c.Known():
		j.Reason = fmt.Sprintf("an interval needs %d runs: --standard has them", LeastRuns)
		return j
	case c.Lo >= 1:
		j.Verdict = lane.Held
	case c.Hi < 1:
		j.Verdict = lane.Missed
	default:
		j.Reason = "the bound is within the interval"
	}
	j.Evidence.Low, j.Evidence.High = c.Lo*least[0], c.Hi*least[0]
	return j
}
