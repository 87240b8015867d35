package report

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
)

// aspectTable has a column of ratios for each aspect of the primary metrics, with their spread. add fills its
// rows.
func aspectTable(s *figures.Summary, ratio ratioOf, first, title string, words ...any) table {
	var all []figures.Comparison
	for _, i := range s.Isolation {
		for _, a := range i.Aspects {
			all = append(all, ratio(a))
		}
	}
	head, _ := figures.SpreadHead(all)
	t := table{Title: fmt.Sprintf(title, words...), Columns: heads(1, first)}
	primary := s.Primary()
	for _, a := range s.Aspects() {
		if len(primary) == 1 && a.Sampled {
			a.Name = strings.TrimPrefix(a.Name, a.Noun+" ")
		}
		t.Columns = append(t.Columns, column{Name: a.Name, optional: a.Tail}, column{Name: head, optional: a.Tail})
	}
	if len(primary) == 1 {
		t.Title += " (" + primary[0].Noun + ")"
	}
	return t
}

type ratioOf func(figures.Isolated) figures.Comparison

// add adds the ratios of a cell. bound marks those that are bounds.
func (t *table) add(name string, i figures.Isolation, ratio ratioOf,
	bound func(m metric.Metric, percent string) string, more ...string) {
	row := []string{name}
	for _, a := range i.Aspects {
		row = append(row, bound(a.Metric, format.Percent(ratio(a).Estimate)), ratio(a).SpreadText())
	}
	row = append(row, more...)
	if slices.ContainsFunc(row[1:], func(v string) bool { return v != format.None }) {
		t.Rows = append(t.Rows, row)
	}
}

// costTable shows what a disturbance costs each combination of the other levels: how well it is isolated.
func costTable(s *figures.Summary) table {
	noise := s.Disturbance()
	if noise == nil {
		return table{}
	}
	cost := func(a figures.Isolated) figures.Comparison { return a.Cost }
	t := aspectTable(s, cost, s.Others(), "What %s costs: each %s cell in %% of its own %s cell, block by block",
		noise.Name, figures.Disturbed(noise), noise.Quiet)
	trip := s.PrimaryDistribution()
	if trip.Name != "" {
		t.Columns = append(t.Columns, column{Name: "P99.9, " + trip.Unit.Name})
	}
	for _, i := range s.Isolation {
		if i.Quiet == nil {
			continue
		}
		var tails []string
		if trip.Name != "" {
			of := quantileColumn(trip, 0.999).of
			tails = []string{strings.Replace(of(*i.Quiet)+" to "+of(i.Cell), "– to –", format.None, 1)}
		}
		t.add(i.Name, i, cost, func(m metric.Metric, percent string) string {
			return figures.Bound(percent, i.Cell.Figure(m), i.Quiet.Figure(m))
		}, tails...)
	}
	t.drop()
	return t
}

// wonBack returns the bound that the won-back share is: if the figure may be better, so may the share.
func wonBack(f figures.Figure) figures.Figure { return figures.Figure{Limit: f.Limit} }

// winTable shows how much of what a disturbance takes from the baseline each disturbed cell wins back.
func winTable(s *figures.Summary) table {
	noise := s.Disturbance()
	if noise == nil {
		return table{}
	}
	back := func(a figures.Isolated) figures.Comparison { return a.Back }
	t := aspectTable(s, back, "cell", "How much of what %s takes is won back, block by block", noise.Name)
	for k := range t.Columns {
		t.Columns[k].optional = true
	}
	var losses, losers, whys []string
	without := map[string][]string{} // aspects, by why they have no share
	for _, i := range s.Isolation {
		t.add(i.Cell.Label(), i, back, func(m metric.Metric, percent string) string {
			return wonBack(i.Cell.Figure(m)).Bounded(percent)
		})
		for _, a := range i.Aspects {
			if a.Back.Known() {
				losers = append(losers, i.Loser.Name)
				losses = append(losses, fmt.Sprintf("%s from %s to %s", a.Name, a.Shown(*i.Base), a.Shown(*i.Loser)))
			} else if a.Why != "" {
				whys, without[a.Why] = append(whys, a.Why), append(without[a.Why], a.Name)
			}
		}
	}
	if len(t.Rows) > 0 {
		from := losers[0]
		if losers = once(losers); len(losers) > 1 {
			from, losses = "the cell that is as the baseline at the same load", losers
		}
		t.Notes = append(t.Notes, fmt.Sprintf("100%% is all that %s takes from %s: %s. More than 100%% is beyond "+
			"what there was without %s.", noise.Name, from, strings.Join(once(losses), "; "), noise.Name))
	}
	for _, why := range once(whys) {
		t.Notes = append(t.Notes, capital(strings.Join(once(without[why]), ", "))+": "+why+".")
	}
	if t.drop(); len(t.Rows) == 0 {
		t.Columns = nil
	}
	return t
}
