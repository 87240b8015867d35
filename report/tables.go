package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/stats"
)

// table is what the terminal and the page print. A row with fewer columns than the head has a remark
// instead of figures.
type table struct {
	Title string
	Head  []string
	Rows  [][]string
	Notes []string
}

// Words says whether a column holds words, which stand left and may be wrapped, or figures.
func (t table) Words(column int) bool {
	words := []string{"verdict", "P50 verdict", "witness", "task", "kind", "remedy", "cpusets in force",
		"from", "of which", "source"}
	return column == 0 || slices.Contains(words, t.Head[column])
}

// Long says whether a column's words need a line of their own where the page is narrow.
func (t table) Long(column int) bool {
	return slices.Contains([]string{"remedy", "cpusets in force", "of which"}, t.Head[column])
}

// Short says whether a row has a remark instead of figures.
func (t table) Short(row []string) bool { return len(row) < len(t.Head) }

// drop removes columns in which no row says anything: those of these names, or any.
func (t table) drop(names ...string) table {
	for k := len(t.Head) - 1; k > 0; k-- {
		if len(names) > 0 && !slices.Contains(names, t.Head[k]) || slices.ContainsFunc(t.Rows, func(row []string) bool {
			return !t.Short(row) && row[k] != "" && row[k] != none
		}) {
			continue
		}
		for i, row := range t.Rows {
			if !t.Short(row) {
				t.Rows[i] = slices.Delete(row, k, k+1)
			}
		}
		t.Head = slices.Delete(t.Head, k, k+1)
	}
	return t
}

// many cells without figures are named once for all tables, or in a note, and not in a row each.
const many = 3

// noRun is why a cell has no figure where the session has not come to it.
const noRun = "no run used"

// unused are the cells without a run, where they are many.
func (s *Summary) unused() []string {
	var names []string
	for _, c := range s.Cells {
		if c.missing("") == noRun {
			names = append(names, c.Label())
		}
	}
	if len(names) < many {
		return nil
	}
	return names
}

// gather takes out the rows without figures, where they are many.
func (t table) gather() table {
	cells := map[string][]string{}
	for _, row := range t.Rows {
		if t.Short(row) {
			cells[row[1]] = append(cells[row[1]], row[0])
		}
	}
	for _, why := range slices.Sorted(maps.Keys(cells)) {
		if len(cells[why]) < many {
			continue
		}
		t.Rows = slices.DeleteFunc(t.Rows, func(row []string) bool { return t.Short(row) && row[1] == why })
		if why != noRun {
			t.Notes = append([]string{why + ": " + strings.Join(cells[why], ", ") + "."}, t.Notes...)
		}
	}
	return t
}

// spreadHead heads a column of whiskers; the note says what they are where the blocks are few.
func (s *Summary) spreadHead() (head, note string) {
	ranges, most := false, 0
	for _, c := range s.Cells {
		for _, f := range c.Figures {
			if !f.Ratio.Known() || c.Baseline {
				continue
			}
			most = max(most, f.Ratio.N)
			if _, _, interval := f.Ratio.Spread(); interval {
				head = "95% interval"
			} else {
				ranges = true
			}
		}
	}
	switch {
	case head != "" && ranges:
		return head, "[a, b] is a 95% interval; a to b is the range of the blocks, where they are too few for one."
	case head != "":
		return head, ""
	}
	if most == 0 {
		return "range", ""
	}
	return fmt.Sprintf("range of %d", most),
		fmt.Sprintf("%s: range of the blocks' ratios, no interval (that needs 6 blocks).", quantity.Count(most, "block"))
}

// missing says why a cell has no figure.
func (c Cell) missing(name string) string {
	switch {
	case c.Used == 0 && c.Void > 0:
		return "all runs void"
	case c.Used == 0:
		return noRun
	case name == Throughput:
		return "no run with all directions"
	}
	return "no valid measurement"
}

// ratio prints the estimate and its spread; the baseline is 100% by definition.
func (c Cell) ratio(f Comparison) (estimate, around string) {
	switch {
	case c.Baseline:
		return "100%", none
	case !f.Known():
		return none, none
	}
	return percent(f.Estimate), spread(f)
}

func (s *Summary) directions() string {
	if len(s.Directions) == 1 {
		return s.Directions[0]
	}
	var names []string
	for _, d := range s.Directions {
		names = append(names, short(d))
	}
	return "geometric mean of " + strings.Join(names, " and ")
}

func (s *Summary) throughputTable() table {
	head, note := s.spreadHead()
	t := table{Title: fmt.Sprintf("Throughput (%s) in %% of %s, block by block", s.directions(), s.Baseline),
		Head: []string{"cell", "%", head, "Gbit/s"}}
	for _, d := range s.Directions {
		t.Head = append(t.Head, short(d))
	}
	t.Head = append(t.Head, "paper", "verdict")
	for _, c := range s.Cells {
		f, ok := c.Figures[Throughput]
		if !ok {
			t.Rows = append(t.Rows, []string{c.Label(), c.missing(Throughput)})
			continue
		}
		estimate, around := c.ratio(f.Ratio)
		row := []string{c.Label(), estimate, around, gigabits(f.Centre)}
		for _, d := range s.Directions {
			row = append(row, gigabits(median(c.Figures[d].Blocks)))
		}
		t.Rows = append(t.Rows, append(row, c.published("throughput"), string(f.Verdict)))
	}
	t.Notes = append(t.Notes, note)
	return t.drop("paper", "verdict").gather()
}

func (s *Summary) rttTable(name string) table {
	head, note := s.spreadHead()
	t := table{
		Title: fmt.Sprintf("Round trip (%s), P50 in %% of %s, block by block; the rest in µs", name, s.Baseline),
		Head:  []string{"cell", "%", head, "P50", "P99", "P99.9", "max", "mean %", "paper", "P50 verdict"}}
	for _, c := range s.Cells {
		f, ok := c.Figures[name]
		if !ok || len(f.Blocks) == 0 {
			t.Rows = append(t.Rows, []string{c.Label(), c.missing(name)})
			continue
		}
		estimate, around := c.ratio(f.Ratio)
		mean, _ := c.ratio(f.Means)
		t.Rows = append(t.Rows, []string{c.Label(), estimate, around, micro(f.RTT.Quantile(0.5)),
			micro(f.RTT.Quantile(0.99)), micro(f.RTT.Quantile(0.999)), micro(f.RTT.Max()), mean, c.published("rtt"),
			string(f.Verdict)})
	}
	t.Notes = append(t.Notes, note, s.sampleNote(name))
	if s.averages() {
		t.Notes = append(t.Notes, "The paper gives averages: compare them with \"mean %\", not with P50.")
	}
	return t.drop("paper", "P50 verdict").gather()
}

// sampleNote says of how many samples the percentiles and the maximum are, and what was too few.
func (s *Summary) sampleNote(name string) string {
	least, most, where := uint64(math.MaxUint64), uint64(0), ""
	shortest, longest, lacking := math.Inf(1), 0.0, false
	for _, c := range s.Cells {
		d := c.Figures[name].RTT
		if d.N() == 0 {
			continue
		}
		if d.N() < least {
			least, where = d.N(), c.Name
		}
		most = max(most, d.N())
		shortest, longest = min(shortest, d.Window.Seconds()), max(longest, d.Window.Seconds())
		lacking = lacking || math.IsNaN(d.Quantile(0.999))
	}
	if most == 0 {
		return ""
	}
	window := tickText(longest)
	if shortest < longest {
		window = tickText(shortest) + " to " + window
	}
	note := fmt.Sprintf("Percentiles and max are of all used runs merged: %s (%s) to %s samples in %s s a cell.",
		count(least), where, count(most), window)
	if lacking {
		note += fmt.Sprintf(" %s: too few samples; P99 needs %s, P99.9 %s.", none, count(stats.SamplesFor(0.99)),
			count(stats.SamplesFor(0.999)))
	}
	return note
}

// costTable shows what noise costs each placement on each path.
func (s *Summary) costTable() table {
	head, _ := s.spreadHead()
	t := table{Title: "What noise costs: each noisy cell in % of its own quiet cell, block by block",
		Head: []string{"placement-path", "throughput", head, "RTT P50", head, "P99.9 µs quiet", "noisy"}}
	for _, c := range s.Costs {
		if !c.Throughput.Known() && !c.RTT.Known() && math.IsNaN(c.Quiet) && math.IsNaN(c.Noisy) {
			continue
		}
		t.Rows = append(t.Rows, []string{c.Name, percent(c.Throughput.Estimate), spread(c.Throughput),
			percent(c.RTT.Estimate), spread(c.RTT), micro(c.Quiet), micro(c.Noisy)})
	}
	return t
}

// workTable shows the price of isolation.
func (s *Summary) workTable() table {
	t := table{Head: []string{"cell"},
		Title: "Price of isolation: what the neighbours got, CPUs' worth of time and bogo operations per second"}
	var bases []string
	for _, c := range s.Cells {
		for _, w := range c.Work {
			if !slices.Contains(t.Head, w.Name) {
				t.Head = append(t.Head, w.Name)
			}
		}
		if c.WorkBase != "" && !slices.Contains(bases, c.WorkBase) {
			bases = append(bases, c.WorkBase)
		}
	}
	if len(bases) > 0 {
		t.Notes = []string{fmt.Sprintf("In brackets: of what they got floating (%s), block by block.",
			strings.Join(bases, ", "))}
	}
	for _, c := range s.Cells {
		if len(c.Work) == 0 {
			continue
		}
		row := []string{c.Label()}
		for _, name := range t.Head[1:] {
			text := none
			if k := slices.IndexFunc(c.Work, func(w Figure) bool { return w.Name == name }); k >= 0 {
				text = digits(c.Work[k].Centre)
				if c.Work[k].Ratio.Known() {
					text += " (" + percent(c.Work[k].Ratio.Estimate) + ")"
				}
			}
			row = append(row, text)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// distributionTable has all that a merged histogram supports.
func (s *Summary) distributionTable(name string) table {
	quantiles := []float64{0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999}
	t := table{Title: name + ", µs, all used runs of a cell merged", Head: []string{"cell", "min"}}
	for _, p := range quantiles {
		t.Head = append(t.Head, pname(p))
	}
	t.Head = append(t.Head, "max", "mean", "P99.9 of single runs", "samples", "seconds", "lost",
		"send lag P99.9")
	for _, c := range s.Cells {
		f := c.Figures[name]
		d := f.RTT
		if d.N() == 0 {
			t.Rows = append(t.Rows, []string{c.Label(), c.missing(name)})
			continue
		}
		row := []string{c.Label(), micro(float64(d.Histogram.Min()))}
		for _, p := range quantiles {
			row = append(row, micro(d.Quantile(p)))
		}
		lag := ""
		if d.Open {
			lag = micro((&Distribution{Histogram: d.Lag}).Quantile(0.999))
		}
		t.Rows = append(t.Rows, append(row, micro(d.Max()), micro(d.Histogram.Mean()), tailRange(f.Blocks),
			count(d.N()), tickText(d.Window.Seconds()), fmt.Sprintf("%s of %s", count(d.Lost), count(d.Sent)), lag))
	}
	return t.drop().gather()
}

// tailRange is the range of P99.9 over the runs whose sample supports it.
func tailRange(blocks []Block) string {
	var all []float64
	for _, b := range blocks {
		if !math.IsNaN(b.P999) {
			all = append(all, b.P999)
		}
	}
	if len(all) == 0 {
		return none
	}
	return fmt.Sprintf("%s to %s", micro(slices.Min(all)), micro(slices.Max(all)))
}

// blockTable has the value of each run.
func (s *Summary) blockTable(name string) table {
	unit := "Gbit/s"
	show := gigabits
	if slices.Contains(s.RTTs, name) {
		unit, show = "P50 in µs", micro
	}
	t := table{Title: fmt.Sprintf("%s, %s, block by block", name, unit), Head: []string{"cell"}}
	for b := range s.Session.Scenario.Blocks {
		t.Head = append(t.Head, fmt.Sprint(b+1))
	}
	for _, c := range s.Cells {
		row := []string{c.Label()}
		for b := range s.Session.Scenario.Blocks {
			text := none
			for _, v := range c.Figures[name].Blocks {
				if v.Block == b+1 {
					text = show(v.Value)
				}
			}
			row = append(row, text)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
