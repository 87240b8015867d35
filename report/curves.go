package report

import (
	"cmp"
	"fmt"
	"strings"

	"isolane.dev/isolane/report/chart"
	"isolane.dev/isolane/report/curves"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
)

// curvePictures returns a chart of each metric over each numeric factor.
func curvePictures(s *figures.Summary) (all []picture) {
	for _, curve := range curves.Of(s) {
		for _, m := range s.Ordered() {
			if whole(s, m) || !s.Has(m) || !curve.Track(m).Drawn() {
				continue
			}
			data, hint := curveTable(curve, m, true), "Medians of the runs"
			if m.Sampled {
				hint = "Percentiles of all used runs merged"
			}
			if curve.Track(m).Load {
				hint += ", over what was carried. Where less than 99% of what was asked is carried, or anything is " +
					"lost, the server is overloaded: a percentile of the rest would say nothing"
			}
			what := strings.Trim("over-"+curve.Factor+"-"+curve.Where, "-")
			if m.IsPrimary() {
				what += "-" + m.Name
			}
			all = append(all, picture{chartName(what, m), chart.Curves(curve, m, chart.Labels{
				Title: curveTitle(curve, m), Hint: fmt.Sprintf("%s. %s is better.", hint, better(m)),
				Alt: data.words(data.Title, curve.Levels...)}), data, !m.IsPrimary()})
		}
	}
	return all
}

func curveTitle(curve curves.Curve, m metric.Metric) string {
	title := fmt.Sprintf("%s (%s) over %s, %s", m.Title, m.Detail, curve.Factor, curve.Where)
	return strings.TrimSuffix(title, ", ")
}

// curveTable has a metric over a numeric factor: a row for each line and statistic, a column for each level.
func curveTable(curve curves.Curve, m metric.Metric, spread bool) table {
	t := table{Title: curveTitle(curve, m) + ", " + m.Unit.Name,
		Columns: append(heads(2, cmp.Or(curve.By, "cells"), ""), heads(0, curve.Levels...)...)}
	track := curve.Track(m)
	for i, line := range curve.Lines {
		row := func(what string, of func(curves.Reading) string) {
			cells := []string{line.Name, what}
			for _, r := range track.Lines[i] {
				cells = append(cells, of(r))
			}
			t.Rows = append(t.Rows, cells)
		}
		if track.Load {
			row("carried/s", func(r curves.Reading) string {
				if r.Over {
					return fmt.Sprintf("%s of %s", format.Digits(r.X), format.Digits(r.Offered))
				}
				return format.Digits(r.X)
			})
		}
		for k, name := range track.Statistics {
			row(name, func(r curves.Reading) string {
				switch {
				case r.Over && k == 0:
					return r.State
				case r.State != "":
					return format.None
				case spread && r.Lo[k] > 0:
					return fmt.Sprintf("%s (%s to %s)", r.Marked(m.Unit.Plain(r.Values[k])), m.Unit.Plain(r.Lo[k]),
						m.Unit.Plain(r.Hi[k]))
				}
				return r.Marked(m.Unit.Plain(r.Values[k]))
			})
		}
	}
	if spread {
		t.Notes = []string{"In brackets: " + track.Spread + "."}
	}
	return t
}
