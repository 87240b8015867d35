package report

import (
	"fmt"
	"slices"

	"isolane.dev/isolane/stats"
)

// Aim is something that the product is to reach, and what was found.
type Aim struct {
	Text  string // what it is about
	Found string
	Goal  string
	Paper string // the paper's figure for the same conditions, "" for none
	State State
	Firm  bool // a verdict: of a session that gives some, and of enough blocks
}

// verdictBlocks is the least for an interval, and so for a verdict.
const verdictBlocks = 6

// aimNote says where the states are no verdicts.
func (s *Summary) aimNote() string {
	if slices.ContainsFunc(s.Aims, func(a Aim) bool { return !a.Firm }) {
		return fmt.Sprintf(" (no verdict: that needs %d blocks, and a session that is not quick)", verdictBlocks)
	}
	return ""
}

// State of an aim.
type State string

// The states of an aim. An aim is reached where the worse end of the interval reaches it (of the
// blocks' range, where there is no interval), and not reached where the estimate does not.
const (
	Reached    State = "reached"
	NotReached State = "not reached"
	Open       State = "open" // the estimate reaches it, the worse end does not; or one block alone
	NoFigure   State = "no figure"
)

// The cell that is to reach the aims, under noise, against the baseline, what a quiet host does now.
const (
	aimCell = "noisy-lane-express"
	aimBase = "quiet-floating-bridge"
)

// target is one aim as data: a ratio to the baseline.
type target struct {
	what   string
	figure string // a metric
	ratio  float64
	goal   stats.Goal
}

func targets() []target {
	return []target{
		{"throughput", "throughput", 1.50, stats.HigherIsBetter},
		{"RTT P50", "rtt", 0.50, stats.LowerIsBetter},
	}
}

// aims returns nothing unless both cells are in the session.
func (s *Summary) aims() []Aim {
	own, base := s.cell(aimCell), s.cell(aimBase)
	if own == nil || base == nil || !base.Baseline {
		return nil
	}
	var all []Aim
	for _, t := range targets() {
		name := Throughput
		if t.figure == "rtt" {
			name = s.RTT
		}
		all = append(all, t.judge(*own, own.Figures[name].Ratio))
	}
	all = append(all, tailAim(own.Figures[s.RTT], base.Figures[s.RTT]))
	for i := range all {
		all[i].Firm = all[i].Firm && s.Verdicts
	}
	return all
}

func (t target) judge(c Cell, found Comparison) Aim {
	word := "at least"
	if t.goal == stats.LowerIsBetter {
		word = "at most"
	}
	a := Aim{Text: t.what, Goal: fmt.Sprintf("%s %g%%", word, 100*t.ratio), State: NoFigure}
	if p, ok := c.paper(t.figure); ok {
		a.Paper = published(p)
	}
	if !found.Known() {
		a.Found = "no block in which both count"
		return a
	}
	a.Found = percent(found.Estimate) + " " + spreadWords(found)
	lo, hi, interval := found.Spread()
	a.Firm = interval
	passes := func(v float64) bool { return v >= t.ratio }
	worse := lo
	if t.goal == stats.LowerIsBetter {
		passes, worse = func(v float64) bool { return v <= t.ratio }, hi
	}
	switch {
	case found.N > 1 && passes(worse):
		a.State = Reached
	case passes(found.Estimate):
		a.State = Open
	default:
		a.State = NotReached
	}
	return a
}

// tailAim compares the merged histograms, and says in how many blocks the same holds.
func tailAim(own, base Figure) Aim {
	a := Aim{Text: "RTT P99.9", Goal: "below that of " + aimBase, State: NoFigure}
	o, b := own.RTT.Quantile(0.999), base.RTT.Quantile(0.999)
	if !(o > 0) || !(b > 0) {
		a.Found = fmt.Sprintf("too few samples (%s and %s; it needs %s)", count(own.RTT.N()), count(base.RTT.N()),
			count(stats.SamplesFor(0.999)))
		return a
	}
	a.Found = fmt.Sprintf("%s against %s", micros(o), micros(b))
	below := 0
	blocks := relate(own.Blocks, base.Blocks, func(b Block) float64 { return b.P999 }).Blocks
	for _, r := range blocks {
		if r.Ratio < 1 {
			below++
		}
	}
	if len(blocks) > 0 {
		a.Found += fmt.Sprintf(", lower in %d of %d blocks", below, len(blocks))
	}
	a.Firm = len(blocks) >= verdictBlocks
	a.State = NotReached
	if o < b {
		a.State = Reached
	}
	return a
}
