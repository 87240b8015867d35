package report

import (
	"slices"
	"strings"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
)

// publishedTable has the absolute figures of somebody else, ours beside them, and what is known to be wrong
// with theirs. The percentages stand in the tables of their metrics.
func publishedTable(s *figures.Summary) table {
	t := table{Title: "Published figures beside ours", Columns: append(heads(2, "cell", "figure", "published",
		"ours"), column{Name: "their conditions", Words: true, Long: true})}
	for _, c := range s.Cells {
		said := ""
		for _, p := range c.Published {
			k := slices.IndexFunc(s.Metrics, func(m figures.Metric) bool { return m.Name == p.Metric })
			if k < 0 || p.Value == 0 {
				continue
			}
			m := s.Metrics[k]
			ours := format.None
			if v, ok := c.Statistic(m, p.Statistic); ok {
				ours = c.Figure(m).Bounded(m.Unit.Full(v))
			}
			conditions := p.Qualifier
			if conditions == said {
				conditions = "" // as above
			}
			said = p.Qualifier
			t.Rows = append(t.Rows, []string{c.Label(), strings.TrimSpace(m.Name + " " + p.Statistic),
				m.Quote(p, m.Unit.Full(p.Value)), ours, conditions})
		}
	}
	if len(t.Rows) > 0 {
		t.Notes = s.Session.Scenario.Doubts
	}
	return t
}
