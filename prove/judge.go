package prove

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/search"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// judge records what a trial found, and which goals hold. A check that fails in its probe makes a trial
// doubtful, unless its client was late and that does not matter (see lateMatters).
func (r *runner) judge(t *results.Trial, q results.Search, spec scenario.Search,
	m results.Measurement) error {
	m.Worst, m.Tail = nil, nil
	t.Measured = &m
	if len(m.Overloaded) > 0 {
		t.Overloaded = m.Overloaded[0]
	}
	if sent := m.Asked(); sent.Wanted > 0 {
		loss := float64(sent.Lost) / float64(sent.Wanted)
		t.Loss = &loss
	}
	if len(t.Void) > 0 {
		return nil
	}
	held, why, err := r.held(t, q, spec, m)
	if err != nil {
		return fmt.Errorf("search %s: %w", q.Name, err)
	}
	inTime, err := m.Offered()
	if err != nil {
		return fmt.Errorf("search %s: %w", q.Name, err)
	}
	against := slices.DeleteFunc(slices.Clone(m.Void), func(v string) bool {
		return slices.Contains(m.Overloaded, v)
	})
	late := slices.DeleteFunc(slices.Clone(against), func(v string) bool { return !slices.Contains(m.Late, v) })
	matters := false
	if len(late) > 0 {
		matters, err = r.lateMatters(spec, m, slices.Contains(held, false))
	}
	var limits []string
	if err == nil && spec.Goal != nil {
		limits, err = r.atLimit(spec.Goal.Metric, m, slices.Contains(held, false))
	}
	if err != nil {
		return fmt.Errorf("search %s: %w", q.Name, err)
	}
	switch against = append(against, limits...); {
	case why != "":
		t.Void = append(t.Void, why)
	case len(against) > len(late), len(late) > 0 && (matters || !inTime):
		t.Doubts = against
	default:
		t.Held = held
	}
	return nil
}

// lateMatters reports whether a late client may be the only reason why a goal is missed, or holds. A goal
// missed by more than the client can have added is missed; a goal that latencies meet as upper bounds, as in
// reports, holds. Rates and losses can only get worse by it.
func (r *runner) lateMatters(spec scenario.Search, m results.Measurement, missed bool) (bool, error) {
	if spec.Goal == nil || spec.Goal.Statistic == "" {
		return missed, nil
	}
	metric, _ := r.Scenario.MetricOf(spec) // it was checked when read
	bound, least, err := spec.Goal.Bound(metric)
	p, perr := lane.Quantile(spec.Goal.Statistic)
	if err = cmp.Or(err, perr); err != nil || least {
		return true, err
	}
	samples := m.Samples[spec.Goal.Metric]
	if missed {
		beyond, berr := search.BeyondClient(samples, p, bound)
		return !beyond, berr
	}
	longer, err := samples.AtMost()
	return err != nil || results.Percentile(longer, p, samples.Lost) > bound, err
}

// atLimit returns the failed checks of a metric that say that something else was at its limit. If the figure
// is beyond its goal, growth within the trial raises no doubt; and a rate is that of the whole trial.
func (r *runner) atLimit(metric string, m results.Measurement, beyond bool) (all []string, err error) {
	metrics, err := r.Scenario.Metrics()
	for _, check := range metrics {
		if v, ok := m.Values[check.Name]; ok && check.Guards == metric && math.Abs(v) > check.Limit &&
			(!check.Trend || !beyond && m.Samples[metric].Wanted > 0) {
			unit := " " + check.Unit
			if check.Unit == "%" {
				unit = check.Unit
			}
			all = append(all, fmt.Sprintf("%s: %.3g%[3]s, allowed %[4]g%[3]s", check.Noun, v, unit, check.Limit))
		}
	}
	return all, err
}

// held says which goals hold, or why that is unknown.
func (r *runner) held(t *results.Trial, q results.Search, spec scenario.Search,
	m results.Measurement) (held []bool, why string, err error) {
	held = make([]bool, len(q.Goals))
	switch {
	case t.Overloaded != "":
		return held, "", nil
	case q.Kind == results.Bounds && t.Loss == nil:
		return nil, "nobody counted what was lost", nil
	case q.Kind == results.Bounds:
		for g := range held {
			held[g] = *t.Loss <= q.Goals[g].Loss
		}
		return held, "", nil
	}
	metric, _ := r.Scenario.MetricOf(spec) // it was checked when read
	bound, least, err := spec.Goal.Bound(metric)
	if err != nil {
		return nil, "", err
	}
	value, why, err := valueOf(m, *spec.Goal)
	if err != nil || why != "" {
		return nil, why, err
	}
	if !math.IsInf(value, 0) {
		t.Value = &value
	}
	for g := range held {
		held[g] = least && value >= bound || !least && value <= bound
	}
	return held, "", nil
}

// valueOf returns the figure of a goal, infinite if it is among what was lost, or why there is none.
func valueOf(m results.Measurement, g scenario.SearchGoal) (v float64, why string, err error) {
	if g.Statistic == "" {
		v, ok := m.Values[g.Metric]
		if !ok {
			why = "no " + g.Metric
		}
		return v, why, nil
	}
	samples, ok := m.Samples[g.Metric]
	if !ok {
		return 0, "no " + g.Metric, nil
	}
	h, err := samples.Histogram.Decode()
	if err != nil {
		return 0, "", err
	}
	p, err := lane.Quantile(g.Statistic)
	if err != nil {
		return 0, "", err
	}
	all := uint64(h.TotalCount()) + samples.Lost
	if need := stats.SamplesFor(p); p < 1 && all < need {
		return 0, fmt.Sprintf("%s needs %d samples, found %d", g.Statistic, need, all), nil
	}
	return results.Percentile(h, p, samples.Lost), "", nil
}
