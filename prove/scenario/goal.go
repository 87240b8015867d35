package scenario

import (
	"errors"
	"fmt"
	"strconv"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// readGoal checks the goal of a search. An error begins with the field.
func (s *Scenario) readGoal(q Search) error {
	g := q.Goal
	if g == nil {
		return fmt.Errorf(": missing: %s needs a metric and atMost, atLeast, or percent and of", q.Kind)
	}
	m, ok := s.MetricOf(q)
	switch {
	case !ok && q.Probe != "":
		return fmt.Errorf(".metric: %q is none of probe %s", g.Metric, q.Probe)
	case !ok:
		return fmt.Errorf(".metric: %q is none of a probe", g.Metric)
	case m.Sampled && m.Loop == results.Closed:
		return fmt.Errorf(".metric: %s: expected no samples of a closed loop, which leaves out what a stall delays",
			g.Metric)
	case m.Sampled != (g.Statistic != ""):
		return fmt.Errorf(".statistic: %q: expected p99 or the like for a metric with samples, none for others",
			g.Statistic)
	}
	if m.Sampled {
		if _, err := lane.Quantile(g.Statistic); err != nil {
			return fmt.Errorf(".statistic: %q: expected p50, p99.9 or max", g.Statistic)
		}
	}
	_, _, err := g.Bound(m)
	return err
}

// Bound returns the least or the most that the figure may be, in the metric's unit.
func (g SearchGoal) Bound(m results.Metric) (bound float64, least bool, err error) {
	share := g.Percent != 0 || g.Of != ""
	switch {
	case g.AtMost != "" && g.AtLeast == "" && !share:
		bound, err = figure(g.AtMost, m.Unit)
		return bound, false, inField(".atMost", err)
	case g.AtLeast != "" && g.AtMost == "" && !share:
		bound, err = figure(g.AtLeast, m.Unit)
		return bound, true, inField(".atLeast", err)
	case share && g.AtMost == "" && g.AtLeast == "":
		if !(g.Percent > 0 && g.Percent <= 100) {
			return 0, true, fmt.Errorf(".percent: expected more than 0 and at most 100, found %g", g.Percent)
		}
		bound, err = figure(g.Of, m.Unit)
		return bound * g.Percent / 100, true, inField(".of", err)
	}
	return 0, false, errors.New(": expected one of atMost, atLeast, or percent and of")
}

func inField(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

// figure reads a figure in the unit of a metric.
func figure(text factor.Name, unit string) (v float64, err error) {
	switch unit {
	case results.TimeUnit:
		var d quantity.Duration
		d, err = quantity.ParseDuration(string(text))
		v = float64(d)
	case results.RateUnit:
		var r quantity.BitRate
		r, err = quantity.ParseBitRate(string(text))
		v = float64(r)
	default:
		if v, err = strconv.ParseFloat(string(text), 64); err != nil {
			err = fmt.Errorf("%q: expected a number of %s", text, unit)
		}
	}
	if err == nil && !positive(v) {
		err = fmt.Errorf("%q: expected more than 0", text)
	}
	return v, err
}

// Text describes the goal: P99 of load at most 10ms.
func (g SearchGoal) Text(m results.Metric) string {
	what, unit := g.Metric, ""
	if g.Statistic != "" {
		what = g.Statistic + " of " + g.Metric
	}
	if m.Unit != results.TimeUnit && m.Unit != results.RateUnit {
		unit = " " + m.Unit
	}
	switch {
	case g.AtMost != "":
		return fmt.Sprintf("%s at most %s%s", what, g.AtMost, unit)
	case g.AtLeast != "":
		return fmt.Sprintf("%s at least %s%s", what, g.AtLeast, unit)
	}
	return fmt.Sprintf("%s at least %g%% of %s%s", what, g.Percent, g.Of, unit)
}
