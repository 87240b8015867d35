package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/report/objective"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Aim is something that the product should reach, and what was found.
type Aim struct {
	Text  string `json:"text"` // what it is about
	Goal  string `json:"goal"`
	Found string `json:"found"`
	State State  `json:"state"`
	// Doubts are the guards that failed, and leave the aim open although the figures alone would decide.
	Doubts []string `json:"doubts,omitempty"`
	Paper  string   `json:"-"`    // the paper's figure for the same conditions; "" for none
	Firm   bool     `json:"firm"` // a verdict: the session gives verdicts, and has enough blocks
}

// AimNote says where the states are no verdicts.
func (s *Summary) AimNote() string {
	if slices.ContainsFunc(s.Aims, func(a Aim) bool { return !a.Firm }) {
		return fmt.Sprintf(" (no verdict: that needs %d blocks, and a session that is not quick)",
			objective.LeastRuns)
	}
	return ""
}

// State of an aim.
type State string

// The states of an aim. An aim is reached if the worse end of the interval reaches it (or of the blocks'
// range, if there is no interval). It is not reached if the estimate does not reach it.
const (
	Reached    State = "reached"
	NotReached State = "not reached"
	Open       State = "open" // the estimate reaches it, but the worse end does not; or there is only one block
	NoFigure   State = "no figure"
)

// AimPair says which cells the aims are about, if there are aims. Those against another cell name it.
func (s *Summary) AimPair() string {
	if len(s.Aims) == 0 {
		return ""
	}
	return s.Session.Scenario.Aims.Cell + " against " + s.Baseline
}

// aims returns nothing unless the cell is in the session, and no aim against a cell that is not.
func (s *Summary) aims() []Aim {
	wanted := s.Session.Scenario.Aims
	if wanted == nil {
		return nil
	}
	own := s.Cell(wanted.Cell)
	var all []Aim
	for _, g := range wanted.Goals {
		base := s.Cell(cmp.Or(g.Against, s.Baseline))
		m := s.Metric(g.Metric)
		if own == nil || base == nil || m == nil {
			continue
		}
		a := s.aim(*m, g, own, base)
		if over := own.overloaded(g.Metric); over > 0 && a.State != NoFigure {
			a.Found += fmt.Sprintf(", without what was not carried in %s", quantity.Count(over, "run"))
		}
		if !s.SameLoad(*own, *base) && a.State == Reached {
			a.State, a.Found = Open, a.Found+", but at another load"
		}
		a.Firm = a.Firm && s.Verdicts
		a.doubted(own.Figure(*m), base.Figure(*m))
		if s.apart(own, base) && a.State == Reached && !a.Firm {
			a.State, a.Found = Open, a.Found+", but in another boot"
		}
		all = append(all, a)
	}
	return all
}

// doubted opens an aim that was reached although a guard failed on either side. It ignores limits and late
// clients, because the figure may be even better, and what the baseline leaves out, which flatters only the
// baseline.
func (a *Aim) doubted(own, base Figure) {
	bound, others := own.Limit != "", slices.DeleteFunc(slices.Clone(base.Doubts), func(guard string) bool {
		return guard == leftOut
	})
	for _, guard := range slices.Concat(own.Doubts, others) {
		better := bound && guard == own.Limit && !slices.Contains(base.Doubts, guard)
		if !better && !slices.Contains(a.Doubts, guard) {
			a.Doubts = append(a.Doubts, guard)
		}
	}
	switch {
	case a.State == Reached && len(a.Doubts) > 0:
		a.State = Open
	case a.State == NotReached && bound:
		a.State, a.Doubts = Open, []string{own.Limit}
	default:
		a.Doubts = nil
	}
}

func (s *Summary) aim(m metric.Metric, g results.Goal, own, base *Cell) Aim {
	if g.Statistic != "" {
		return s.tailAim(m, g, own, base)
	}
	a := s.judgeGoal(m, g.Percent/100, own, base)
	if g.Against != "" {
		a.Goal += " of " + base.Name
	} else if own.PublishedFor(m) != nil {
		a.Paper = own.Quoted(m)
	}
	return a
}

// judgeGoal compares block by block, or boot by boot.
func (s *Summary) judgeGoal(m metric.Metric, ratio float64, own, base *Cell) Aim {
	word, passes := "at least", func(v float64) bool { return v >= ratio }
	if m.Margin.Goal == stats.LowerIsBetter {
		word, passes = "at most", func(v float64) bool { return v <= ratio }
	}
	a := Aim{Text: m.Value(), Goal: fmt.Sprintf("%s %.9g%%", word, 100*ratio), State: NoFigure}
	found := s.relate(own, base, m.Name, "")
	if !found.Known() {
		a.Found = fmt.Sprintf("no %s in which both count", found.Of())
		return a
	}
	a.Found = fmt.Sprintf("%s %s: %s against %s", Bound(format.Percent(found.Estimate), own.Figure(m),
		base.Figure(m)), found.SpreadWords(), own.Figure(m).Shown(m), base.Figure(m).Shown(m))
	lo, hi, interval := found.Spread()
	a.Firm = interval
	switch {
	case found.N > 1 && passes(lo) && passes(hi):
		a.State = Reached
	case passes(found.Estimate):
		a.State = Open
	default:
		a.State = NotReached
	}
	return a
}

// tailAim compares a percentile of the merged histograms. The blocks or boots support it: they give the
// interval, and in how many of them the aim holds.
func (s *Summary) tailAim(m metric.Metric, g results.Goal, ownCell, baseCell *Cell) Aim {
	own, base, ratio := ownCell.Figure(m), baseCell.Figure(m), g.Percent/100
	a := Aim{Text: m.Noun + " " + strings.ToUpper(g.Statistic), State: NoFigure,
		Goal: fmt.Sprintf("below %g%% of that of %s", g.Percent, baseCell.Name)}
	if ratio == 1 {
		a.Goal = "below that of " + baseCell.Name
	}
	o, ok := ownCell.Statistic(m, g.Statistic)
	b, known := baseCell.Statistic(m, g.Statistic)
	if !ok || !known {
		p, _ := lane.Quantile(g.Statistic) // it was checked when read
		a.Found = fmt.Sprintf("too few samples (%s and %s; it needs %s)", format.Count(own.Merged.N()),
			format.Count(base.Merged.N()), format.Count(stats.SamplesFor(p)))
		return a
	}
	a.Found = fmt.Sprintf("%s: %s against %s", Bound(format.Percent(o/b), own, base),
		own.Bounded(m.Unit.Full(o)), base.Bounded(m.Unit.Full(b)))
	below := 0
	found := s.relate(ownCell, baseCell, m.Name, g.Statistic)
	for _, r := range found.Blocks {
		if r.Value < ratio {
			below++
		}
	}
	switch n := len(found.Blocks); {
	case n > 1:
		a.Found += fmt.Sprintf(", below %g%% in %d of %s, %s by %[4]s %s%%", g.Percent, below,
			quantity.Count(n, found.Of()), found.Of(), found.SpreadText())
	case n == 1:
		a.Found += fmt.Sprintf(", of one %s", found.Of())
	default:
		a.Found += fmt.Sprintf(", and no %s has the samples for it alone", found.Of())
	}
	_, hi, interval := found.Spread()
	a.Firm = interval
	switch {
	case o < b*ratio && found.N > 1 && hi < ratio:
		a.State = Reached
	case o < b*ratio, math.IsNaN(o / b):
		a.State = Open
	default:
		a.State = NotReached
	}
	return a
}
