package figures

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

const confidence = 0.95 // of the intervals

// Comparison is a ratio over the blocks in which both sides count, or over the boots.
type Comparison struct {
	stats.Comparison
	Blocks []Block // each block's ratio
	Boots  bool    // the sides are of different boots, and each block here is one boot of both
}

// Of says what the ratio is over: blocks or boots.
func (c Comparison) Of() string {
	if c.Boots {
		return "boot"
	}
	return "block"
}

// needed returns about how many blocks, or boots, a verdict needs, among that many comparisons.
func (c Comparison) needed(m stats.Margin, comparisons int) int {
	design := map[bool]stats.Design{false: stats.Paired, true: stats.Unpaired}[c.Boots]
	return design.Needed(c.Comparison, m, c.N, comparisons)
}

// lostValue stands for what is longer than all else, where logarithms are taken.
const lostValue = 1e300

// unlost makes infinite or 0 again what lost made huge or tiny.
func unlost(c *stats.Comparison) {
	for _, v := range []*float64{&c.Estimate, &c.Lo, &c.Hi} {
		switch {
		case *v > 1e100:
			*v = math.Inf(1)
		case *v < 1e-100:
			*v = 0
		}
	}
}

// relate compares own with base, block by block.
func relate(own, base Figure, statistic string) Comparison {
	blocks, a, b := sides(own, base, statistic)
	c := Comparison{Comparison: stats.Compare(a, b, confidence), Blocks: blocks}
	unlost(&c.Comparison)
	return c
}

// sides returns the values of the blocks in which both sides count, and their ratios. A lost value is longer
// than any other; two lost ones have no ratio.
func sides(own, base Figure, statistic string) (ratios []Block, a, b []float64) {
	for _, o := range own.Blocks {
		reference, _ := base.At(o.Block)
		v, r := o.Of(statistic), reference.Of(statistic)
		if v > 0 && r > 0 && !math.IsNaN(v/r) { // comparisons with NaN are false
			a, b = append(a, min(v, lostValue)), append(b, min(r, lostValue))
			ratios = append(ratios, Block{Block: o.Block, Value: v / r})
		}
	}
	return ratios, a, b
}

// Ratio compares a metric of two cells, or the means of its samples, as papers print them.
func (s *Summary) Ratio(own, base *Cell, m metric.Metric, means bool) Comparison {
	statistic := ""
	if means && m.Sampled {
		statistic = "mean"
	}
	return s.relate(own, base, m.Name, statistic)
}

// Of returns a block's value of a statistic: mean, p90, p99 or p99.9; "" is what is compared. For others it
// returns NaN.
func (b Block) Of(statistic string) float64 {
	switch statistic {
	case "":
		return b.Value
	case "mean":
		return b.Mean
	case "p90":
		return b.P90
	case "p99":
		return b.P99
	case "p99.9":
		return b.P999
	}
	return math.NaN()
}

// compare relates each figure to the baseline's of the same blocks, and judges. The primary metrics are one
// family for Holm, over all cells, and each other metric is a family by itself.
func (s *Summary) compare() {
	base := s.Cell(s.Baseline)
	if base == nil {
		return
	}
	for c := range s.cells() {
		for name, f := range c.Figures {
			if base.Figures[name] != nil {
				f.Ratio = s.relate(c, base, name, "")
				f.Means = s.relate(c, base, name, "mean")
			}
		}
	}
	if !s.Verdicts {
		return
	}
	s.judge(s.Primary()...)
	for _, m := range s.Metrics {
		if m.Role == "" {
			s.judge(m)
		}
	}
}

// cells iterates over the cells, to change them.
func (s *Summary) cells() iter.Seq[*Cell] {
	return func(yield func(*Cell) bool) {
		for i := range s.Cells {
			if !yield(&s.Cells[i]) {
				return
			}
		}
	}
}

// Undecided reports whether the verdict is inconclusive only for lack of blocks, or of boots.
func (f Figure) Undecided() bool {
	return f.Verdict == stats.Inconclusive && (f.Lowered == "" || f.Lowered == fewBoots)
}

// Undecided says how many verdicts on the primary metrics are inconclusive, and what would change that; ""
// for none.
func (s *Summary) Undecided() string {
	n, needs := 0, map[string][]string{}
	for _, m := range s.Primary() {
		for _, c := range s.Cells {
			f := c.Figure(m)
			if f.Verdict == stats.Inconclusive {
				n++
			}
			if f.Undecided() {
				more := map[bool]string{true: " or more"}[f.Needed >= stats.MostNeeded]
				need := fmt.Sprintf("%5d %ss%s", f.Needed, f.Ratio.Of(), more)
				needs[need] = append(needs[need], s.Distinct(m).Value()+" of "+c.Name)
			}
		}
	}
	if n == 0 {
		return ""
	}
	var parts []string
	for _, need := range slices.Sorted(maps.Keys(needs)) {
		of := needs[need]
		if len(of) > 2 {
			of = []string{quantity.Count(len(of), "figure")}
		}
		parts = append(parts, strings.TrimSpace(need)+" for "+strings.Join(of, " and "))
	}
	text := quantity.Count(n, "verdict") + " on the primary figures: inconclusive."
	if len(parts) > 0 {
		text += " Spread as it is, a verdict needs about " + strings.Join(parts, ", ") + "."
	}
	return text
}

// otherLoad replaces a verdict if open loops asked a cell for another load than the baseline.
const otherLoad = "another load"

// judge gives the verdicts on one family, for cells with the same load as the baseline.
func (s *Summary) judge(family ...metric.Metric) {
	var all []*stats.Comparison
	judges := []func(){}
	for _, m := range family {
		for _, c := range s.Cells {
			f := c.Figures[m.Name]
			if f == nil || c.Baseline || !f.Ratio.Known() {
				continue
			}
			if !s.SameLoad(c, *s.Cell(s.Baseline)) {
				f.Lowered = otherLoad
				continue
			}
			all = append(all, &f.Ratio.Comparison)
			judges = append(judges, func() {
				f.Verdict = stats.Judge(f.Ratio.Comparison, m.Margin)
				f.Needed = f.Ratio.needed(m.Margin, len(all))
			})
		}
	}
	stats.Holm(all)
	for _, judge := range judges {
		judge()
	}
}

// cpuTime is the name of the neighbours' CPU time among their work.
const cpuTime = "CPUs"

// addWork adds what the neighbours got in a run: CPUs' worth of time, and operations per second of each
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

// compareWork relates the neighbours' work to their work in the standard cell: the price of isolation.
func (s *Summary) compareWork() {
	for c := range s.cells() {
		ref := s.standard(*c, false)
		if len(c.Work) == 0 || ref == nil || ref == c {
			continue
		}
		c.WorkBase = ref.Name
		for name, w := range c.Work {
			if base := ref.Work[name]; base != nil {
				w.Ratio = relate(*w, *base, "")
			}
		}
	}
}
