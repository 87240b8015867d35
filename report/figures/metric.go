package figures

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Metric is a quantity that runs measure, and all that tables and charts have to know of it.
//
// The results do not describe their metrics, factors and aims. What is not in them is in this file, and
// nowhere else in the reports.
type Metric struct {
	Name    string // of the measurement, or that of a mean
	Kind    string // throughput or rtt, as published figures name it
	Primary bool   // comes first, and belongs to the one family of verdicts

	Noun      string      // of sentences and charts
	Title     string      // of tables
	Detail    string      // which one it is
	About     string      // how it is measured, for a chart
	Statistic string      // the quantile that is a run's value, "" where a run gives one value
	Unit      format.Unit // of its values
	Parts     []string    // the measurements whose geometric mean it is
	Short     string      // as one of several parts
	Closed    bool        // a closed loop: one message in flight
	Margin    stats.Margin
}

// throughput names the metric that stands for all throughput measurements of a run: the geometric mean of
// the directions, of runs in which none of them is void.
const throughput = "throughput"

// metrics describes what the runs measure, in the order in which it was measured; means before their parts.
func metrics(runs []results.Run) []Metric {
	var rates, trips []Metric
	seen := map[string]bool{}
	for _, r := range runs {
		for _, m := range r.Measured {
			switch {
			case seen[m.Name]:
			case m.Rate != nil:
				rates = append(rates, newThroughput(m))
			case m.RTT != nil:
				trips = append(trips, newRoundTrip(m))
			}
			seen[m.Name] = true
		}
	}
	if len(rates) > 0 {
		rates = slices.Insert(rates, 0, newMean(rates))
	}
	if len(trips) > 0 { // the closed loop of small datagrams represents the others
		first := max(0, slices.IndexFunc(trips, func(m Metric) bool { return m.Primary }))
		for i := range trips {
			trips[i].Primary = i == first
		}
	}
	return append(rates, trips...)
}

func newThroughput(m results.Measurement) Metric {
	return Metric{Name: m.Name, Kind: m.Metric, Noun: "throughput", Title: "Throughput", Detail: m.Name,
		About: "TCP, " + m.Name, Unit: format.Rates(), Short: cmp.Or(m.Rate.Direction, m.Name),
		Margin: stats.Margin{Goal: stats.HigherIsBetter, Size: 0.05, Alpha: alpha}}
}

func newMean(parts []Metric) Metric {
	mean := parts[0]
	mean.Name, mean.Primary = throughput, true
	if slices.ContainsFunc(parts, func(p Metric) bool { return p.Name == throughput }) {
		mean.Name += " (mean)"
	}
	var directions []string
	for _, p := range parts {
		mean.Parts, directions = append(mean.Parts, p.Name), append(directions, p.Short)
	}
	if len(parts) > 1 {
		mean.Detail = "geometric mean of " + strings.Join(directions, " and ")
		mean.About = "TCP, " + mean.Detail
	}
	return mean
}

func newRoundTrip(m results.Measurement) Metric {
	closed := m.RTT.Mode == "pingpong"
	return Metric{Name: m.Name, Kind: m.Metric, Noun: "RTT", Title: "Round trip", Detail: m.Name,
		About: "Median round trip (P50)", Statistic: "P50", Unit: format.Times(), Closed: closed,
		Primary: closed && m.RTT.Protocol == "udp" && m.RTT.PayloadBytes <= 64,
		Margin:  stats.Margin{Goal: stats.LowerIsBetter, Size: 0.10, Alpha: alpha}}
}

// Value is the name of what is compared: "throughput", "RTT P50".
func (m Metric) Value() string { return strings.TrimSpace(m.Noun + " " + m.Statistic) }

// Shown prints the figure of all runs with its unit.
func (m Metric) Shown(f Figure) string {
	if m.Statistic != "" {
		return m.Unit.Full(f.Merged.Quantile(0.5))
	}
	return m.Unit.Full(f.Centre)
}

// Ordered are the metrics, the primary ones first.
func (s *Summary) Ordered() []Metric {
	rest := slices.DeleteFunc(slices.Clone(s.Metrics), func(m Metric) bool { return m.Primary })
	return append(s.Primary(), rest...)
}

// Primary are the metrics of the verdict.
func (s *Summary) Primary() []Metric {
	return slices.DeleteFunc(slices.Clone(s.Metrics), func(m Metric) bool { return !m.Primary })
}

// PrimaryDistribution is the primary metric that has a distribution; it has no name where there is none.
func (s *Summary) PrimaryDistribution() Metric {
	for _, m := range s.Metrics {
		if m.Primary && m.Statistic != "" {
			return m
		}
	}
	return Metric{}
}

// The levels of the factors noise and placement that have a part in comparisons.
const (
	Quiet    = "quiet"
	noisy    = "noisy"
	floating = "floating"
)

// Placements are the levels of the factor that charts show by hue.
func Placements() []string { return []string{floating, "pinned", "lane"} }

// Averages says whether published figures of a metric are averages, where ours is a quantile.
func (s *Summary) Averages(m Metric) bool {
	return m.Statistic != "" && slices.ContainsFunc(s.Cells, func(c Cell) bool {
		p := c.PublishedFor(m)
		return p != nil && p.Qualified(results.Average)
	})
}

// PublishedFor is somebody else's figure for a cell, nil for none.
func (c Cell) PublishedFor(m Metric) *results.Published {
	k := slices.IndexFunc(c.Published, func(p results.Published) bool { return p.Metric == m.Kind })
	if k < 0 {
		return nil
	}
	return &c.Published[k]
}

// Quoted prints somebody else's figure for a cell.
func (c Cell) Quoted(m Metric) string {
	p := c.PublishedFor(m)
	switch {
	case p == nil:
		return format.None
	case p.Qualified(results.About):
		return fmt.Sprintf("~%g%%", p.Percent)
	}
	return fmt.Sprintf("%g%%", p.Percent)
}
