package compare

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/stats"
	"isolane.dev/isolane/terminal"
)

// Write prints the comparison as a terminal can show it.
func (d Document) Write(w io.Writer) {
	on := terminal.Of(w)
	var b strings.Builder
	for _, s := range []struct {
		name string
		of   Session
	}{{"A", d.A}, {"B", d.B}} {
		const form = "2006-01-02 15:04:05"
		text := fmt.Sprintf("%s: %s, %s, %s used, %s to %s UTC", s.of.Results, s.of.Scenario, s.of.Mode,
			quantity.Count(s.of.Used, "run"), s.of.Started.UTC().Format(form), s.of.Ended.UTC().Format(form))
		b.WriteString(on.Fold(s.name+": ", terminal.Clean(text)))
	}
	for _, n := range d.Notes {
		b.WriteString(on.Fold("note: ", n))
	}
	if hint := d.hint(); hint != "" {
		b.WriteString(on.Fold("drift? ", hint))
	}
	for _, m := range d.metrics {
		d.table(&b, on, m)
	}
	if len(d.Differences) > 0 {
		b.WriteString("\n" + on.Fold("", on.Bold("What differs in the conditions")))
	}
	for _, v := range d.Differences {
		b.WriteString(on.Fold("- ", terminal.Clean(fmt.Sprintf("%s: A %s; B %s", v.What, v.A, v.B))))
	}
	if len(d.Without) > 0 {
		b.WriteString("\n" + on.Fold("", on.Bold("Not compared")))
	}
	for _, o := range d.Without {
		b.WriteString(on.Fold("- ", terminal.Clean(fmt.Sprintf("%s, of %s: %s", o.What, o.In, o.Why))))
	}
	_, _ = io.WriteString(w, b.String()) // a failed write ends the command, see terminal.Checked
}

// hint says how far the baselines of both sessions are apart.
func (d Document) hint() string {
	var all []string
	cell := ""
	for _, c := range d.Comparisons {
		if c.Baseline && c.metric.IsPrimary() {
			cell = c.Cell
			all = append(all, fmt.Sprintf("%s %s %s", c.metric.Value(), format.Percent(c.Ratio.Estimate),
				c.found.SpreadText()))
		}
	}
	if len(all) == 0 {
		return "no cell with figures is the baseline of both: nothing hints at how far the machine drifted."
	}
	return fmt.Sprintf("%s, the baseline of both, has in B of what it had in A: %s. Unless it was changed on "+
		"purpose, that is drift.", terminal.Clean(cell), strings.Join(all, "; "))
}

// table prints a metric of all cells.
func (d Document) table(b *strings.Builder, on terminal.Terminal, m metric.Metric) {
	t := terminal.Table{Head: []string{"cell", "A", "B", "B in % of A", "", "verdict"},
		Figures: []int{1, 2, 3, 4}}
	if !slices.ContainsFunc(d.Comparisons, func(c Comparison) bool { return c.Verdict != "" }) {
		t.Head = t.Head[:5]
	}
	intervals, ranges, open := false, false, false
	var bounds []string
	for _, c := range d.Comparisons {
		if c.Metric != m.Name {
			continue
		}
		intervals, ranges = intervals || c.Ratio.Confidence > 0, ranges || c.Ratio.Confidence == 0
		open = open || c.Needed > 0
		for _, f := range []figures.Figure{c.a, c.b} {
			if note := f.BoundNote(); note != "" && !slices.Contains(bounds, note) {
				bounds = append(bounds, note)
			}
		}
		row := []string{terminal.Clean(c.Cell), c.a.Bounded(m.Unit.Full(c.A.Median)),
			c.b.Bounded(m.Unit.Full(c.B.Median)), figures.Bound(format.Percent(c.Ratio.Estimate), c.b, c.a),
			c.found.SpreadText(), c.verdict(on)}
		t.Rows = append(t.Rows, row[:len(t.Head)])
	}
	if len(t.Rows) == 0 {
		return
	}
	t.Head[4] = map[bool]string{true: "95% interval", false: "range"}[intervals]
	title := fmt.Sprintf("%s (%s), medians of the runs; %s is better", m.Value(), m.Detail, m.Better)
	b.WriteString("\n" + on.Fold("", on.Bold(terminal.Clean(title))) + on.Table(t))
	if ranges {
		b.WriteString(on.Fold("  ", "a to b: the range of all pairs of runs, where an interval needs more."))
	}
	for _, note := range bounds {
		b.WriteString(on.Fold("  ", note))
	}
	if open {
		b.WriteString(on.Fold("  ", "open: inconclusive; about so many runs, or boots, in each session would give "+
			"a verdict, if spread like these."))
	}
}

// verdict returns the verdict, and for an open one what it needs.
func (c Comparison) verdict(on terminal.Terminal) string {
	switch {
	case c.Verdict == stats.Better:
		return on.Green(string(c.Verdict))
	case c.Verdict == stats.Worse:
		return on.Red(string(c.Verdict))
	case len(c.Lowered) > 0:
		return fmt.Sprintf("%s (%s)", c.Verdict, strings.Join(c.Lowered, ", "))
	case c.Needed >= stats.MostNeeded:
		return fmt.Sprintf("open: %d %s or more", c.Needed, c.Over)
	case c.Needed > 0:
		return fmt.Sprintf("open: %d %s", c.Needed, c.Over)
	}
	return string(c.Verdict)
}
