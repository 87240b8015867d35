package chart

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"isolane.dev/isolane/report/curves"
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

// Lines that look the same have numbers, at their ends and in the key, none over another.
func TestLinesThatLookTheSameAreNumbered(t *testing.T) {
	sum, err := figures.Summarize(session.Made(t, "standard", 6, session.AllCells()))
	if err != nil {
		t.Fatal(err)
	}
	m := sum.PrimaryDistribution()
	for i := range sum.Cells {
		sum.Cells[i].Look = figures.Look{}
	}
	cells := sum.Sampled(m)
	svg := string(Percentiles(&sum, m, Labels{}))
	at := map[string]bool{}
	for k := range cells {
		number := regexp.MustCompile(fmt.Sprintf(`y="([0-9.]+)">%d</text>`, k+1)).FindStringSubmatch(svg)
		if number == nil || at[number[1]] || !strings.Contains(svg, fmt.Sprintf(">%d: ", k+1)) {
			t.Errorf("line %d: %q", k+1, number)
			continue
		}
		at[number[1]] = true
	}
	sum.Cells = sum.Cells[:2]
	sum.Cells[1].Dashed = true
	if svg = string(Percentiles(&sum, m, Labels{})); strings.Contains(svg, ">1: ") {
		t.Error("numbers, though no two lines look the same")
	}
}

// One block has no range: neither a whisker nor its key.
func TestOneBlockHasNoWhiskers(t *testing.T) {
	for blocks, want := range map[int]bool{1: false, 2: true} {
		sum, err := figures.Summarize(session.Made(t, "quick", blocks, session.SixCells()))
		if err != nil {
			t.Fatal(err)
		}
		svg := string(Bars(&sum, sum.Metrics[0], Labels{}))
		if strings.Contains(svg, ">range") != want || strings.Contains(svg, `class="whisker"`) != want || !strings.Contains(svg, ">one block<") {
			t.Errorf("%d blocks: %s", blocks, svg)
		}
	}
}

// Bounds are marked in plots, too.
func TestBounds(t *testing.T) {
	sum, err := figures.Summarize(session.Quick(t))
	if err != nil {
		t.Fatal(err)
	}
	m := sum.PrimaryDistribution()
	f := sum.Cells[0].Figures[m.Name]
	for _, late := range []bool{false, true} {
		if f.AtMost = late; late {
			f.Limit = "late client"
		}
		lines, ranges := string(Percentiles(&sum, m, Labels{})), string(Ranges(&sum, m, Labels{}))
		if strings.Count(lines, "at most so long") != map[bool]int{true: 1}[late] || strings.Contains(ranges, ">≤ ") != late {
			t.Errorf("late: %t: %s", late, ranges)
		}
	}
	if sum, err = figures.Summarize(session.Sweep(t, "standard", 6)); err != nil {
		t.Fatal(err)
	}
	f = sum.Cells[0].Figures[sum.Metrics[0].Name]
	f.Limit, f.AtMost = "late client", true
	if svg := string(Curves(curves.Of(&sum)[0], sum.Metrics[0], Labels{})); strings.Count(svg, "(≤ in part)") != 1 {
		t.Error(svg)
	}
}

// An axis has two labels at least, however narrow its range.
func TestLogTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   string
	}{{20, 40, "20 30 40"}, {30, 400, "50 100 200"}, {20, 700, "20 50 100 200 500"}, {1, 1000, "1 10 100 1000"}} {
		var got []string
		for _, tick := range logTicks(c.lo, c.hi, func(v float64) string { return fmt.Sprint(v) }) {
			if tick.label != "" {
				got = append(got, tick.label)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%g to %g: %q, want %s", c.lo, c.hi, got, c.want)
		}
	}
}

// In DejaVu Sans, the widest of the fonts that the page asks for, a capital takes up to 7.6 units.
func TestKeysInCapitalsHaveRoom(t *testing.T) {
	for _, text := range []string{"$HOME", "SR-IOV", "KUBERNETES"} {
		c := chart{keyX: margin}
		c.key(text, 10, func(_, _, _ float64) {})
		if need := 14 + 7.6*float64(len(text)); c.keyX-margin < need {
			t.Errorf("%s: %g units, and it needs %g", text, c.keyX-margin, need)
		}
	}
}
