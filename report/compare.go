package report

import (
	"fmt"
	"math"
	"slices"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Confidence of the intervals, and the error rate of the verdicts of one family together.
const (
	confidence = 0.95
	alpha      = 0.05
)

// Comparison is a ratio over the blocks in which both sides count.
type Comparison struct {
	stats.Comparison
	Blocks []Block // each block's ratio
}

// Spread returns the ends of the whisker: those of the interval, or where the blocks are too few
// for one, the least and the greatest ratio, NaN for none; then interval is false.
func (c Comparison) Spread() (lo, hi float64, interval bool) {
	if c.Confidence > 0 {
		return c.Lo, c.Hi, true
	}
	lo, hi = math.NaN(), math.NaN()
	for i, b := range c.Blocks {
		if i == 0 {
			lo, hi = b.Value, b.Value
		}
		lo, hi = min(lo, b.Value), max(hi, b.Value)
	}
	return lo, hi, false
}

// spreadText prints the whisker of a ratio in percent: an interval in brackets, the range of the blocks
// without.
func (c Comparison) spreadText() string {
	lo, hi, interval := c.Spread()
	switch {
	case !c.Known() || c.N == 1:
		return none
	case interval:
		return fmt.Sprintf("[%s, %s]", digits(100*lo), digits(100*hi))
	}
	return fmt.Sprintf("%s to %s", digits(100*lo), digits(100*hi))
}

// spreadWords is the same for a sentence.
func (c Comparison) spreadWords() string {
	_, _, interval := c.Spread()
	switch {
	case !c.Known():
		return ""
	case interval:
		return fmt.Sprintf("%s (%d blocks)", c.spreadText(), c.N)
	case c.N == 1:
		return "(1 block)"
	}
	return fmt.Sprintf("(%d blocks, range: %s)", c.N, c.spreadText())
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
	case most == 0:
		return "range", ""
	}
	return fmt.Sprintf("range of %d", most),
		quantity.Count(most, "block") + ": range of the blocks' ratios, no interval (that needs 6 blocks)."
}

// relate compares own with base, block by block.
func relate(own, base Figure, value func(Block) float64) Comparison {
	var c Comparison
	var a, b []float64
	for _, o := range own.Blocks {
		reference, _ := base.At(o.Block)
		if v, r := value(o), value(reference); v > 0 && r > 0 { // NaN is not
			a, b = append(a, v), append(b, r)
			c.Blocks = append(c.Blocks, Block{Block: o.Block, Value: v / r})
		}
	}
	c.Comparison = stats.Compare(a, b, confidence)
	return c
}

func blockValue(b Block) float64 { return b.Value }
func blockMean(b Block) float64  { return b.Mean }
func blockP999(b Block) float64  { return b.P999 }

// compare relates each figure to the baseline's of the same blocks, and judges: the primary metrics are one
// family for Holm, over all cells, and each other metric is a family by itself.
func (s *Summary) compare() {
	base := s.cell(s.Baseline)
	if base == nil {
		return
	}
	for _, c := range s.Cells {
		for name, f := range c.Figures {
			if ref := base.Figures[name]; ref != nil {
				f.Ratio = relate(*f, *ref, blockValue)
				f.Means = relate(*f, *ref, blockMean)
			}
		}
	}
	if !s.Verdicts {
		return
	}
	s.judge(s.primary()...)
	for _, m := range s.Metrics {
		if !m.Primary {
			s.judge(m)
		}
	}
	for _, m := range s.primary() {
		for _, c := range s.Cells {
			if c.Figure(m).Verdict == stats.Inconclusive {
				s.Inconclusive++
			}
		}
	}
}

// judge gives the verdicts on one family.
func (s *Summary) judge(family ...Metric) {
	var all []*stats.Comparison
	judges := []func(){}
	for _, m := range family {
		for _, c := range s.Cells {
			f := c.Figures[m.Name]
			if f == nil || c.Baseline || !f.Ratio.Known() {
				continue
			}
			all = append(all, &f.Ratio.Comparison)
			judges = append(judges, func() { f.Verdict = stats.Judge(f.Ratio.Comparison, m.margin) })
		}
	}
	stats.Holm(all)
	for _, judge := range judges {
		judge()
	}
}

// cpuTime names the neighbours' share of the machine among their work.
const cpuTime = "CPUs"

// addWork takes in what the neighbours got in a run: CPUs' worth of time, and operations per second of each
// stressor.
func (c *Cell) addWork(r results.Run) {
	n := r.Witness.Neighbours
	if r.Witness.Window > 0 && n.CPUTime > 0 {
		figure(c.Work, cpuTime).add(r.Block, float64(n.CPUTime)/float64(r.Witness.Window))
	}
	for stressor, rate := range n.BogoPerSec {
		figure(c.Work, stressor).add(r.Block, rate)
	}
}

// compareWork relates the neighbours' work to their work in the floating cell: the price of isolation.
func (s *Summary) compareWork() {
	for i := range s.Cells {
		c := &s.Cells[i]
		ref := s.floating(c.Path)
		if len(c.Work) == 0 || ref == nil || ref == c {
			continue
		}
		c.WorkBase = ref.Name
		for name, w := range c.Work {
			if base := ref.Work[name]; base != nil {
				w.Ratio = relate(*w, *base, blockValue)
			}
		}
	}
}

// floating is the noisy floating cell, of the same path if there is one.
func (s *Summary) floating(path string) *Cell {
	var found *Cell
	for i := range s.Cells {
		c := &s.Cells[i]
		if c.Noise == noisy && c.Placement == floating && (found == nil || c.Path == path) {
			found = c
		}
	}
	return found
}

// cost is what noise costs one placement on one path: its noisy cell against its quiet one.
type cost struct {
	Name         string // placement-path
	Quiet, Noisy Cell
	Ratios       []Comparison // of the primary metrics
}

func (s *Summary) costs() []cost {
	var all []cost
	for _, n := range s.Cells {
		k := slices.IndexFunc(s.Cells, func(c Cell) bool {
			return c.Noise == quiet && c.Placement == n.Placement && c.Path == n.Path
		})
		if n.Noise != noisy || k < 0 {
			continue
		}
		c := cost{Name: n.Placement + "-" + n.Path, Quiet: s.Cells[k], Noisy: n}
		for _, m := range s.primary() {
			c.Ratios = append(c.Ratios, relate(n.Figure(m), c.Quiet.Figure(m), blockValue))
		}
		all = append(all, c)
	}
	return all
}

// tails are the P99.9 of the quiet and the noisy cell, NaN where the sample does not support it.
func (c cost) tails(m Metric) (quiet, noisy float64) {
	return c.Quiet.Figure(m).Merged.Quantile(0.999), c.Noisy.Figure(m).Merged.Quantile(0.999)
}
