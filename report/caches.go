package report

import (
	"fmt"
	"slices"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/evidence"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/stats"
)

// distanceTable has the figures of runs whose CPUs were near each other and far, by how long a cache line
// took, if there are both.
func distanceTable(s *figures.Summary) table {
	var took []float64
	t := table{Title: "Runs whose CPUs were near each other, and far", Columns: heads(1, "cell")}
	for _, m := range s.Primary() {
		value := s.Distinct(m).Value()
		t.Columns = append(t.Columns, heads(0, value+", near", value+", far")...)
		for _, c := range s.Cells {
			for _, w := range c.Ways(m) {
				took = append(took, w.Took)
			}
		}
	}
	base := s.Cell(s.Baseline)
	if base == nil || len(took) == 0 || !evidence.FarApart(slices.Min(took), slices.Max(took)) {
		return table{}
	}
	longest := slices.Max(took)
	for _, c := range withRuns(s).Cells {
		row := []string{c.Label()}
		for _, m := range s.Primary() {
			for _, far := range []bool{false, true} {
				is := func(w evidence.Way) bool { return far == (w.Took > longest/2) }
				own, of, text := c.ValuesWhere(m, is), base.ValuesWhere(m, is), format.None
				if len(own) > 0 {
					text = m.Unit.Full(stats.Median(own)) + ", " + quantity.Count(len(own), "run")
				}
				if len(own) > 0 && len(of) > 0 && !c.Baseline {
					text += ", " + format.Percent(stats.Median(own)/stats.Median(of))
				}
				row = append(row, text)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	t.Notes = []string{fmt.Sprintf("A cache line took %.0f to %.0f ns between client and application. Far is "+
		"more than half of the longest. Medians of the runs, and in %% of the baseline's at the same distance, "+
		"whatever the block: no verdict.", slices.Min(took), longest)}
	return t
}
