package report

import (
	"fmt"
	"math"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/stats"
)

// matrix has the primary figures of all cells, with a tint that says how far they are from the baseline, and
// on which side.
type matrix struct {
	Head []string
	Rows []matrixRow
}

type matrixRow struct {
	Name  string
	Note  string // runs
	Cells []tinted
}

// tinted is a figure, large, with its percentage below. Class is the tint.
type tinted struct{ Main, Sub, Class string }

func (s *Summary) matrix() matrix {
	var t matrix
	for _, m := range s.primary() {
		t.Head = append(t.Head, m.value())
		if m.statistic != "" {
			t.Head = append(t.Head, m.noun+" P99", m.noun+" P99.9", m.noun+" max")
		}
	}
	for _, c := range s.withRuns().Cells {
		row := matrixRow{Name: c.Label(), Note: quantity.Count(c.Used, "run") + " used"}
		if c.Baseline {
			row.Note = "baseline, " + row.Note
		}
		if c.Void > 0 {
			row.Note += fmt.Sprintf(", %d void", c.Void)
		}
		for _, m := range s.primary() {
			row.Cells = append(row.Cells, s.tinted(c, m)...)
		}
		for i := range row.Cells {
			if c.Baseline {
				row.Cells[i].Class = ""
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// tinted are the figures of a cell: what is compared, and of a distribution its tail.
func (s *Summary) tinted(c Cell, m Metric) []tinted {
	f := c.Figure(m)
	shown, ratio := none, math.NaN()
	if len(f.Blocks) > 0 {
		shown = m.shown(f)
	}
	if f.Ratio.Known() {
		ratio = f.Ratio.Estimate
	}
	all := []tinted{tint(m, shown, ratio, around(f))}
	if m.statistic == "" {
		return all
	}
	for _, p := range []float64{0.99, 0.999} {
		own, ratio := f.Merged.Quantile(p), math.NaN()
		if base := s.cell(s.Baseline); base != nil {
			ratio = own / base.Figure(m).Merged.Quantile(p)
		}
		all = append(all, tint(m, m.unit.full(own), ratio, ""))
	}
	longest := tinted{Main: none} // not compared: a maximum is of a sample and a time
	if d := f.Merged; d.N() > 0 {
		longest.Main = m.unit.full(d.Max())
		longest.Sub = fmt.Sprintf("of %s in %s", count(d.N()), seconds(d.Window))
	}
	return append(all, longest)
}

// around is what follows an estimate: its spread and the verdict.
func around(f Figure) string {
	text := f.Ratio.spreadText()
	if _, _, interval := f.Ratio.Spread(); !interval && text != none {
		text = "(" + text + ")"
	}
	if f.Verdict != "" {
		text += " " + string(f.Verdict)
	}
	return text
}

// tint prints a figure and, where there is one, its ratio to the baseline.
func tint(m Metric, shown string, ratio float64, more string) tinted {
	t := tinted{Main: shown}
	if math.IsNaN(ratio) {
		return t
	}
	t.Sub = percent(ratio)
	if ratio != 1 && more != "" && more != none {
		t.Sub += " " + more
	}
	better := math.Log2(ratio)
	if m.margin.Goal == stats.LowerIsBetter {
		better = -better
	}
	side := "g"
	if better < 0 {
		side = "b"
	}
	switch a := math.Abs(better); { // 2.0: four times
	case a >= 2:
		t.Class = side + "3"
	case a >= 0.585: // half as much again
		t.Class = side + "2"
	case a >= 0.138: // 10%
		t.Class = side + "1"
	}
	return t
}
