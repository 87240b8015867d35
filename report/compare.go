package report

import (
	"maps"
	"math"
	"slices"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Confidence of the intervals, and the error rate of the verdicts of one family together.
const (
	confidence = 0.95
	alpha      = 0.05
)

// Margins within which a difference does not matter.
const (
	throughputMargin = 0.05
	rttMargin        = 0.10
)

// Comparison is a ratio over the blocks in which both sides count.
type Comparison struct {
	stats.Interval
	Blocks    []Ratio
	Low, High float64 // the least and the greatest ratio of a block, NaN for none
	p         float64 // of no difference, not adjusted
}

// Ratio is that of one block.
type Ratio struct {
	Block int
	Ratio float64
}

// Known says whether there is an estimate.
func (c Comparison) Known() bool { return c.N > 0 && !math.IsNaN(c.Estimate) }

// Spread returns the ends of the whisker: those of the interval, or where the blocks are too few
// for one, the least and the greatest ratio; then interval is false.
func (c Comparison) Spread() (lo, hi float64, interval bool) {
	if c.Confidence > 0 {
		return c.Lo, c.Hi, true
	}
	return c.Low, c.High, false
}

// relate compares own with base, block by block.
func relate(own, base []Block, value func(Block) float64) Comparison {
	reference := map[int]float64{}
	for _, b := range base {
		reference[b.Block] = value(b)
	}
	c := Comparison{Low: math.NaN(), High: math.NaN()}
	var a, b []float64
	for _, o := range own {
		v, r := value(o), reference[o.Block]
		if !(v > 0) || !(r > 0) { // NaN is not above 0 either
			continue
		}
		a, b = append(a, v), append(b, r)
		c.Blocks = append(c.Blocks, Ratio{o.Block, v / r})
	}
	for i, r := range c.Blocks {
		if i == 0 {
			c.Low, c.High = r.Ratio, r.Ratio
		}
		c.Low, c.High = min(c.Low, r.Ratio), max(c.High, r.Ratio)
	}
	c.Interval = stats.Ratio(a, b, confidence)
	logs, _ := stats.LogRatios(a, b)
	c.p = stats.SignedRankP(logs, 0)
	return c
}

func blockValue(b Block) float64 { return b.Value }
func blockMean(b Block) float64  { return b.Mean }

// compare relates each figure to the baseline's of the same blocks, and judges.
//
// The primary figures, throughput and one RTT, are one family for Holm, over all cells. Each other
// measurement is a family by itself.
func (s *Summary) compare() {
	base := s.cell(s.Baseline)
	if base == nil {
		return
	}
	for i := range s.Cells {
		for name, f := range s.Cells[i].Figures {
			ref, ok := base.Figures[name]
			if !ok {
				continue
			}
			f.Ratio = relate(f.Blocks, ref.Blocks, blockValue)
			if f.RTT != nil {
				f.Means = relate(f.Blocks, ref.Blocks, blockMean)
			}
			s.Cells[i].Figures[name] = f
		}
	}
	if !s.Verdicts {
		return
	}
	s.judge(Throughput, s.RTT)
	for _, name := range slices.Concat(s.Directions, s.RTTs) {
		if name != s.RTT {
			s.judge(name)
		}
	}
	for _, c := range s.Cells {
		for _, name := range []string{Throughput, s.RTT} {
			if c.Figures[name].Verdict == stats.Inconclusive {
				s.Inconclusive++
			}
		}
	}
}

// judge gives the verdicts on one family of figures.
func (s *Summary) judge(names ...string) {
	type place struct {
		cell int
		name string
	}
	var places []place
	var p []float64
	for _, name := range names {
		for i, c := range s.Cells {
			if f, ok := c.Figures[name]; ok && !c.Baseline && f.Ratio.Known() {
				places = append(places, place{i, name})
				p = append(p, f.Ratio.p)
			}
		}
	}
	for k, adjusted := range stats.Holm(p) {
		at := places[k]
		f := s.Cells[at.cell].Figures[at.name]
		f.P = adjusted
		margin, goal := rttMargin, stats.LowerIsBetter
		if f.RTT == nil {
			margin, goal = throughputMargin, stats.HigherIsBetter
		}
		f.Verdict = stats.Judge(f.Ratio.Interval, adjusted, alpha, margin, goal)
		s.Cells[at.cell].Figures[at.name] = f
	}
}

// cpuTime names the neighbours' share of the machine among their work.
const cpuTime = "CPUs"

// work is what the neighbours got in each run: CPUs' worth of time, and operations per second of
// each stressor.
func work(used []results.Run) []Figure {
	all := map[string][]Block{}
	for _, r := range used {
		n := r.Witness.Neighbours
		if r.Witness.Window > 0 && n.CPUTime > 0 {
			all[cpuTime] = append(all[cpuTime], newBlock(r.Block, float64(n.CPUTime)/float64(r.Witness.Window)))
		}
		for stressor, rate := range n.BogoPerSec {
			all[stressor] = append(all[stressor], newBlock(r.Block, rate))
		}
	}
	var figures []Figure
	for _, name := range slices.Sorted(maps.Keys(all)) { // capitals first: CPUs
		figures = append(figures, Figure{Name: name, Metric: "work", Blocks: all[name], Centre: median(all[name])})
	}
	return figures
}

// compareWork relates the neighbours' work in pinned and lane cells to their work in the floating
// cell: the price of isolation.
func (s *Summary) compareWork() {
	for i := range s.Cells {
		c := &s.Cells[i]
		ref := s.floating(c.Path)
		if len(c.Work) == 0 || ref == nil || ref == c {
			continue
		}
		c.WorkBase = ref.Name
		for k, w := range c.Work {
			at := slices.IndexFunc(ref.Work, func(f Figure) bool { return f.Name == w.Name })
			if at >= 0 {
				c.Work[k].Ratio = relate(w.Blocks, ref.Work[at].Blocks, blockValue)
			}
		}
	}
}

// floating is the noisy floating cell, of the same path if there is one.
func (s *Summary) floating(path string) *Cell {
	var found *Cell
	for i := range s.Cells {
		c := &s.Cells[i]
		if c.Noise == "noisy" && c.Placement == "floating" && (found == nil || c.Path == path) {
			found = c
		}
	}
	return found
}

// Cost is what noise costs one placement on one path: its noisy cell against its quiet one.
type Cost struct {
	Name         string // placement-path
	Throughput   Comparison
	RTT          Comparison // of P50
	Quiet, Noisy float64    // P99.9 in nanoseconds, NaN where unsupported
}

func (s *Summary) costs() []Cost {
	var all []Cost
	for _, noisy := range s.Cells {
		quiet := slices.IndexFunc(s.Cells, func(c Cell) bool {
			return c.Noise == "quiet" && c.Placement == noisy.Placement && c.Path == noisy.Path
		})
		if noisy.Noise != "noisy" || quiet < 0 {
			continue
		}
		q := s.Cells[quiet]
		all = append(all, Cost{
			Name:       noisy.Placement + "-" + noisy.Path,
			Throughput: relate(noisy.Figures[Throughput].Blocks, q.Figures[Throughput].Blocks, blockValue),
			RTT:        relate(noisy.Figures[s.RTT].Blocks, q.Figures[s.RTT].Blocks, blockValue),
			Quiet:      q.Figures[s.RTT].RTT.Quantile(0.999),
			Noisy:      noisy.Figures[s.RTT].RTT.Quantile(0.999),
		})
	}
	return all
}
