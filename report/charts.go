package report

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/stats"
)

// picture is a chart with its data.
type picture struct {
	File  string // name of the SVG, without directory
	SVG   []byte
	Data  table
	Minor bool // one of the further charts
}

// pictures are the charts of all that the session has data for: first those of the primary metrics.
func (s *Summary) pictures() []picture {
	var all []picture
	add := func(what string, m Metric, data table, svg []byte) {
		all = append(all, picture{chartName(what, m), svg, data, !m.Primary})
	}
	head, _ := s.spreadHead()
	for _, m := range s.ordered() {
		values := s.valueTable(m)
		compared := slices.ContainsFunc(s.Cells, func(c Cell) bool { return c.Figure(m).Ratio.Known() })
		if compared && !s.whole(m) {
			data, l := values, s.barsLabels(m)
			if !m.Primary && m.statistic == "" {
				data = s.blockTable(m)
			}
			l.Alt = values.words(l.Title, "%", head)
			add(strings.ToLower(m.noun), m, data, Bars(s.withRuns(), m, l))
		}
		if m.statistic == "" || !s.has(m) {
			continue
		}
		labels := func(title, hint string) Labels {
			title = fmt.Sprintf("%s %s: %s", m.noun, title, m.Name)
			alt := values.words(title+" ("+m.unit.name+")", "P50", "P99", "P99.9", "max")
			return Labels{Title: title, Hint: "All used runs of a cell merged" + hint, Alt: alt}
		}
		add("range", m, s.distributionTable(m), Ranges(s, m, labels("from the shortest to the longest",
			", in "+m.unit.name+". A maximum grows with the time measured; a percentile that the sample does "+
				"not support is left out.")))
		add("percentiles", m, table{}, Percentiles(s, m, labels("by percentile", ". Each line ends at the "+
			"highest percentile that its sample supports. Lower is better; a flat line is a predictable one.")))
	}
	return all
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

// barsLabels are the title of a chart of bars, and the line that says how to read it.
func (s *Summary) barsLabels(m Metric) Labels {
	title := capital(m.value()) + " in percent of " + s.Baseline
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
	hint := fmt.Sprintf("%s. On the right the Hodges–Lehmann estimate, and %s. %s is better.", m.about, right,
		better)
	if m.Primary && s.averages(m) {
		hint += " The paper gives averages, not medians."
	}
	return Labels{Title: title, Hint: hint}
}
