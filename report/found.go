package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/stats"
)

// found says for each primary metric where it is best and worst, and what searches found. If there are aims,
// these say the former.
func found(s *figures.Summary) (all []string) {
	if len(s.Aims) == 0 {
		for _, m := range s.Primary() {
			if text := extremes(s, m); text != "" {
				all = append(all, text)
			}
		}
	}
	for _, q := range s.Session.Searches {
		for _, d := range q.Cells {
			var goals []string
			for i, b := range d.Brackets {
				if b.Holds != nil || b.Fails != nil {
					text := q.Goals[i].Name + ": " + bracket(q, b)
					if of := ofFirst(q, d, i); of != format.None {
						text += fmt.Sprintf(" (%s of %s)", of, q.Cells[0].Name)
					}
					goals = append(goals, text)
				}
			}
			if len(goals) > 0 {
				all = append(all, fmt.Sprintf("Search %s in %s, up to where it holds %s.", q.Name, d.Name,
					strings.Join(goals, "; ")))
			}
		}
	}
	return all
}

// extremes names the best and the worst cell of a metric, or the only one; "" if none has a figure. Cells
// with another load than the baseline do not count. Samples are compared by P99 if all cells support it: the
// median flatters what noise disturbs now and then.
func extremes(s *figures.Summary, m metric.Metric) string {
	statistic := ""
	if m.Sampled && !slices.ContainsFunc(s.Sampled(m), func(c figures.Cell) bool {
		_, ok := c.Statistic(m, "p99")
		return !ok
	}) {
		statistic, m.Statistic = "p99", "P99"
	}
	base := s.Cell(s.Baseline)
	cells := slices.DeleteFunc(slices.Clone(s.Cells), func(c figures.Cell) bool {
		_, ok := c.Statistic(m, statistic)
		return !ok || base != nil && !s.SameLoad(c, *base)
	})
	if len(cells) == 0 {
		return ""
	}
	slices.SortStableFunc(cells, func(a, b figures.Cell) int {
		v, _ := a.Statistic(m, statistic)
		w, _ := b.Statistic(m, statistic)
		if m.Margin.Goal == stats.LowerIsBetter {
			return cmp.Compare(v, w)
		}
		return cmp.Compare(w, v)
	})
	name := m.Value()
	if s.Distinct(m).Noun != m.Noun {
		name += " of " + m.Name
	}
	if len(cells) == 1 {
		return fmt.Sprintf("%s: %s.", capital(name), atCell(s, m, statistic, cells[0]))
	}
	return fmt.Sprintf("%s: best in %s; worst in %s.", capital(name), atCell(s, m, statistic, cells[0]),
		atCell(s, m, statistic, cells[len(cells)-1]))
}

// atCell returns a cell with its figure, its share of the baseline's, and the verdict if that is about these.
func atCell(s *figures.Summary, m metric.Metric, statistic string, c figures.Cell) string {
	v, _ := c.Statistic(m, statistic)
	f := c.Figure(m)
	text := fmt.Sprintf("%s, %s", c.Label(), f.Bounded(m.Unit.Full(v)))
	base := s.Cell(s.Baseline)
	switch {
	case c.Baseline:
		text += " (the baseline)"
	case base == nil:
	case statistic != "":
		if w, ok := base.Statistic(m, statistic); ok && !math.IsInf(w, 1) {
			text += fmt.Sprintf(", %s of %s", figures.Bound(format.Percent(v/w), f, base.Figure(m)), s.Baseline)
		}
		text += inDoubt(f)
	case f.Ratio.Known():
		text += fmt.Sprintf(", %s of %s", s.Estimate(c, m), s.Baseline)
		if said := verdict(f); said != "" {
			text += ": " + said
		}
	}
	return text
}
