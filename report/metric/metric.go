// Package metric describes what runs measure, as the results describe it: how it is printed and judged.
package metric

import (
	"slices"
	"strings"

	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// alpha is the joint error rate of the verdicts of one family.
const alpha = 0.05

// Metric is a quantity that runs measure, as the results describe it, and how it is printed and judged.
type Metric struct {
	results.Metric
	Detail    string // which one it is
	Statistic string // the quantile that is a run's value; "" if a run gives one value
	Unit      format.Unit
	Margin    stats.Margin
}

// New returns a metric, given all metrics of the results.
func New(r results.Metric, all []results.Metric) Metric {
	m := Metric{Metric: r, Detail: r.Name, Unit: format.UnitOf(r.Unit),
		Margin: stats.Margin{Goal: stats.HigherIsBetter, Size: r.Margin, Alpha: alpha}}
	if r.Better == results.Lower {
		m.Margin.Goal = stats.LowerIsBetter
	}
	if r.Sampled {
		m.Statistic, m.Unit = "P50", m.Unit.OfSamples()
	}
	if len(r.MeanOf) > 1 {
		var parts []string
		for _, p := range all {
			if slices.Contains(r.MeanOf, p.Name) {
				parts = append(parts, p.Short)
			}
		}
		m.Detail = "geometric mean of " + strings.Join(parts, " and ")
	} else if len(r.MeanOf) == 1 {
		m.Detail = r.MeanOf[0]
	}
	return m
}

// IsPrimary reports whether the metric comes first, and belongs to the one family of verdicts.
func (m Metric) IsPrimary() bool { return m.Role == results.Primary }

// IsFigure reports whether the metric is compared. The others are costs and checks.
func (m Metric) IsFigure() bool { return m.Role == results.Primary || m.Role == "" }

// Value returns the name of what is compared: "throughput", "RTT P50".
func (m Metric) Value() string { return strings.TrimSpace(m.Noun + " " + m.Statistic) }

// Forbidden reports whether the metric counts what must not happen at all.
func (m Metric) Forbidden() bool {
	return m.Role == results.Check && m.Guards != "" && m.Limit == 0 && !m.Trend
}

// Axis returns the name of its axis.
func (m Metric) Axis() string {
	return strings.TrimSuffix(strings.ToLower(m.Title)+", "+m.Unit.Axis, ", ")
}

// Quote marks a published figure that is a bound. Beyond a limit of the equipment is what is better; what
// ended a measurement may hide more.
func (m Metric) Quote(p results.Published, figure string) string {
	switch {
	case p.Qualified(results.About):
		return "~" + figure
	case p.Qualified(results.Limit) && m.Margin.Goal == stats.LowerIsBetter:
		return "≤ " + figure
	case p.Qualified(results.Limit), p.Qualified(results.Censored):
		return "≥ " + figure
	}
	return figure
}
