package report

import (
	"fmt"
	"slices"
	"strings"
)

// charts draws all that the session has data for: first those of the primary metrics.
func (s *Summary) charts() ([]*chart, error) {
	var all []*chart
	add := func(what string, m Metric, c *chart, data table, unit string, columns ...string) {
		c.File, c.Data, c.Minor = chartName(what, m), data, !m.Primary
		c.Alt = s.valueTable(m).words(c.title+unit, columns...)
		all = append(all, c)
	}
	head, _ := s.spreadHead()
	tail := []string{"P50", "P99", "P99.9", "max"}
	metrics := append(s.primary(), slices.DeleteFunc(slices.Clone(s.Metrics), func(m Metric) bool { return m.Primary })...)
	for _, m := range metrics {
		if s.compared(m) && !s.whole(m) {
			data := s.valueTable(m)
			if !m.Primary && m.statistic == "" {
				data = s.blockTable(m)
			}
			add(m.Kind, m, s.bars(m, s.barsTitle(m), s.barsHint(m)), data, "", "%", head)
		}
		if m.statistic != "" && s.has(m) {
			unit := " (" + m.unit.name + ")"
			title := fmt.Sprintf("%s from the shortest to the longest: %s", m.noun, m.Name)
			add("range", m, s.ranges(m, title, fmt.Sprintf("All used runs of a cell merged, in %s. A maximum grows with "+
				"the time measured; a percentile that the sample does not support is left out.", m.unit.name)),
				s.distributionTable(m), unit, tail...)
			title = fmt.Sprintf("%s by percentile: %s", m.noun, m.Name)
			add("percentiles", m, s.percentiles(m, title, "All used runs of a cell merged. Each line ends at the highest "+
				"percentile that its sample supports. Lower is better; a flat line is a predictable one."), table{}, unit, tail...)
		}
	}
	for _, c := range all {
		if err := c.paint(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// compared says whether there is anything in percent of the baseline.
func (s *Summary) compared(m Metric) bool {
	return slices.ContainsFunc(s.Cells, func(c Cell) bool { return c.Figure(m).Ratio.Known() })
}

// whole says whether a metric is the only part of another, which shows the same.
func (s *Summary) whole(m Metric) bool {
	return slices.ContainsFunc(s.Metrics, func(o Metric) bool { return len(o.parts) == 1 && o.parts[0] == m.Name })
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

func (s *Summary) barsTitle(m Metric) string {
	title := capital(m.value()) + " in percent of " + s.Baseline
	if len(m.parts) == 0 {
		title += ": " + m.Name
	}
	return title
}

func (s *Summary) barsHint(m Metric) string {
	right := "the median of the runs"
	if m.statistic != "" {
		right = m.statistic + " of all runs merged"
	}
	hint := fmt.Sprintf("%s. On the right the Hodges–Lehmann estimate, and %s. %s", m.about, right, m.direction())
	if s.averages(m) {
		hint += " The paper gives averages, not medians."
	}
	return hint
}
