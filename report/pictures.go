package report

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/report/chart"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/stats"
)

// picture is a chart with its data.
type picture struct {
	File  string // name of the SVG, without directory
	SVG   []byte
	Data  table
	Minor bool // one of the further charts
}

// newPictures draws charts of all that the session has data for, primary metrics first.
func newPictures(s *figures.Summary) []picture {
	var all []picture
	add := func(what string, m metric.Metric, data table, svg []byte) {
		name := chartName(what, m)
		if slices.ContainsFunc(all, func(p picture) bool { return p.File == name }) {
			name = chartName(what+"-"+m.Name, m) // if there are several primary ones
		}
		all = append(all, picture{name, svg, data, !m.IsPrimary()})
	}
	head, _ := s.SpreadHead()
	for _, m := range s.Ordered() {
		values := valueTable(s, m)
		compared := slices.ContainsFunc(s.Cells, func(c figures.Cell) bool { return c.Figure(m).Ratio.Known() })
		if compared && !whole(s, m) {
			data, l := values, barsLabels(s, m)
			if !m.IsPrimary() && m.Statistic == "" {
				data = blockTable(s, m)
			}
			l.Alt = values.words(l.Title, "%", head)
			add(strings.ToLower(m.Noun), m, data, chart.Bars(withRuns(s), m, l))
		}
		if m.Statistic == "" || !s.Has(m) {
			continue
		}
		labels := func(title, hint string) chart.Labels {
			title = fmt.Sprintf("%s %s: %s", capital(m.Noun), title, m.Name)
			alt := values.words(title+" ("+m.Unit.Name+")", "P50", "P99", "P99.9", "max")
			return chart.Labels{Title: title, Hint: "All used runs of a cell merged" + hint, Alt: alt}
		}
		add("range", m, distributionTable(s, m), chart.Ranges(s, m, labels("from the shortest to the longest",
			", in "+m.Unit.Name+". A maximum grows with the time measured; a percentile that the sample does "+
				"not support is left out.")))
		add("percentiles", m, table{}, chart.Percentiles(s, m, labels("by percentile", ". Each line ends at the "+
			"highest percentile that its sample supports. Lower is better; a flat line is a predictable one.")))
	}
	return append(all, curvePictures(s)...)
}

// better says in which direction the metric is better.
func better(m metric.Metric) string {
	if m.Margin.Goal == stats.LowerIsBetter {
		return "Less"
	}
	return "More"
}

// whole reports whether a metric is the only part of another, which shows the same.
func whole(s *figures.Summary, m metric.Metric) bool {
	return slices.ContainsFunc(s.Metrics, func(o metric.Metric) bool {
		return slices.Equal(o.MeanOf, []string{m.Name})
	})
}

// chartName returns the name of a chart's file: primary metrics by what they are, others by their measurement
// too.
func chartName(what string, m metric.Metric) string {
	if !m.IsPrimary() {
		what += "-" + strings.TrimPrefix(m.Name, what+"-")
	}
	return "chart-" + strings.Map(func(r rune) rune {
		if r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, what) + ".svg"
}

// barsLabels returns the title of a bar chart, and the line that says how to read it.
func barsLabels(s *figures.Summary, m metric.Metric) chart.Labels {
	title := capital(m.Value()) + " in percent of " + s.Baseline
	if len(m.MeanOf) == 0 {
		title += ": " + m.Name
	}
	right := "the median of the runs"
	if m.Statistic != "" {
		right = m.Statistic + " of all runs merged"
	}
	hint := fmt.Sprintf("On the right the Hodges–Lehmann estimate, and %s. %s is better.", right, better(m))
	if m.About != "" {
		hint = capital(m.About) + ". " + hint
	}
	if m.IsPrimary() && s.Averages(m) {
		hint += " The paper gives averages, not medians."
	}
	return chart.Labels{Title: title, Hint: hint}
}
