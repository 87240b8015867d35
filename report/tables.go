package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/stats"
)

// estimate prints a ratio; the baseline is 100% by definition.
func (c Cell) estimate(r Comparison) string {
	switch {
	case c.Baseline:
		return "100%"
	case !r.Known():
		return none
	}
	return percent(r.Estimate)
}

// valueTable has what the verdict on a metric is based on: ratios to the baseline, and figures of all runs.
func (s *Summary) valueTable(m Metric) table {
	head, note := s.spreadHead()
	title := fmt.Sprintf("%s (%s) in %% of %s, block by block", m.title, m.detail, s.Baseline)
	columns := []column{
		{Name: "%", of: func(c Cell) string { return c.estimate(c.Figure(m).Ratio) }},
		{Name: head, of: func(c Cell) string {
			if c.Baseline {
				return none
			}
			return c.Figure(m).Ratio.spreadText()
		}}}
	if m.statistic == "" {
		columns = append(columns, m.median(m.unit.name))
	} else {
		title = fmt.Sprintf("%s (%s), %s in %% of %s, block by block; the rest in %s", m.title, m.detail,
			m.statistic, s.Baseline, m.unit.name)
		columns = append(columns, m.quantile(0.5), m.quantile(0.99), m.quantile(0.999), m.max(),
			column{Name: "mean %", of: func(c Cell) string { return c.estimate(c.Figure(m).Means) }})
	}
	for _, p := range s.Metrics {
		if slices.Contains(m.parts, p.Name) {
			columns = append(columns, p.median(p.short))
		}
	}
	t := newTable(title, s.Cells, m.missing, append(columns,
		column{Name: "paper", optional: true, of: func(c Cell) string { return c.quoted(m) }},
		column{Name: strings.TrimSpace(m.statistic + " verdict"), Words: true, optional: true,
			of: func(c Cell) string { return string(c.Figure(m).Verdict) }})...)
	t.Notes = append(t.Notes, note)
	if m.statistic != "" {
		t.Notes = append(t.Notes, s.sampleNote(m))
	}
	if s.averages(m) {
		t.Notes = append(t.Notes, "The paper gives averages: compare them with \"mean %\", not with P50.")
	}
	return t
}

func (m Metric) missing(c Cell) string { return c.missing(m) }

// median, quantile and max are columns.
func (m Metric) median(head string) column {
	return column{Name: head, of: func(c Cell) string { return m.unit.plain(c.Figure(m).Centre) }}
}

func (m Metric) quantile(p float64) column {
	return column{Name: pname(p), of: func(c Cell) string {
		return m.unit.plain(c.Figure(m).Merged.Quantile(p))
	}}
}

func (m Metric) max() column {
	return column{Name: "max", of: func(c Cell) string { return m.unit.plain(c.Figure(m).Merged.Max()) }}
}

// sampleNote says of how many samples the percentiles and the maximum are, and what was too few.
func (s *Summary) sampleNote(m Metric) string {
	cells := s.sampled(m)
	if len(cells) == 0 {
		return ""
	}
	size := func(c Cell) uint64 { return c.Figure(m).Merged.N() }
	bySize := func(a, b Cell) int { return cmp.Compare(size(a), size(b)) }
	least, most := slices.MinFunc(cells, bySize), slices.MaxFunc(cells, bySize)
	shortest, longest, lacking := math.Inf(1), 0.0, false
	for _, c := range cells {
		d := c.Figure(m).Merged
		shortest, longest = min(shortest, d.Window.Seconds()), max(longest, d.Window.Seconds())
		lacking = lacking || math.IsNaN(d.Quantile(0.999))
	}
	window := tickText(longest)
	if shortest < longest {
		window = tickText(shortest) + " to " + window
	}
	note := fmt.Sprintf("Percentiles and max are of all used runs merged: %s (%s) to %s samples in %s s a cell.",
		count(size(least)), least.Name, count(size(most)), window)
	if lacking {
		note += fmt.Sprintf(" %s: too few samples; P99 needs %s, P99.9 %s.", none, count(stats.SamplesFor(0.99)),
			count(stats.SamplesFor(0.999)))
	}
	return note
}

// costTable shows what noise costs each placement on each path.
func (s *Summary) costTable() table {
	head, _ := s.spreadHead()
	names, trip := []string{"placement-path"}, s.distribution()
	for _, m := range s.primary() {
		names = append(names, m.value(), head)
	}
	if trip.Name != "" {
		names = append(names, "P99.9 "+trip.unit.name+" quiet", "noisy")
	}
	t := table{Title: "What noise costs: each noisy cell in % of its own quiet cell, block by block",
		Columns: heads(1, names...)}
	for _, c := range s.Costs {
		row := []string{c.Name}
		for _, r := range c.Ratios {
			row = append(row, percent(r.Estimate), r.spreadText())
		}
		if trip.Name != "" {
			without, with := c.tails(trip)
			row = append(row, trip.unit.plain(without), trip.unit.plain(with))
		}
		if slices.ContainsFunc(row[1:], func(v string) bool { return v != none }) {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// workTable shows the price of isolation.
func (s *Summary) workTable() table {
	names, bases := map[string]bool{}, []string{}
	var cells []Cell
	for _, c := range s.Cells {
		for name := range c.Work {
			names[name] = true
		}
		if len(c.Work) > 0 {
			cells = append(cells, c)
		}
		if c.WorkBase != "" && !slices.Contains(bases, c.WorkBase) {
			bases = append(bases, c.WorkBase)
		}
	}
	var columns []column
	for _, name := range slices.Sorted(maps.Keys(names)) { // capitals first: CPUs
		columns = append(columns, column{Name: name, of: func(c Cell) string {
			w := c.Work[name]
			switch {
			case w == nil:
				return none
			case w.Ratio.Known():
				return fmt.Sprintf("%s (%s)", digits(w.Centre), percent(w.Ratio.Estimate))
			}
			return digits(w.Centre)
		}})
	}
	t := newTable("Price of isolation: what the neighbours got, CPUs' worth of time and bogo operations per "+
		"second", cells, nil, columns...)
	if len(bases) > 0 {
		t.Notes = []string{fmt.Sprintf("In brackets: of what they got floating (%s), block by block.",
			strings.Join(bases, ", "))}
	}
	return t
}

// distributionTable has all that a merged histogram supports.
func (s *Summary) distributionTable(m Metric) table {
	of := func(name string, value func(*Distribution) string) column {
		return column{Name: name, of: func(c Cell) string { return value(c.Figure(m).Merged) }}
	}
	least := func(d *Distribution) string { return m.unit.plain(float64(d.Histogram.Min())) }
	columns := []column{of("min", least)}
	for _, p := range []float64{0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999} {
		columns = append(columns, m.quantile(p))
	}
	columns = append(columns, m.max(),
		of("mean", func(d *Distribution) string { return m.unit.plain(d.Histogram.Mean()) }),
		column{Name: "P99.9 of single runs", of: func(c Cell) string { return tailRange(m, c.Figure(m).Blocks) }},
		of("samples", func(d *Distribution) string { return count(d.N()) }),
		of("seconds", func(d *Distribution) string { return tickText(d.Window.Seconds()) }),
		of("lost", func(d *Distribution) string { return fmt.Sprintf("%s of %s", count(d.Lost), count(d.Sent)) }),
		of("send lag P99.9", func(d *Distribution) string {
			if !d.Open {
				return ""
			}
			return m.unit.plain((&Distribution{Histogram: d.Lag}).Quantile(0.999))
		}))
	for i := range columns {
		columns[i].optional = true
	}
	return newTable(m.Name+", "+m.unit.name+", all used runs of a cell merged", s.Cells, m.missing, columns...)
}

// tailRange is the range of P99.9 over the runs whose sample supports it.
func tailRange(m Metric, blocks []Block) string {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, b := range blocks {
		if !math.IsNaN(b.P999) {
			lo, hi = min(lo, b.P999), max(hi, b.P999)
		}
	}
	if lo > hi {
		return none
	}
	return fmt.Sprintf("%s to %s", m.unit.plain(lo), m.unit.plain(hi))
}

// blockTable has the value of each run.
func (s *Summary) blockTable(m Metric) table {
	var columns []column
	for b := range s.Session.Scenario.Blocks {
		columns = append(columns, column{Name: fmt.Sprint(b + 1), of: func(c Cell) string {
			v, ok := c.Figure(m).At(b + 1)
			if !ok {
				return none
			}
			return m.unit.plain(v.Value)
		}})
	}
	unit := strings.TrimPrefix(m.statistic+" in "+m.unit.name, " in ")
	return newTable(fmt.Sprintf("%s, %s, block by block", m.Name, unit), s.Cells, nil, columns...)
}
