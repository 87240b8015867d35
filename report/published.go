package report

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
)

// publishedTable has somebody else's absolute figures beside ours, and below, by source, what is known to be
// wrong with theirs. Percentages are in the tables of their metrics.
func publishedTable(s *figures.Summary) table {
	var sources []string
	t := table{Title: "Published figures beside ours", Columns: append(heads(2, "cell", "figure", "published",
		"ours"), column{Name: "their conditions", Words: true, Long: true})}
	said := ""
	add := func(label string, p results.Published, ours func(metric.Metric) string) {
		m := s.Metric(p.Metric)
		if m == nil || p.Value == 0 {
			return
		}
		conditions := p.Qualifier
		if conditions == said {
			conditions = "" // as above
		}
		said = p.Qualifier
		if !slices.Contains(sources, p.Source) {
			sources = append(sources, p.Source)
		}
		t.Rows = append(t.Rows, []string{label, strings.TrimSpace(m.Name + " " + p.Statistic),
			fmt.Sprintf("%s [%d]", m.Quote(p, m.Unit.Full(p.Value)), 1+slices.Index(sources, p.Source)), ours(*m),
			conditions})
	}
	for _, c := range s.Cells {
		said = ""
		for _, p := range c.Published {
			add(c.Label(), p, func(m metric.Metric) string {
				if v, ok := c.Statistic(m, p.Statistic); ok {
					return c.Figure(m).Bounded(m.Unit.Full(v))
				}
				return format.None
			})
		}
	}
	for _, p := range s.Session.Scenario.Published {
		if slices.ContainsFunc(s.Session.Scenario.Excluded, func(e results.Excluded) bool {
			return e.Cell == p.Cell
		}) {
			add(p.Cell, p, func(metric.Metric) string { return "no such cell here" })
		}
	}
	for i, source := range sources {
		t.Notes = append(t.Notes, fmt.Sprintf("[%d] %s", i+1, source))
		for _, d := range s.Session.Scenario.Doubts {
			if d.Source == source || d.Source == "" && i == len(sources)-1 { // an old session does not say which one
				t.Notes = append(t.Notes, d.Text)
			}
		}
	}
	return t
}
