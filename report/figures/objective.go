package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// judgeLane says of each bound of the proved lane's objective whether it was kept: the worst of what each
// probe of its metric found in each cell. It returns nothing where the session is not of a lane in force.
func (s *Summary) judgeLane() []lane.Judgement {
	if s.Session.Lane == nil {
		return nil
	}
	var all []lane.Judgement
	for _, b := range s.Session.Lane.Bounds {
		all = append(all, s.judgeBound(b))
	}
	return all
}

// judgeBound finds the worst of a bound's figures.
func (s *Summary) judgeBound(b lane.Bound) lane.Judgement {
	switch drift := s.Session.Lane.Drift; {
	case !s.Session.Complete:
		return lane.Judgement{Bound: b, Verdict: lane.Unproven, Reason: "the session is not complete"}
	case len(drift) > 0:
		return lane.Judgement{Bound: b, Verdict: lane.Void, Reason: "the lane was changed while it was measured: " +
			strings.Join(drift, "; ")}
	}
	var found []lane.Judgement
	onTime := b.Metric != "rtt"
	for _, m := range s.Metrics {
		if m.Quantity != b.Metric || len(m.MeanOf) > 0 {
			continue
		}
		onTime = onTime || m.Loop != results.Closed
		for _, c := range s.Cells {
			j := judgeFigure(b, c.Figure(m))
			j.Verdict, j.Reason = c.doubted(m, j)
			if j.Evidence != nil {
				j.Evidence.Probe, j.Evidence.Cell = m.Name, c.Name
			} else {
				j.Reason += fmt.Sprintf(": %s in %s", m.Name, c.Name)
			}
			found = append(found, j)
		}
	}
	if len(found) == 0 {
		return lane.Judgement{Bound: b, Verdict: lane.Unproven, Reason: "the scenario has no probe of this metric"}
	}
	worst := slices.MaxFunc(found, func(a, b lane.Judgement) int {
		return cmp.Or(cmp.Compare(severity(a.Verdict), severity(b.Verdict)), cmp.Compare(excess(a), excess(b)))
	})
	if worst.Verdict == lane.Held && !s.Verdicts {
		worst.Verdict, worst.Reason = lane.Unproven, "a quick session gives figures and no verdict: --standard does"
	}
	if worst.Verdict == lane.Held && !onTime {
		worst.Verdict, worst.Reason = lane.Unproven, missesStalls+"of mode open"
	}
	return worst
}

// doubted is a verdict with what the figure leaves out, or what limits it. Guards on ratios do not touch a
// bound: what makes samples longer, or differ, is in the figure that it holds.
func (c Cell) doubted(m Metric, j lane.Judgement) (lane.Verdict, string) {
	f, absent := c.Figure(m), c.loads[m.Name].absent
	switch {
	case j.Verdict == lane.Held && absent > 0:
		return lane.Unproven, "what was asked was not carried in " + quantity.Count(absent, "run")
	case j.Verdict == lane.Missed && m.Margin.Goal == stats.HigherIsBetter && f.Limit != "":
		return lane.Unproven, "at least, for something else was at its limit: " + f.Limit
	}
	return j.Verdict, j.Reason
}

// severity orders verdicts from the best to the worst.
func severity(v lane.Verdict) int {
	return slices.Index([]lane.Verdict{lane.Held, lane.Unproven, lane.Void, lane.Missed}, v)
}

// excess is how much the unfavourable end takes of what the bound allows; without one, everything.
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

func judgeFigure(b lane.Bound, f Figure) lane.Judgement {
	switch {
	case len(f.Blocks) == 0 && f.Merged == nil:
		return lane.Judgement{Bound: b, Verdict: lane.Void, Reason: "no measurement counts"}
	case b.Metric == "rtt" && f.Merged != nil:
		j := judgeTrips(b, f.Merged)
		if j.Verdict == lane.Held {
			j.Verdict, j.Reason = heldByRuns(b, f.runs)
		}
		return j
	}
	return judgeRates(b, f.Blocks)
}

// heldByRuns bounds the share of samples beyond the bound once more, with the run as the unit: a stall makes
// many late samples at once, so those of a run are not independent.
func heldByRuns(b lane.Bound, runs []*Distribution) (lane.Verdict, string) {
	if len(runs) < verdictBlocks {
		return lane.Unproven, fmt.Sprintf("an interval needs %d runs: --standard has them", verdictBlocks)
	}
	var shares []float64
	for _, d := range runs {
		late := d.Lost
		for _, bar := range d.Histogram.Distribution() {
			if bar.To > b.MaxNanoseconds {
				late += uint64(bar.Count)
			}
		}
		shares = append(shares, float64(late)/float64(d.N()+d.Lost))
	}
	q, _ := lane.Quantile(b.Percentile) // it was read
	if most := stats.UpperMean(shares, confidence); most > 1-q {
		return lane.Unproven, fmt.Sprintf("the runs differ: by them up to %s of the samples may be beyond it",
			format.Percent(most))
	}
	return lane.Held, ""
}

// judgeTrips bounds the percentile by order statistics. What was lost took longer than all else, and what a
// late client found is an upper bound: from below it bounds nothing.
func judgeTrips(b lane.Bound, d *Distribution) lane.Judgement {
	j := lane.Judgement{Bound: b, Verdict: lane.Unproven, Evidence: &lane.Evidence{Samples: d.N() + d.Lost}}
	q, err := lane.Quantile(b.Percentile)
	if err != nil {
		j.Reason = err.Error()
		return j
	}
	limit, low, high := float64(b.MaxNanoseconds), float64(d.exact.Max()), 0.0
	if q == 1 {
		j.Reason = "no sample bounds a maximum from above"
	} else {
		from, to := stats.QuantileRanks(d.N()+d.Lost, q)
		low, high = d.least(from), d.ranked(to)
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

// finite is 0 for an end that bounds nothing, as programs read it.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 1) {
		return 0
	}
	return v
}

// ranked is the order statistic of a rank that begins with 1, in nanoseconds; 0 for rank 0, infinite for what
// was lost.
func (d *Distribution) ranked(rank uint64) float64 {
	switch {
	case rank == 0:
		return 0
	case rank > d.N():
		return math.Inf(1)
	}
	return float64(d.Histogram.ValueAtQuantile(100 * float64(rank) / float64(d.N())))
}

// least is the same where those of late clients took no time at all.
func (d *Distribution) least(rank uint64) float64 {
	sure := uint64(d.exact.TotalCount())
	exact := &Distribution{Histogram: d.exact}
	return exact.ranked(rank - min(rank, d.N()-sure))
}

// judgeRates bounds the median of the runs, see stats.Compare.
func judgeRates(b lane.Bound, blocks []Block) lane.Judgement {
	var rates, least []float64
	for _, block := range blocks {
		rates, least = append(rates, block.Value), append(least, float64(b.MinBitsPerSecond))
	}
	c := stats.Compare(rates, least, confidence)
	j := lane.Judgement{Bound: b, Verdict: lane.Unproven,
		Evidence: &lane.Evidence{Samples: uint64(len(rates))}}
	switch {
	case len(rates) < verdictBlocks || !c.Known():
		j.Reason = fmt.Sprintf("an interval needs %d runs: --standard has them", verdictBlocks)
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
