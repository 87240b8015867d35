package figures

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/report/objective"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// judgeLane says whether each bound of the proved lane's objective was kept: it takes the worst of what each
// probe of the metric found in each cell. It returns nothing if the session is not of a lane in force.
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
	worst := slices.MaxFunc(found, objective.Compare)
	if worst.Verdict == lane.Held && !s.Verdicts {
		worst.Verdict, worst.Reason = lane.Unproven, "a quick session gives figures and no verdict: --standard does"
	}
	if worst.Verdict == lane.Held && !onTime {
		worst.Verdict, worst.Reason = lane.Unproven, missesStalls+"of mode open"
	}
	return worst
}

// doubted returns the verdict in view of what the figure leaves out, or what limits it. Guards on ratios do
// not affect a bound: the figure that is compared includes what makes samples longer, or different.
func (c Cell) doubted(m metric.Metric, j lane.Judgement) (lane.Verdict, string) {
	f, over := c.Figure(m), c.lacks[m.Name].over
	switch {
	case j.Verdict == lane.Held && over > 0:
		return lane.Unproven, "what was asked was not carried in " + quantity.Count(over, "run")
	case j.Verdict == lane.Held && c.voided(m.Name) != "":
		return lane.Unproven, c.voided(m.Name)
	case j.Verdict == lane.Missed && m.Margin.Goal == stats.HigherIsBetter && f.Limit != "":
		return lane.Unproven, "at least, for " + f.Why()
	}
	return j.Verdict, j.Reason
}

func judgeFigure(b lane.Bound, f Figure) lane.Judgement {
	switch {
	case len(f.Blocks) == 0 && f.Merged == nil:
		return lane.Judgement{Bound: b, Verdict: lane.Void, Reason: "no measurement counts"}
	case b.Metric == "rtt" && f.Merged != nil:
		return objective.Trips(b, f.Merged, f.runs)
	}
	return objective.Rates(b, f.Values(""))
}
