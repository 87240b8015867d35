package report

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/stats"
)

// charts draws all that the session has data for: first those of the primary metrics.
func (s *Summary) charts() ([]*chart, error) {
	var all []*chart
	add := func(what string, m Metric, c *chart, data table, unit string, columns ...string) {
		c.File, c.Data, c.Minor = chartName(what, m), data, !m.Primary
		c.Alt = s.valueTable(m).words(c.Title+unit, columns...)
		all = append(all, c)
	}
	head, _ := s.spreadHead()
	tail := []string{"P50", "P99", "P99.9", "max"}
	for _, m := range s.ordered() {
		compared := slices.ContainsFunc(s.Cells, func(c Cell) bool { return c.Figure(m).Ratio.Known() })
		if compared && !s.whole(m) {
			data := s.valueTable(m)
			if !m.Primary && m.statistic == "" {
				data = s.blockTable(m)
			}
			title, hint := s.barsText(m)
			add(strings.ToLower(m.noun), m, s.bars(m, title, hint), data, "", "%", head)
		}
		if m.statistic != "" && s.has(m) {
			unit := " (" + m.unit.name + ")"
			title := fmt.Sprintf("%s from the shortest to the longest: %s", m.noun, m.Name)
			hint := "All used runs of a cell merged, in " + m.unit.name + ". A maximum grows with the time " +
				"measured; a percentile that the sample does not support is left out."
			add("range", m, s.ranges(m, title, hint), s.distributionTable(m), unit, tail...)
			title = fmt.Sprintf("%s by percentile: %s", m.noun, m.Name)
			hint = "All used runs of a cell merged. Each line ends at the highest percentile that its sample " +
				"supports. Lower is better; a flat line is a predictable one."
			add("percentiles", m, s.percentiles(m, title, hint), table{}, unit, tail...)
		}
	}
	for _, c := range all {
		if err := c.paint(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// whole says whether a metric is the only part of another, which shows the same.
func (s *Summary) whole(m Metric) bool {
	return slices.ContainsFunc(s.Metrics, func(o Metric) bool { return slices.Equal(o.parts, []string{m.Name}) })
}

// chartName is that of its file: the primary ones by what they are, the others by their measurement too.
func chartName(what string, m Metric) string {
	if m.Primary {
		return "chart-" + what + ".svg"
	}
	return "chart-" + what + "-" + strings.Map(func(r rune) rune {
		if r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, strings.TrimPrefix(m.Name, what+"-")) + ".svg"
}

// barsText is the title of a chart of bars, and the line that says how to read it.
func (s *Summary) barsText(m Metric) (title, hint string) {
	title = capital(m.value()) + " in percent of " + s.Baseline
	if len(m.parts) == 0 {
		title += ": " + m.Name
	}
	right, better := "the median of the runs", "More"
	if m.statistic != "" {
		right = m.statistic + " of all runs merged"
	}
	if m.margin.Goal == stats.LowerIsBetter {
		better = "Less"
	}
	hint = fmt.Sprintf("%s. On the right the Hodges–Lehmann estimate, and %s. %s is better.", m.about, right,
		better)
	if m.Primary && s.averages(m) {
		hint += " The paper gives averages, not medians."
	}
	return title, hint
}
