package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/report/samples"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// leftOut is the guard on missing figures: what is left does not represent the cell.
const leftOut = "left out"

// maxVoid is the share of a cell's runs beyond which void ones leave out too much. What was void may be what
// was bad, such as runs of a lane whose CPUs somebody else took.
const maxVoid = 0.1

// lack counts why used runs of a cell have no figure of a metric.
type lack struct {
	over, void int    // runs that were overloaded, and void for another reason
	why        string // the first of the other reasons
}

func (l *lack) add(why string) { l.void, l.why = l.void+1, cmp.Or(l.why, why) }

// addVoid counts a void run, which has no figure of any metric. Steal is not the cell's doing.
func (c *Cell) addVoid(r results.Run) {
	c.Void++
	if r.Dropped == "" && !r.Stolen() {
		c.spoilt.add(r.Void[0])
	}
}

// addLack counts a measurement that is void.
func (c *Cell) addLack(m results.Measurement) {
	names := map[string]bool{m.Name: true}
	for name := range m.Values {
		names[name] = true
	}
	for name := range m.Samples {
		names[name] = true
	}
	for name := range names {
		l := c.lacks[name]
		if slices.Equal(m.Void, m.Overloaded) {
			l.over++
		} else {
			l.add(m.Void[0])
		}
		c.lacks[name] = l
	}
}

// overloaded returns in how many runs some of what was asked was not carried, lost or skipped.
func (c Cell) overloaded(name string) int {
	return max(c.loads[name].Overloaded, c.lacks[name].over)
}

// voided says how many of the runs have no figure of a metric although nothing was stolen from them, if these
// are too many; else "".
func (c Cell) voided(name string) string {
	l := c.lacks[name]
	n, made := c.spoilt.void+l.void, c.Used+c.spoilt.void
	if float64(n) <= maxVoid*float64(made) {
		return ""
	}
	return fmt.Sprintf("%d of %s void (%s)", n, quantity.Count(made, "run"), cmp.Or(c.spoilt.why, l.why))
}

// survivors: if some of what was asked of a cell was not carried, lost or skipped, or runs of it are void,
// the rest does not tell everything about it. It flatters the cell, so only verdicts against the cell stay.
func (s *Summary) survivors() Guard {
	var parts []string
	for _, kind := range []struct {
		head string
		of   func(*Cell, string) string
	}{
		{"not carried, lost or skipped: ", func(c *Cell, name string) string {
			if n := c.overloaded(name); n > 0 {
				return fmt.Sprintf("more than %g%% in %s", 100*samples.LeastLost, quantity.Count(n, "run"))
			}
			return ""
		}},
		{"", (*Cell).voided},
	} {
		var found []string
		for c := range s.cells() {
			names := map[string][]string{} // all metrics of one probe lack the same
			var said []string
			for _, m := range s.Metrics {
				text := kind.of(c, m.Name)
				if f := c.Figure(m); text == "" || len(f.Blocks) == 0 || !m.IsFigure() || len(m.MeanOf) > 0 {
					continue
				}
				if names[text] == nil {
					said = append(said, text)
				}
				names[text] = append(names[text], m.Name)
				s.flattered(m.Name, c)
			}
			for _, text := range said {
				of := strings.Join(names[text], ", ")
				if len(said) == 1 && c.spoilt.void > 0 && len(c.lacks) == 0 {
					of = "all"
				}
				found = append(found, fmt.Sprintf("%s in %s, %s", of, c.Name, text))
			}
		}
		if len(found) > 0 {
			parts = append(parts, kind.head+strings.Join(found, "; "))
		}
	}
	if zeros := s.zeros(); len(zeros) > 0 {
		parts = append(parts, "no ratio, for 0 or lost on both sides: "+strings.Join(zeros, "; "))
	}
	if len(parts) == 0 {
		return Guard{}
	}
	return Guard{leftOut, Failed, strings.Join(parts, "; ")}
}

// flattered lowers verdicts for a cell by a metric of which runs are left out.
func (s *Summary) flattered(name string, c *Cell) {
	against := map[bool]stats.Verdict{false: stats.Worse, true: stats.Better}[c.Baseline]
	s.touched(leftOut, name, c, func(_ metric.Metric, f *Figure) {
		if f.Verdict != against {
			f.lower(leftOut)
		}
	})
}

// zeros says where a ratio lacks blocks because one of the two figures was 0: what is left does not represent
// the cell.
func (s *Summary) zeros() (found []string) {
	base := s.Cell(s.Baseline)
	for c := range s.cells() {
		for _, m := range s.Ordered() {
			f := c.Figures[m.Name]
			if f == nil || base == nil || c.Baseline || !f.Ratio.Known() {
				continue
			}
			n := 0
			for _, b := range f.Blocks {
				other, both := base.figure(m.Name).At(b.Block)
				if both && (b.Value == 0 || other.Value == 0 || math.IsNaN(b.Value/other.Value)) {
					n++
				}
			}
			if n > 0 {
				f.doubt(leftOut)
				found = append(found, fmt.Sprintf("%s in %s of %s", m.Name, quantity.Count(n, "block"), c.Name))
			}
		}
	}
	return found
}
