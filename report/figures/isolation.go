package figures

import (
	"fmt"
	"math"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/stats"
)

// Aspect is what blocks are compared by: the value of a metric, or the P99.9 of its distribution.
type Aspect struct {
	metric.Metric
	Name string // "RTT P99.9"
	Tail bool   // it is the P99.9
	of   string // see Block.Of
}

// Shown prints the figure of all runs of a cell with its unit.
func (a Aspect) Shown(c Cell) string {
	if a.Tail {
		f := c.Figure(a.Metric)
		return f.Bounded(a.Unit.Full(f.Merged.Quantile(0.999)))
	}
	return c.Figure(a.Metric).Shown(a.Metric)
}

// Aspects returns the aspects of the primary metrics.
func (s *Summary) Aspects() []Aspect {
	var all []Aspect
	for _, m := range s.Primary() {
		all = append(all, Aspect{m, m.Value(), false, ""})
		if m.Sampled {
			all = append(all, Aspect{m, m.Noun + " P99.9", true, "p99.9"})
		}
	}
	return all
}

// Isolation says how well a disturbed cell is isolated from the disturbance.
type Isolation struct {
	Name  string // of the cell, without the level of the disturbance: lane-express
	From  string // of Loser
	Cell  Cell
	Quiet *Cell // the same cell undisturbed; nil for none
	// Loser is the disturbed cell with the baseline's conditions and the same load, Base the same undisturbed.
	// The loss is the difference between them. They are nil if there is none, or the cell is the loser.
	Loser, Base *Cell
	Aspects     []Isolated
}

// Isolated says how well a cell is isolated in one aspect.
type Isolated struct {
	Aspect
	Cost Comparison // the ratio to Quiet
	Back Comparison // the share of the loss that is won back; more than 1 is beyond Base
	Why  string     // why there is no share; "" if there is one, or no figure
}

// isolate computes the isolation of each disturbed cell.
func (s *Summary) isolate() (all []Isolation) {
	noise := s.Disturbance()
	if noise == nil {
		return nil
	}
	for _, c := range s.Cells {
		if c.Pale {
			continue
		}
		i := Isolation{Name: s.others(c), Cell: c, Loser: s.standard(c, false), Base: s.standard(c, true)}
		i.Quiet = first(s.Cells, func(o Cell) bool { return o.Pale && s.sameBut(noise, o, c) })
		if i.Loser == nil || i.Base == nil || i.Loser.Name == c.Name {
			i.Loser, i.Base = nil, nil
		} else {
			i.From = s.others(*i.Loser)
		}
		for _, a := range s.Aspects() {
			one := Isolated{Aspect: a, Cost: unknown(), Back: unknown()}
			if i.Quiet != nil {
				one.Cost = relate(c.Figure(a.Metric), i.Quiet.Figure(a.Metric), a.of)
			}
			if i.Loser != nil {
				one.Back, one.Why = a.share(c, *i.Loser, *i.Base)
			}
			i.Aspects = append(i.Aspects, one)
		}
		if i.Quiet != nil || i.Loser != nil {
			all = append(all, i)
		}
	}
	return all
}

// unknown returns a comparison without figures.
func unknown() Comparison {
	return Comparison{Comparison: stats.Comparison{Interval: stats.Centre(nil, confidence)}}
}

// share is estimated from the shares of the blocks. They are no ratios of like figures and may be negative,
// so it does not use their logarithms.
func (a Aspect) share(c, loser, quiet Cell) (Comparison, string) {
	loss := relate(loser.Figure(a.Metric), quiet.Figure(a.Metric), a.of)
	back := unknown()
	lo, hi, _ := loss.Spread()
	lower := a.Margin.Goal == stats.LowerIsBetter
	switch {
	case !loss.Known():
		return back, ""
	case loser.Figure(a.Metric).Limit != "" || quiet.Figure(a.Metric).Limit != "":
		return back, fmt.Sprintf("%s is a bound, so a share of the loss would be too large or too small",
			map[bool]string{true: loser.Name, false: quiet.Name}[loser.Figure(a.Metric).Limit != ""])
	case loss.N == 1:
		return back, fmt.Sprintf("one block does not show what %s loses", loser.Name)
	case lower && !(lo > 1), !lower && !(hi < 1):
		text := "what %s loses cannot be told from chance: it is at %s %s of %s"
		if lower && hi < 1 || !lower && lo > 1 {
			text = "%s loses nothing: it is at %s %s of %s"
		}
		return back, fmt.Sprintf(text, loser.Name, format.Percent(loss.Estimate), loss.SpreadWords(), quiet.Name)
	}
	var shares []float64
	none, gone := 0, 0
	for _, l := range loss.Blocks {
		own, counts := c.Figure(a.Metric).At(l.Block)
		q, _ := quiet.Figure(a.Metric).At(l.Block)
		switch x := own.Of(a.of) / q.Of(a.of); {
		case math.IsInf(own.Of(a.of), 1) || math.IsInf(q.Of(a.of), 1) || math.IsInf(l.Value, 1):
			gone++
		case !counts || math.IsNaN(x): // it has lost all, and more than the loser
		case l.Value == 1, (l.Value > 1) != lower:
			none++
		default:
			shares = append(shares, (x-l.Value)/(1-l.Value))
			back.Blocks = append(back.Blocks, Block{Block: l.Block, Value: shares[len(shares)-1]})
		}
	}
	if gone > 0 {
		return back, fmt.Sprintf("it is among what was lost in %s of %d, so a share means nothing",
			quantity.Count(gone, "block"), loss.N)
	}
	if none > 0 {
		return back, fmt.Sprintf("%s loses nothing in %s of %d, so a share of it means nothing", loser.Name,
			quantity.Count(none, "block"), loss.N)
	}
	back.Interval = stats.Centre(shares, confidence)
	if lo, hi, _ := back.Spread(); lo <= 0 && hi >= 1 {
		return unknown(), fmt.Sprintf("%s may win back nothing as well as everything: %s %%", c.Name,
			back.SpreadText())
	}
	return back, ""
}
