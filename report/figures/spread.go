package figures

import (
	"fmt"
	"math"
	"slices"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/stats"
)

// Spread returns the ends of the whisker: of the interval, or if the blocks are too few for one, the least
// and the greatest ratio, with interval false. It returns NaN for none.
func (c Comparison) Spread() (lo, hi float64, interval bool) {
	if c.Confidence > 0 {
		return c.Lo, c.Hi, true
	}
	values := Figure{Blocks: c.Blocks}.Values("")
	if len(values) == 0 {
		return math.NaN(), math.NaN(), false
	}
	return slices.Min(values), slices.Max(values), false
}

// Runs returns the least and the greatest value of a run. With interval, and enough runs, it returns instead
// the 95% interval of their median by order statistics. With fewer than two runs the values are NaN.
func (f Figure) Runs(statistic string, interval bool) (lo, hi float64, is bool) {
	values := f.Values(statistic)
	if len(values) < 2 {
		return math.NaN(), math.NaN(), false
	}
	slices.Sort(values)
	low, high := stats.QuantileRanks(uint64(len(values)), 0.5)
	if interval && low > 0 && high > 0 {
		return values[low-1], values[high-1], true
	}
	return values[0], values[len(values)-1], false
}

// SpreadText prints the whisker of a ratio in percent: an interval in brackets, the range of the blocks
// without.
func (c Comparison) SpreadText() string {
	lo, hi, interval := c.Spread()
	switch {
	case !c.Known() || lo == hi && !interval: // one block has no range
		return format.None
	case interval:
		return fmt.Sprintf("[%s, %s]", format.Ratio(100*lo), format.Ratio(100*hi))
	}
	return fmt.Sprintf("%s to %s", format.Ratio(100*lo), format.Ratio(100*hi))
}

// Estimate prints the ratio of a cell's value to the baseline's, which is 100% by definition.
func (s *Summary) Estimate(c Cell, m metric.Metric) string {
	f := c.Figure(m)
	switch {
	case c.Baseline:
		return "100%"
	case !f.Ratio.Known():
		return format.None
	}
	return Bound(format.Percent(f.Ratio.Estimate), f, s.Cell(s.Baseline).Figure(m))
}

// Over returns the figure with the bound that its ratio to another figure is. If both are bounds, the ratio
// says nothing, and has none.
func (f Figure) Over(base Figure) Figure {
	switch {
	case base.Limit == "":
	case f.Limit == "":
		f.Limit, f.AtMost = base.Limit, !base.AtMost // dividing by a bound turns it around
	default:
		f.Limit = ""
	}
	return f
}

// Bound marks a printed ratio of two figures, see Over.
func Bound(ratio string, own, base Figure) string { return own.Over(base).Bounded(ratio) }

// SpreadWords is SpreadText for a sentence.
func (c Comparison) SpreadWords() string {
	_, _, interval := c.Spread()
	switch {
	case !c.Known():
		return ""
	case interval:
		return fmt.Sprintf("%s (%d %ss)", c.SpreadText(), c.N, c.Of())
	case c.N == 1:
		return fmt.Sprintf("(1 %s)", c.Of())
	}
	return fmt.Sprintf("(%d %ss, range: %s)", c.N, c.Of(), c.SpreadText())
}

// SpreadHead returns the header of a column with whiskers of ratios to the baseline.
func (s *Summary) SpreadHead() (head, note string) {
	var all []Comparison
	for _, c := range s.Cells {
		for _, f := range c.Figures {
			if !c.Baseline {
				all = append(all, f.Ratio)
			}
		}
	}
	return SpreadHead(all)
}

// SpreadHead returns the header of a column with whiskers. The note explains them if the blocks are few.
func SpreadHead(all []Comparison) (head, note string) {
	ranges, most := false, 0
	for _, c := range all {
		if !c.Known() || c.Boots && c.N == 1 {
			continue
		}
		most = max(most, c.N)
		if _, _, interval := c.Spread(); interval {
			head = "95% interval"
		} else {
			ranges = true
		}
	}
	switch {
	case head != "" && ranges:
		return head, "[a, b] is a 95% interval; a to b is the range of the blocks, where they are too few for one."
	case head != "":
		return head, ""
	case most == 0:
		return "range", ""
	case most == 1:
		return "range", "1 block has no range and no interval (that needs 6 blocks)."
	}
	return fmt.Sprintf("range of %d", most),
		quantity.Count(most, "block") + ": range of the blocks' ratios, no interval (that needs 6 blocks)."
}
