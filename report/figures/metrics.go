package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/report/samples"
	"isolane.dev/isolane/results"
)

// Distinct returns the metric with its own name as noun if another primary metric has the same noun.
func (s *Summary) Distinct(m metric.Metric) metric.Metric {
	if slices.ContainsFunc(s.Metrics, func(o metric.Metric) bool {
		return o.IsPrimary() && o.Noun == m.Noun && o.Name != m.Name
	}) {
		m.Noun = m.Name
	}
	return m
}

// Load returns what was asked for a metric; nothing if that is no open loop.
func (c Cell) Load(m metric.Metric) samples.Load { return c.loads[m.Name] }

// SameLoad reports whether open loops asked two cells for as much per second, to a twentieth.
func (s *Summary) SameLoad(a, b Cell) bool {
	return !slices.ContainsFunc(s.Metrics, func(m metric.Metric) bool {
		l, as := a.Load(m), b.Load(m)
		more := l.PerSecond(l.Wanted) / as.PerSecond(as.Wanted)
		return m.Loop == results.Open && (more < 1/1.05 || more > 1.05)
	})
}

// Shown prints the figure of all runs with the unit of its metric.
func (f Figure) Shown(m metric.Metric) string {
	if m.Sampled {
		return f.Bounded(m.Unit.Full(f.Merged.Quantile(0.5)))
	}
	return f.Bounded(m.Unit.Full(f.Centre))
}

// Bounded marks a printed figure whose probe was at a limit, or whose client was late.
func (f Figure) Bounded(text string) string {
	if mark := map[string]string{"at most": "≤ ", "at least": "≥ "}[f.Side()]; text != format.None {
		return mark + text
	}
	return text
}

// Side says in words what a bound is, "at most" or "at least"; "" for no bound.
func (f Figure) Side() string {
	if f.Limit == "" {
		return ""
	}
	return map[bool]string{true: "at most", false: "at least"}[f.AtMost]
}

// Metric returns the metric of that name; nil for none.
func (s *Summary) Metric(name string) *metric.Metric {
	return first(s.Metrics, func(m metric.Metric) bool { return m.Name == name })
}

// Ordered returns the metrics that are compared, the primary ones first.
func (s *Summary) Ordered() []metric.Metric {
	all := s.Primary()
	for _, m := range s.Metrics {
		if m.Role == "" {
			all = append(all, m)
		}
	}
	return all
}

// Primary returns the metrics of the verdict.
func (s *Summary) Primary() []metric.Metric {
	return slices.DeleteFunc(slices.Clone(s.Metrics), func(m metric.Metric) bool { return !m.IsPrimary() })
}

// PrimaryDistribution returns the primary metric that has a distribution; one without a name if there is
// none.
func (s *Summary) PrimaryDistribution() metric.Metric {
	if m := first(s.Metrics, func(m metric.Metric) bool { return m.IsPrimary() && m.Sampled }); m != nil {
		return *m
	}
	return metric.Metric{}
}

// Averages reports whether published figures of a metric are averages although ours is a quantile.
func (s *Summary) Averages(m metric.Metric) bool {
	return m.Sampled && slices.ContainsFunc(s.Cells, func(c Cell) bool {
		p := c.PublishedFor(m)
		return p != nil && p.Qualified(results.Average)
	})
}

// PublishedFor returns somebody else's figure of a cell in percent of the baseline; nil for none.
func (c Cell) PublishedFor(m metric.Metric) *results.Published {
	return first(c.Published, func(p results.Published) bool {
		return p.Metric == m.Name && p.Statistic == "" && p.Percent > 0
	})
}

// Statistic returns a statistic of all runs of a cell: min, mean, max, p99.9 of its samples; "" is what is
// compared. It returns false if the runs do not have it, or too few samples.
func (c Cell) Statistic(m metric.Metric, name string) (float64, bool) {
	f, v := c.Figure(m), math.NaN()
	d := f.Merged
	switch {
	case name == "" && !m.Sampled:
		v = f.Centre
	case name == "min":
		v = d.Min()
	case name == "mean":
		v = d.Mean()
	case name == "max":
		v = d.Max()
	default:
		if q, err := lane.Quantile(cmp.Or(name, "p50")); err == nil {
			v = d.Quantile(q)
		}
	}
	return v, !math.IsNaN(v)
}

// Quoted prints somebody else's percentage for a cell.
func (c Cell) Quoted(m metric.Metric) string {
	p := c.PublishedFor(m)
	if p == nil {
		return format.None
	}
	return m.Quote(*p, fmt.Sprintf("%g%%", p.Percent))
}
