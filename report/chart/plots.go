package chart

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/report/samples"
)

// Heights of the parts of a row, from its top.
const (
	rowName    = 14
	rowBar     = 13
	rowBlocks  = 9
	rowPaper   = 13
	rowGap     = 8
	rangeLabel = 15
)

// Bars shows a metric in percent of the baseline: for each cell a row with its bar, the whisker, its blocks,
// and the paper's bar.
func Bars(s *figures.Summary, m metric.Metric, l Labels) []byte {
	high, published := 0.0, false
	for _, cell := range s.Cells {
		high += rowName + rowBar + rowBlocks + rowGap
		if cell.PublishedFor(m) != nil {
			high, published = high+rowPaper, true
		}
	}
	c := newChart(l)
	c.right -= 14 // half of the last tick's label
	c.levelKeys(s, s.Cells)
	if slices.ContainsFunc(s.Cells, func(c figures.Cell) bool { return len(c.Figure(m).Ratio.Blocks) > 1 }) {
		head, _ := s.SpreadHead()
		c.key(head, 18, func(x0, x1, y float64) { c.whisker("whisker", x0, x1, y) })
	}
	dot := "one block"
	if slices.ContainsFunc(s.Cells, func(c figures.Cell) bool { return c.Figure(m).Ratio.Boots }) {
		dot = "one block or boot"
	}
	c.key(dot, 6, func(x0, _, y float64) { c.dot("", x0+3, y, 1.8) })
	if published {
		c.key("the paper's figure", 18, func(x0, x1, y float64) { c.box("paper", x0, x1, y, 9) })
	}
	lo, hi := extent(s.Cells, m)
	name, foot := "% of "+s.Baseline, 0.0
	var ticks []tick
	if hi > 10 || lo < 0.02 {
		name, foot = name+" (logarithmic)", 1
		lo, hi = outward(min(lo, 1)*0.8, hi*1.1)
		ticks = logTicks(lo, hi, func(v float64) string { return format.Tick(100*v) + "%" })
	} else {
		lo, hi = 0, hi*1.1 // room for a figure behind the longest bar
		ticks = linear(0.25, hi, func(v float64) string { return fmt.Sprintf("%g%%", 100*v) })
	}
	c.x = scale{lo: lo, hi: hi, log: foot == 1}
	c.axes(high, name, ticks, nil)
	c.line("full", c.x.at(1), c.height, c.x.at(1), c.height+high)
	for _, cell := range s.Cells {
		c.barRow(s, cell, m, c.x.at(foot))
	}
	return c.paint()
}

// barRow draws a row at the chart's present height.
func (c *chart) barRow(s *figures.Summary, cell figures.Cell, m metric.Metric, foot float64) {
	f := cell.Figure(m)
	y := c.height + rowName + rowBar/2.0
	class, remark := "name faint end", cell.Missing(m)
	if remark == "" && !f.Ratio.Known() {
		remark = "not compared, " + f.Shown(m)
	} else if remark == "" {
		class, remark = "figure end", s.Estimate(cell, m)+", "+f.Shown(m)
		c.box(cellClass(cell.Look), foot, c.x.at(max(c.x.lo, min(f.Ratio.Estimate, c.x.hi))), y, rowBar-2)
	}
	c.grounded("name", c.left, c.height+rowName-4, cell.Label())
	c.grounded(class, c.right, c.height+rowName-4, remark)
	if lo, hi, _ := f.Ratio.Spread(); !cell.Baseline && lo > 0 && !math.IsInf(hi, 0) && len(f.Ratio.Blocks) > 1 {
		c.whisker("ground", c.x.at(lo), c.x.at(hi), y)
		c.whisker("whisker", c.x.at(lo), c.x.at(hi), y)
	}
	for k, b := range f.Ratio.Blocks { // the first at the top
		if !cell.Baseline && b.Value > 0 && !math.IsInf(b.Value, 1) {
			c.dot("", c.x.at(b.Value), y+rowBar/2.0+2+(rowBlocks-4)*(float64(k)+0.5)/float64(len(f.Ratio.Blocks)), 1.8)
		}
	}
	c.height += rowName + rowBar + rowBlocks
	if p := cell.PublishedFor(m); p != nil && p.Percent > 0 {
		x := c.x.at(p.Percent / 100)
		c.box("paper", foot, x, c.height+rowPaper/2.0, rowPaper-4)
		c.text("faint", max(foot, x)+4, c.height+rowPaper/2.0+4, cell.Quoted(m))
		c.height += rowPaper
	}
	c.height += rowGap
}

// extent returns the range of all that is to be drawn, including the line at 100%.
func extent(cells []figures.Cell, m metric.Metric) (lo, hi float64) {
	all := []float64{1}
	for _, c := range cells {
		r := c.Figure(m).Ratio
		from, to, _ := r.Spread()
		all = append(all, r.Estimate, from, to)
		for _, b := range r.Blocks {
			all = append(all, b.Value)
		}
		if p := c.PublishedFor(m); p != nil {
			all = append(all, p.Percent/100)
		}
	}
	all = slices.DeleteFunc(all, func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) })
	return slices.Min(all), slices.Max(all)
}

// shortest returns at least a nanosecond, so that a logarithmic scale can show it.
func shortest(d *samples.Distribution) float64 { return max(1, float64(d.Histogram.Min())) }

// Percentiles shows the distributions up to the highest percentile that each sample supports.
func Percentiles(s *figures.Summary, m metric.Metric, l Labels) []byte {
	c := newChart(l)
	c.left, c.right = c.left+50, c.right-14
	cells := s.Sampled(m)
	last := func(c figures.Cell) float64 { return lastPercentile(c.Figure(m).Merged) }
	slices.SortStableFunc(cells, func(a, b figures.Cell) int { return cmp.Compare(last(b), last(a)) })
	lo, hi, end := math.Inf(1), 0.0, 1.0
	numbered, high := alike(cells, func(c figures.Cell) figures.Look { return c.Look }), 256.0
	if numbered {
		c.right, high = c.right-lineNumber, max(high, numberGap*float64(len(cells)))
	}
	for i, cell := range cells {
		d := cell.Figure(m).Merged
		lo, hi, end = min(lo, shortest(d)), max(hi, lastPercentile(d)), max(end, nines(d.Supported))
		c.keyX = width // a row each
		text := fmt.Sprintf("%s, to %s of %s samples", cell.Label(), format.Quantile(d.Supported),
			format.Count(d.N()))
		if side := cell.Figure(m).Side(); side != "" {
			text += ", " + side + " so long"
		}
		if numbered {
			text = fmt.Sprintf("%d: %s", i+1, text)
		}
		c.key(text, 34, func(x0, x1, y float64) { c.line(lineClass(cell.Look), x0, y, x1, y) })
	}
	c.height += lineSkip + 4
	c.text("", margin, c.height, m.Axis()+" (logarithmic)")
	ticks := []tick{{0, "0"}}
	for _, q := range samples.Quantiles() {
		if nines(q) < end+0.01 {
			ticks = append(ticks, tick{nines(q), format.Quantile(q)[1:]})
		}
	}
	lo, hi = outward(lo, hi)
	c.x, c.y = scale{hi: end + 0.08}, scale{lo: lo, hi: hi, log: true}
	c.axes(high, "percentile (logarithmic towards 100)", ticks, logTicks(lo, hi, m.Unit.Tick))
	var ends []lineEnd
	for i, cell := range cells {
		if d := cell.Figure(m).Merged; d.Supported > 0 {
			ends = append(ends, lineEnd{i + 1, c.x.at(nines(d.Supported)), c.y.at(lastPercentile(d))})
			path := ""
			for _, p := range steps(d) {
				form := "H%gV%g"
				if path == "" {
					form = "M%g,%g"
				}
				path += fmt.Sprintf(form, round(c.x.at(p[0])), round(c.y.at(p[1])))
			}
			c.mark(`<path class="%s" d="%s" />`, lineClass(cell.Look), path)
			c.dot(dotClass(cell.Look), c.x.at(nines(d.Supported)), c.y.at(lastPercentile(d)), 2.5)
		}
	}
	if numbered {
		c.lineNumbers(ends, c.height+high)
	}
	c.height += high
	return c.paint()
}

// alike reports whether two of these lines look the same without colour.
func alike[T any](lines []T, look func(T) figures.Look) bool {
	seen := map[string]bool{}
	for _, l := range lines {
		seen[dash(look(l))] = true
	}
	return len(seen) < len(lines)
}

// lineEnd is where a line ends, and its number.
type lineEnd struct {
	number int
	x, y   float64
}

// lineNumber is the room for a number on the right of a line, and numberGap the distance between two numbers.
const (
	lineNumber = 18
	numberGap  = 10
)

// lineNumbers writes the number of each line at its end, from the highest one down.
func (c *chart) lineNumbers(ends []lineEnd, foot float64) {
	slices.SortStableFunc(ends, func(a, b lineEnd) int { return cmp.Compare(a.y, b.y) })
	y := math.Inf(-1)
	for i, end := range ends {
		left := float64(len(ends) - 1 - i) // below it, which have to fit as well
		y = max(y+numberGap, min(end.y, foot-numberGap*left))
		c.line("axis", end.x+3, end.y, c.right+4, y)
		c.text("", c.right+6, y+4, fmt.Sprint(end.number))
	}
}

// lastPercentile returns the highest percentile that the sample supports and that is not lost.
func lastPercentile(d *samples.Distribution) float64 { return d.Quantile(d.Supported) }

// nines returns the place of a quantile on the axis: 1 for 90%, 2 for 99%.
func nines(p float64) float64 { return -math.Log10(1 - p) }

// steps returns the values from each percentile on, up to the supported one. It merges invisible steps.
func steps(d *samples.Distribution) (all [][2]float64) {
	const least = 0.002 // decades
	x, seen := 0.0, int64(0)
	for _, bar := range d.Histogram.Distribution() {
		if bar.Count == 0 {
			continue
		}
		v, ends := float64(max(1, bar.To)), float64(bar.To) >= lastPercentile(d)
		if len(all) == 0 || ends || math.Log10(v/all[len(all)-1][1]) > least {
			all = append(all, [2]float64{x, v})
		}
		if ends {
			return append(all, [2]float64{nines(d.Supported), v})
		}
		seen += bar.Count
		x = nines(min(d.Supported, float64(seen)/float64(d.Size())))
	}
	return all
}

// Ranges shows a row per cell, from the shortest to the longest, with percentiles as far as the sample
// supports them.
func Ranges(s *figures.Summary, m metric.Metric, l Labels) []byte {
	c := newChart(l)
	c.key("min to max", 18, func(x0, x1, y float64) { c.whisker("whisker", x0, x1, y) })
	c.key("P50 to P99", 18, func(x0, x1, y float64) { c.mark(`<path d="M%g,%gh18v8h-18z" />`, x0, y-4) })
	c.key("P50 (written below)", 6, func(x0, _, y float64) { c.line("thick", x0+3, y-6, x0+3, y+6) })
	c.key("mean", 8, func(x0, _, y float64) { c.diamond(x0+4, y) })
	c.key("P99.9 (written above)", 8, func(x0, _, y float64) { c.triangle(x0+4, y-3) })
	cells := s.Sampled(m)
	c.levelKeys(s, cells)
	lo, hi := math.Inf(1), 0.0
	for _, cell := range cells {
		d := cell.Figure(m).Merged
		lo, hi = min(lo, shortest(d)), max(hi, d.Max())
	}
	hi = max(hi, 2*lo)
	c.left, c.right = c.left+46, c.right-46 // for the figures at the ends
	c.x = scale{lo: lo, hi: hi, log: true}
	c.axes(float64(len(cells))*(rowName+2*rangeLabel+rowBar+rowGap), m.Axis()+" (logarithmic)",
		logTicks(lo, hi, m.Unit.Tick), nil)
	for _, cell := range cells {
		d := cell.Figure(m).Merged
		c.text("name", margin, c.height+rowName-4, cell.Label())
		sample := fmt.Sprintf("%s samples in %s", format.Count(d.N()), format.Seconds(d.Window))
		c.text("faint end", c.right+46, c.height+rowName-4, sample)
		c.rangeRow(cell, cell.Figure(m), m.Unit, c.height+rowName+rangeLabel+rowBar/2.0)
		c.height += rowName + 2*rangeLabel + rowBar + rowGap
	}
	return c.paint()
}

func (c *chart) rangeRow(cell figures.Cell, f figures.Figure, u format.Unit, y float64) {
	d, plain := f.Merged, func(v float64) string { return f.Bounded(u.Plain(v)) }
	c.whisker(cellClass(cell.Look)+" whisker", c.x.at(shortest(d)), c.x.at(d.Max()), y)
	known := func(p float64) float64 { return map[bool]float64{true: d.Quantile(p)}[p <= d.Supported] }
	p50, p99, tail := known(0.5), known(0.99), known(0.999)
	if p99 > 0 {
		c.box(cellClass(cell.Look), c.x.at(p50), c.x.at(p99), y, 10)
	}
	c.text("end", c.x.at(shortest(d))-5, y+4, plain(float64(d.Histogram.Min())))
	c.text("", c.x.at(d.Max())+5, y+4, plain(d.Max()))
	if p50 > 0 {
		c.line("thick", c.x.at(p50), y-6, c.x.at(p50), y+6)
		c.text("middle", c.x.at(p50), y+19, plain(p50))
	}
	c.diamond(c.x.at(max(1, d.Histogram.Mean())), y)
	if tail > 0 {
		c.triangle(c.x.at(tail), y-8)
		c.text("middle", c.x.at(tail), y-11, plain(tail))
	}
}
