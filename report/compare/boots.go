package compare

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/stats"
)

// bootsOf returns the boots of a cell's used runs, by their block.
func bootsOf(s *figures.Summary, cell string) map[int]string {
	boots := map[int]string{}
	for _, r := range s.Session.Runs {
		if r.Cell == cell && r.Used() { // an unknown boot is distinct from the session's others
			boots[r.Block] = cmp.Or(s.Session.BootOf(r).BootID, fmt.Sprint(r.Boot))
		}
	}
	return boots
}

// byBoot returns the geometric means of a figure's blocks in each boot. A boot is one sample, however many
// blocks it has, because its own effects, such as where pages lie, are the same in all of them.
func byBoot(f figures.Figure, boots map[int]string) map[string]float64 {
	sums, n := map[string]float64{}, map[string]float64{}
	for _, b := range f.Blocks {
		if b.Value > 0 && !math.IsInf(b.Value, 0) {
			sums[boots[b.Block]] += math.Log(b.Value)
			n[boots[b.Block]]++
		}
	}
	for boot := range sums {
		sums[boot] = math.Exp(sums[boot] / n[boot])
	}
	return sums
}

// related compares the runs of b with those of a if all are of a single boot, and otherwise the boots. If
// these are too few for an interval, the blocks are the least and the greatest ratio of a pair of runs.
func related(a, b figures.Figure, bootsA, bootsB map[int]string) (c figures.Comparison) {
	x, y := byBoot(a, bootsA), byBoot(b, bootsB)
	all := maps.Clone(x)
	maps.Copy(all, y)
	runs := func(f figures.Figure) []float64 {
		return slices.DeleteFunc(f.Values(""), func(v float64) bool { return math.IsInf(v, 1) })
	}
	if c.Boots = len(all) > 1; c.Boots {
		sorted := func(m map[string]float64) []float64 { return slices.Sorted(maps.Values(m)) }
		c.Comparison = stats.CompareUnpaired(sorted(y), sorted(x), confidence)
	} else {
		c.Comparison = stats.CompareUnpaired(runs(b), runs(a), confidence)
	}
	if c.Known() && c.Confidence == 0 {
		positive := func(f figures.Figure) []float64 {
			return slices.DeleteFunc(runs(f), func(v float64) bool { return !(v > 0) })
		}
		x, y := positive(a), positive(b)
		c.Blocks = []figures.Block{{Value: slices.Min(y) / slices.Max(x)}, {Value: slices.Max(y) / slices.Min(x)}}
	}
	return c
}

// sides returns how many samples the smaller side has, and how many a verdict needs at least.
func (c *Comparison) sides() (has, least int) {
	if c.found.Boots {
		return min(c.A.Boots, c.B.Boots), stats.Unpaired.Least(1, c.metric.Margin.Alpha)
	}
	return min(c.A.Runs, c.B.Runs), verdictRuns
}

// judge gives the verdicts. The primary metrics are one family for Holm, over all cells, and the others
// another, so that what else is shown does not change the verdicts on the primary ones. For an open verdict
// it says about how many runs or boots it needs.
func (d *Document) judge() {
	for _, primary := range []bool{true, false} {
		var family []*stats.Comparison
		var of []*Comparison
		for i := range d.Comparisons {
			c := &d.Comparisons[i]
			if c.metric.IsPrimary() != primary || !c.metric.IsFigure() {
				continue
			}
			of = append(of, c)
			if has, least := c.sides(); has >= least {
				family = append(family, &c.found.Comparison)
			}
		}
		stats.Holm(family)
		for _, c := range of {
			c.judge(len(of))
		}
	}
}

// judge gives the verdict on one comparison of a family of that size.
func (c *Comparison) judge(family int) {
	has, least := c.sides()
	if has < least {
		c.Verdict = stats.Inconclusive
	} else if c.Verdict = stats.Judge(c.found.Comparison, c.metric.Margin); !math.IsNaN(c.found.Adjusted) {
		c.Adjusted = &c.found.Adjusted
	}
	if c.Verdict != stats.Inconclusive && len(c.doubts) > 0 {
		c.Verdict, c.Lowered = stats.Inconclusive, c.doubts
		return
	}
	if c.Verdict == stats.Inconclusive {
		c.Needed = max(least, stats.Unpaired.Needed(c.found.Comparison, c.metric.Margin, has, family))
	}
}
