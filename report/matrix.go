package report

import (
	"fmt"
	"math"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
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

// tinted is a large figure, with its percentage below. Class is the tint.
type tinted struct{ Main, Sub, Class string }

func newMatrix(s *figures.Summary) matrix {
	var t matrix
	for _, m := range s.Primary() {
		m = s.Distinct(m)
		t.Head = append(t.Head, m.Value())
		if m.Statistic != "" {
			t.Head = append(t.Head, m.Noun+" P99", m.Noun+" P99.9", m.Noun+" max")
		}
	}
	for _, c := range withRuns(s).Cells {
		row := matrixRow{Name: c.Label(), Note: quantity.Count(c.Used, "run") + " used"}
		if c.Baseline {
			row.Note = "baseline, " + row.Note
		}
		if c.Void > 0 {
			row.Note += fmt.Sprintf(", %d void", c.Void)
		}
		for _, m := range s.Primary() {
			row.Cells = append(row.Cells, tintedFigures(s, c, m)...)
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

// tintedFigures returns the figures of a cell: what is compared, and for a distribution its tail.
func tintedFigures(s *figures.Summary, c figures.Cell, m metric.Metric) []tinted {
	f := c.Figure(m)
	shown, ratio := c.Missing(m), math.NaN()
	if shown == "" {
		shown = f.Shown(m)
	}
	if f.Ratio.Known() {
		ratio = f.Ratio.Estimate
	}
	all := []tinted{tint(m, shown, s.Estimate(c, m), ratio, around(f))}
	if m.Statistic == "" {
		return all
	}
	for _, p := range []float64{0.99, 0.999} {
		own, ratio := f.Merged.Quantile(p), math.NaN()
		if base := s.Cell(s.Baseline); base != nil {
			if of := base.Figure(m).Merged.Quantile(p); !math.IsInf(of, 1) {
				ratio = own / of
			}
		}
		percent := format.Percent(ratio)
		if base := s.Cell(s.Baseline); base != nil {
			percent = figures.Bound(percent, f, base.Figure(m))
		}
		all = append(all, tint(m, f.Bounded(m.Unit.Full(own)), percent, ratio, ""))
	}
	longest := tinted{Main: format.None} // not compared: a maximum depends on the sample's size and time
	if d := f.Merged; d.N() > 0 {
		longest.Main = f.Bounded(m.Unit.Full(d.Max()))
		longest.Sub = fmt.Sprintf("of %s in %s", format.Count(d.N()),
			strings.ReplaceAll(format.Seconds(d.Window), " ", "\u00a0"))
	}
	return append(all, longest)
}

// around returns what follows an estimate: its spread and the verdict.
func around(f figures.Figure) string {
	text := f.Ratio.SpreadText()
	if _, _, interval := f.Ratio.Spread(); text == format.None {
		text = ""
	} else if !interval {
		text = "(" + text + ")"
	}
	text = strings.ReplaceAll(text, ", ", ",\u00a0") // an interval stays on its line
	return strings.TrimSpace(text + " " + verdict(f))
}

// tint prints a figure and, if there is one, its ratio to the baseline.
func tint(m metric.Metric, shown, percent string, ratio float64, more string) tinted {
	t := tinted{Main: shown}
	if math.IsNaN(ratio) {
		return t
	}
	t.Sub = percent
	if ratio != 1 && more != "" {
		t.Sub += " " + more
	}
	better := math.Log2(ratio)
	if m.Margin.Goal == stats.LowerIsBetter {
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
