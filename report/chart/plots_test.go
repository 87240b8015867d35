package chart

import (
	"testing"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/test/session"
)

// The line ends at the value that the tables print.
func TestLinesEndAtThePercentile(t *testing.T) {
	sum, err := figures.Summarize(session.Quick(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range sum.Cells {
		d := c.Figure(sum.PrimaryDistribution()).Merged
		steps := steps(d)
		got, want := steps[len(steps)-1], [2]float64{nines(d.Supported), d.Quantile(d.Supported)}
		if got != want {
			t.Errorf("%s: the line ends at %v, want %v", c.Name, got, want)
		}
	}
}
