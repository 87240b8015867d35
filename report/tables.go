package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/report/samples"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// valueTable has what the verdict on a metric is based on: ratios to the baseline, and figures of all runs.
func valueTable(s *figures.Summary, m metric.Metric) table {
	head, note := s.SpreadHead()
	title := fmt.Sprintf("%s (%s) in %% of %s, block by block", m.Title, m.Detail, s.Baseline)
	columns := []column{
		{Name: "%", of: func(c figures.Cell) string { return s.Estimate(c, m) }},
		{Name: head, of: func(c figures.Cell) string {
			if c.Baseline {
				return format.None
			}
			return c.Figure(m).Ratio.SpreadText()
		}}}
	if m.Statistic == "" {
		columns = append(columns, medianColumn(m, m.Unit.Name))
	} else {
		title = fmt.Sprintf("%s (%s), %s in %% of %s, block by block; the rest in %s", m.Title, m.Detail,
			m.Statistic, s.Baseline, m.Unit.Name)
		for _, p := range []float64{0.5, 0.99, 0.999} {
			columns = append(columns, quantileColumn(m, p))
		}
		columns = append(columns, mergedColumn(m, "max", (*samples.Distribution).Max))
		if s.Averages(m) {
			columns = append(columns, column{Name: "mean %", of: func(c figures.Cell) string {
				switch means := c.Figure(m).Means; {
				case c.Baseline:
					return "100%"
				case !means.Known():
					return format.None
				default:
					return format.Percent(means.Estimate)
				}
			}})
		}
	}
	for _, p := range s.Metrics {
		if slices.Contains(m.MeanOf, p.Name) {
			columns = append(columns, medianColumn(p, p.Short))
		}
	}
	t := newTable(title, s.Cells, lacking(m), append(columns,
		column{Name: "paper", optional: true, of: func(c figures.Cell) string { return c.Quoted(m) }},
		column{Name: strings.TrimSpace(m.Statistic + " verdict"), Words: true, optional: true,
			of: func(c figures.Cell) string { return verdict(c.Figure(m)) }})...)
	t.Notes = append(t.Notes, note, s.BootNote())
	if m.Statistic != "" {
		t.Notes = append(t.Notes, sampleNote(s, m))
	}
	if s.Averages(m) {
		t.Notes = append(t.Notes, "The paper gives averages: compare them with \"mean %\", not with P50.")
	}
	t.Notes = append(t.Notes, limits(s, m)...)
	return t
}

// limits says why figures are bounds, ours and published ones.
func limits(s *figures.Summary, m metric.Metric) (notes []string) {
	for _, c := range s.Cells {
		if note := c.Figure(m).BoundNote(); note != "" {
			notes = append(notes, note)
		}
		for _, p := range c.Published {
			if p.Metric == m.Name && p.Percent > 0 && (p.Qualified(results.Limit) || p.Qualified(results.Censored)) {
				notes = append(notes, fmt.Sprintf("The paper's %s: %s.", c.Quoted(m), p.Qualifier))
			}
		}
	}
	return once(notes)
}

// verdict returns the verdict, with what a guard has found.
func verdict(f figures.Figure) string {
	if f.Lowered == "" {
		return string(f.Verdict)
	}
	return strings.TrimSpace(fmt.Sprintf("%s (%s)", f.Verdict, f.Lowered))
}

// guardTable shows the classic errors, and whether the session is free of them.
func guardTable(s *figures.Summary) table {
	t := table{Title: "Guards against the classic errors of measuring", Columns: append(heads(2, "error",
		"guard"),
		column{Name: "how, or where not", Words: true, Long: true})}
	for _, g := range s.Guards {
		t.Rows = append(t.Rows, []string{g.Name, string(g.State), g.Text})
	}
	return t
}

// medianColumn has the medians of the runs' values.
func medianColumn(m metric.Metric, head string) column {
	return column{Name: head, of: func(c figures.Cell) string {
		return c.Figure(m).Bounded(m.Unit.Plain(c.Figure(m).Centre))
	}}
}

// mergedColumn has a value computed from the samples of all runs.
func mergedColumn(m metric.Metric, head string, value func(*samples.Distribution) float64) column {
	return column{Name: head, of: func(c figures.Cell) string {
		f := c.Figure(m)
		return f.Bounded(m.Unit.Plain(value(f.Merged)))
	}}
}

func quantileColumn(m metric.Metric, p float64) column {
	return mergedColumn(m, format.Quantile(p), func(d *samples.Distribution) float64 { return d.Quantile(p) })
}

// sampleNote says how many samples the percentiles and the maximum are of, and which samples were too small.
func sampleNote(s *figures.Summary, m metric.Metric) string {
	cells := s.Sampled(m)
	if len(cells) == 0 {
		return ""
	}
	var sizes []uint64
	var windows []float64
	lost := uint64(0)
	for _, c := range cells {
		d := c.Figure(m).Merged
		lost += d.Lost
		sizes, windows = append(sizes, d.N()), append(windows, d.Window.Seconds())
	}
	least, shortest := slices.Min(sizes), slices.Min(windows)
	window := format.Tick(slices.Max(windows))
	if shortest < slices.Max(windows) {
		window = format.Tick(shortest) + " to " + window
	}
	note := fmt.Sprintf("Percentiles and max are of all used runs merged: %s (%s) to %s samples in %s s a cell.",
		format.Count(least), cells[slices.Index(sizes, least)].Name, format.Count(slices.Max(sizes)), window)
	if least < stats.SamplesFor(0.999) {
		note += fmt.Sprintf(" %s: too few samples; P99 needs %s, P99.9 %s.", format.None,
			format.Count(stats.SamplesFor(0.99)), format.Count(stats.SamplesFor(0.999)))
	}
	if lost > 0 {
		return note + fmt.Sprintf(" %s were lost, and are longer than all of them; max and mean are of the rest.",
			format.Count(lost))
	}
	// 1 − (1 − 3/n)^n is 95%: the rule of three (Hanley and Lippman-Hand, JAMA 249, 1983).
	return note + fmt.Sprintf(" The chance that a further sample is beyond the max of %s is less than 3 in "+
		"%[1]s (at 95%%, if samples are independent).", format.Count(least))
}

// once leaves out repetitions.
func once(all []string) (left []string) {
	for _, text := range all {
		if !slices.Contains(left, text) {
			left = append(left, text)
		}
	}
	return left
}

// workTable shows the price of isolation.
func workTable(s *figures.Summary) table {
	var names, bases []string
	var cells []figures.Cell
	for _, c := range s.Cells {
		names = slices.AppendSeq(names, maps.Keys(c.Work))
		if len(c.Work) > 0 {
			cells = append(cells, c)
		}
		if c.WorkBase != "" {
			bases = append(bases, c.WorkBase)
		}
	}
	var columns []column
	slices.Sort(names)
	for _, name := range slices.Compact(names) { // capitals first: CPUs
		columns = append(columns, column{Name: name, of: func(c figures.Cell) string {
			w := c.Work[name]
			switch {
			case w == nil:
				return format.None
			case w.Ratio.Known():
				return fmt.Sprintf("%s (%s)", format.Digits(w.Centre), format.Percent(w.Ratio.Estimate))
			}
			return format.Digits(w.Centre)
		}})
	}
	t := newTable("Price of isolation: what the neighbours got, CPUs' worth of time and bogo operations per "+
		"second", cells, nil, columns...)
	if len(bases) > 0 {
		t.Notes = []string{fmt.Sprintf("In brackets: of what they got in %s, block by block.",
			strings.Join(once(bases), ", "))}
	}
	return t
}

// roleTable shows the metrics of a role that are not compared: what figures cost, or what checks them. If
// there are many it has a row for each.
func roleTable(s *figures.Summary, role results.Role, title string) table {
	var columns []column
	var about []string // figures that are only shown need an explanation more than compared or checked ones
	for _, m := range s.Metrics {
		if m.Role != role || !s.Has(m) {
			continue
		}
		if role == results.Cost && m.About != "" {
			about = append(about, capital(m.About)+".")
		}
		shown := medianColumn(m, m.Name+", "+m.Unit.Name)
		if m.Sampled {
			shown = quantileColumn(m, 0.99)
			shown.Name = m.Name + ", " + m.Unit.Name + ", P99"
		}
		columns = append(columns, shown)
	}
	if len(columns) == 0 {
		return table{}
	}
	t := newTable(title+": medians of the runs", withRuns(s).Cells, figures.Cell.Unused, columns...)
	t.Notes = once(about)
	if len(t.Columns) <= len(t.Rows)+1 {
		return t
	}
	turned := table{Title: t.Title, Columns: heads(1, ""), Notes: t.Notes, Rows: make([][]string, len(columns))}
	for k, c := range t.Columns[1:] {
		turned.Rows[k] = []string{c.Name}
	}
	for _, row := range t.Rows {
		turned.Columns = append(turned.Columns, column{Name: row[0]})
		for k := range turned.Rows {
			value := format.None
			if !t.Short(row) {
				value = row[k+1]
			}
			turned.Rows[k] = append(turned.Rows[k], value)
		}
	}
	return turned
}

// distributionTable has all that a merged histogram supports.
func distributionTable(s *figures.Summary, m metric.Metric) table {
	of := func(name string, value func(*samples.Distribution) string) column {
		return column{Name: name, of: func(c figures.Cell) string { return value(c.Figure(m).Merged) }}
	}
	columns := []column{mergedColumn(m, "min", (*samples.Distribution).Min)}
	for _, p := range samples.Quantiles() {
		columns = append(columns, quantileColumn(m, p))
	}
	columns = append(columns, mergedColumn(m, "max", (*samples.Distribution).Max),
		mergedColumn(m, "mean", (*samples.Distribution).Mean),
		column{Name: "P99.9 of single runs", of: func(c figures.Cell) string {
			return tailRange(m, c.Figure(m))
		}},
		of("samples", func(d *samples.Distribution) string { return format.Count(d.N()) }),
		of("seconds", func(d *samples.Distribution) string { return format.Tick(d.Window.Seconds()) }),
		of("lost", func(d *samples.Distribution) string {
			return fmt.Sprintf("%s of %s", format.Count(d.Lost), format.Count(d.Sent))
		}),
		of("send lag P99.9", func(d *samples.Distribution) string {
			if !d.Open {
				return ""
			}
			return m.Unit.Plain((&samples.Distribution{Histogram: d.Lag}).Quantile(0.999))
		}))
	for i := range columns {
		columns[i].optional = true
	}
	return newTable(m.Name+", "+m.Unit.Name+", all used runs of a cell merged", s.Cells, lacking(m), columns...)
}

// tailRange returns the range of P99.9 over the runs whose sample supports it.
func tailRange(m metric.Metric, f figures.Figure) string {
	known := f.Values("p99.9")
	if len(known) == 0 {
		return format.None
	}
	return fmt.Sprintf("%s to %s", m.Unit.Plain(slices.Min(known)), m.Unit.Plain(slices.Max(known)))
}

// blockTable has the value of each run.
func blockTable(s *figures.Summary, m metric.Metric) table {
	var columns []column
	for b := range s.Session.Scenario.Blocks {
		columns = append(columns, column{Name: fmt.Sprint(b + 1), of: func(c figures.Cell) string {
			v, ok := c.Figure(m).At(b + 1)
			if !ok {
				return format.None
			}
			return c.Figure(m).Of(v).Bounded(m.Unit.Plain(v.Value))
		}})
	}
	unit := strings.TrimPrefix(m.Statistic+" in "+m.Unit.Name, " in ")
	return newTable(fmt.Sprintf("%s, %s, block by block", m.Name, unit), s.Cells, nil, columns...)
}

// lacking says why a cell has no figure of a metric.
func lacking(m metric.Metric) func(figures.Cell) string {
	return func(c figures.Cell) string { return c.Missing(m) }
}
