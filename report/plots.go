package report

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"isolane.dev/isolane/stats"
)

// Heights of what a row has, from its top. The vertical axis counts them in points, downward from 0.
const (
	rowName    = 14
	rowBar     = 13
	rowBlocks  = 9
	rowPaper   = 13
	rowGap     = 8
	rangeLabel = 15
	axisRoom   = 34 // below the rows
)

// row writes the head of a row: the cell's name, and what is on its right.
func (c *chart) row(y float64, cell Cell, right string, s draw.TextStyle) {
	c.Add(label{x: c.X.Min, y: y - rowName/2, dx: -c.left, style: style(bodyText, ink(), draw.XLeft), text: cell.Label()},
		label{x: c.X.Max, y: y - rowName/2, dx: c.right, style: s, text: right})
}

// bars shows a metric in percent of the baseline: for each cell a row with its bar, the whisker, its blocks,
// and the paper's bar.
func (s *Summary) bars(m Metric, title, hint string) *chart {
	unused := s.unused()
	cells := slices.DeleteFunc(slices.Clone(s.Cells), func(c Cell) bool { return slices.Contains(unused, c.Label()) })
	lo, hi := extent(cells, m)
	c := newChart(title, hint)
	foot := 0.0
	c.X.Label.Text = "% of " + s.Baseline
	if hi > 10 || lo < 0.02 {
		foot = 1
		c.X.Label.Text += " (logarithmic)"
		lo, hi = outward(min(lo, 1)*0.8, hi*1.1)
		logAxis(&c.X, lo, hi, func(v float64) string { return tickText(100*v) + "%" })
	} else {
		lo, hi = 0, hi*1.1 // room for a figure behind the longest bar
		c.X.Tick.Marker = percents(hi)
	}
	c.X.Min, c.X.Max = lo, hi
	y, published := 0.0, false
	var rows []func()
	for _, cell := range cells {
		top, paper := y, cell.published(m)
		rows = append(rows, func() { c.barRow(cell, m, top, foot) })
		y -= rowName + rowBar + rowBlocks + rowGap
		if paper != nil {
			y, published = y-rowPaper, true
		}
	}
	c.height = vg.Length(-y) + axisRoom
	full := draw.LineStyle{Color: ink(), Width: 1, Dashes: []vg.Length{4, 3}}
	c.Add(&plotter.Line{XYs: plotter.XYs{{X: 1, Y: y}, {X: 1, Y: 0}}, LineStyle: full})
	for _, draw := range rows {
		draw()
	}
	c.X.Min, c.X.Max, c.Y.Min, c.Y.Max = lo, hi, y, 0 // and not what the plotters made of them
	c.HideY()
	c.placementKeys(cells)
	c.key(s.whiskerKey(), 18, newWhisker(0, 0, 0, 8, thin(ink(), 1.3)))
	c.key("one block", 6, mark(0, 0, ring{}, 2.2, ink()))
	if published {
		c.key("the paper's figure", 18, bar(0, 0, 0, 0, color.White, paperEdge()))
	}
	return c
}

// paperEdge is the outline of somebody else's figure.
func paperEdge() draw.LineStyle {
	return draw.LineStyle{Color: faint(), Width: 1, Dashes: []vg.Length{3, 2}}
}

func (c *chart) barRow(cell Cell, m Metric, top, foot float64) {
	f := cell.Figure(m)
	at := top - rowName - rowBar/2.0
	remark := style(bodyText, faint(), draw.XRight)
	switch {
	case len(f.Blocks) == 0:
		c.row(top, cell, cell.missing(m), remark)
	case !f.Ratio.Known():
		c.row(top, cell, "not compared, "+m.shown(f), remark)
	default:
		c.row(top, cell, percent(f.Ratio.Estimate)+", "+m.shown(f), bold(style(bodyText, ink(), draw.XRight)))
		c.Add(bar(foot, f.Ratio.Estimate, at, rowBar-2, cell.fill(), thin(cell.colour(), 1)))
		if !cell.Baseline {
			c.addBlocks(f.Ratio, at)
		}
	}
	if p := cell.published(m); p != nil {
		at -= rowBar/2.0 + rowBlocks + rowPaper/2.0
		c.Add(bar(foot, p.Percent/100, at, rowPaper-4, color.White, paperEdge()),
			label{x: max(foot, p.Percent/100), y: at, dx: 4, style: style(smallText, faint(), draw.XLeft), text: quoted(p)})
	}
}

// addBlocks draws the whisker on a bar, and below the bar the blocks, the first at the top.
func (c *chart) addBlocks(r Comparison, at float64) {
	if lo, hi, _ := r.Spread(); lo > 0 && !math.IsInf(hi, 0) && len(r.Blocks) > 1 {
		c.Add(newWhisker(lo, hi, at, 8, thin(color.White, 3)), newWhisker(lo, hi, at, 8, thin(ink(), 1.3)))
	}
	for k, b := range r.Blocks {
		y := at - rowBar/2.0 - 2 - (rowBlocks-4)*(float64(k)+0.5)/float64(len(r.Blocks))
		c.Add(mark(b.Value, y, ring{}, 2.2, ink()))
	}
}

// extent is the range of all that is to be drawn, with the line at 100%.
func extent(cells []Cell, m Metric) (lo, hi float64) {
	all := []float64{1}
	for _, c := range cells {
		r := c.Figure(m).Ratio
		from, to, _ := r.Spread()
		all = append(all, r.Estimate, from, to)
		for _, b := range r.Blocks {
			all = append(all, b.Value)
		}
		if p := c.published(m); p != nil {
			all = append(all, p.Percent/100)
		}
	}
	all = slices.DeleteFunc(all, func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) })
	return slices.Min(all), slices.Max(all)
}

func (s *Summary) whiskerKey() string {
	switch head, note := s.spreadHead(); {
	case !strings.HasPrefix(head, "95%"):
		return "range of the blocks"
	case note != "":
		return "95% interval, or range of few blocks"
	default:
		return head
	}
}

// merged are the cells that have samples.
func (s *Summary) merged(m Metric) []Cell {
	return slices.DeleteFunc(slices.Clone(s.Cells), func(c Cell) bool { return c.Figure(m).Merged.N() == 0 })
}

// shortest is at least a nanosecond, so that a logarithm can show it.
func (d *Distribution) shortest() float64 { return max(1, float64(d.Histogram.Min())) }

// percentiles shows the distributions up to the highest percentile that each sample supports.
func (s *Summary) percentiles(m Metric, title, hint string) *chart {
	c := newChart(title, hint)
	c.height = 290
	c.unit = strings.ToLower(m.title) + " (logarithmic)"
	c.X.Label.Text = "percentile (logarithmic towards 100)"
	first := ""
	if base := s.cell(s.Baseline); base != nil {
		first = base.Path
	}
	end := func(cell Cell) (float64, *Distribution) {
		d := cell.Figure(m).Merged
		return d.Quantile(d.Supported), d
	}
	lo, hi, last := math.Inf(1), 0.0, 1.0
	cells := s.merged(m)
	for _, cell := range cells {
		longest, d := end(cell)
		lo, hi, last = min(lo, d.shortest()), max(hi, longest), max(last, nines(d.Supported))
		if d.Supported > 0 {
			line := cell.line(first)
			c.Add(&plotter.Line{XYs: d.steps(), StepStyle: plotter.PostStep, LineStyle: line},
				mark(nines(d.Supported), longest, draw.CircleGlyph{}, 2.5, line.Color))
		}
	}
	ticks := plot.ConstantTicks{{Value: 0, Label: "0"}}
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999} {
		if nines(q) < last+0.01 {
			ticks = append(ticks, plot.Tick{Value: nines(q), Label: pname(q)[1:]})
		}
	}
	c.X.Min, c.X.Max, c.X.Tick.Marker = 0, last+0.08, ticks
	lo, hi = outward(lo, hi)
	logAxis(&c.Y, lo, hi, m.unit.tick)
	slices.SortStableFunc(cells, func(a, b Cell) int {
		x, _ := end(a)
		y, _ := end(b)
		return cmp.Compare(y, x)
	})
	for _, cell := range cells {
		_, d := end(cell)
		c.key(fmt.Sprintf("%s, to %s of %s samples", cell.Label(), pname(d.Supported), count(d.N())), 34,
			&plotter.Line{LineStyle: cell.line(first)})
	}
	return c
}

// nines is the place of a quantile on the axis: 0 for none, 1 for 90%, 2 for 99%.
func nines(p float64) float64 { return -math.Log10(1 - p) }

// steps are the values from each percentile on, up to the supported one. Steps too small to see are merged.
func (d *Distribution) steps() plotter.XYs {
	const least = 0.002 // decades
	var all plotter.XYs
	x, seen, last := 0.0, int64(0), d.Quantile(d.Supported)
	for _, bar := range d.Histogram.Distribution() {
		if bar.Count == 0 {
			continue
		}
		v, ends := float64(max(1, bar.To)), float64(bar.To) >= last
		if len(all) == 0 || ends || math.Log10(v/all[len(all)-1].Y) > least {
			all = append(all, plotter.XY{X: x, Y: v})
		}
		if ends {
			return append(all, plotter.XY{X: nines(d.Supported), Y: v})
		}
		seen += bar.Count
		x = nines(min(d.Supported, float64(seen)/float64(d.Histogram.TotalCount())))
	}
	return all
}

// ranges shows a row a cell, from the shortest to the longest, with percentiles as far as the sample supports
// them.
func (s *Summary) ranges(m Metric, title, hint string) *chart {
	c := newChart(title, hint)
	c.left, c.right = 46, 46 // for the figures at the ends
	c.X.Label.Text = strings.ToLower(m.title) + " (logarithmic)"
	cells := s.merged(m)
	lo, hi := math.Inf(1), 0.0
	for _, cell := range cells {
		d := cell.Figure(m).Merged
		lo, hi = min(lo, d.shortest()), max(hi, d.Max())
	}
	lo, hi = lo*0.999, max(hi, 2*lo)*1.001 // what is exactly at an end may be clipped
	c.X.Min, c.X.Max = lo, hi
	y := 0.0
	for _, cell := range cells {
		d := cell.Figure(m).Merged
		c.row(y, cell, fmt.Sprintf("%s samples in %s", count(d.N()), seconds(d.Window)),
			style(smallText, faint(), draw.XRight))
		c.rangeRow(cell, m, y-rowName-rangeLabel-rowBar/2.0)
		y -= rowName + 2*rangeLabel + rowBar + rowGap
	}
	c.height = vg.Length(-y) + axisRoom
	logAxis(&c.X, lo, hi, m.unit.tick)
	c.Y.Min, c.Y.Max = y, 0
	c.HideY()
	c.key("min to max", 18, newWhisker(0, 0, 0, 8, thin(ink(), 1.2)))
	c.key("P50 to P99", 18, bar(0, 0, 0, 0, color.White, thin(ink(), 1)))
	c.key("P50 (written below)", 6, mark(0, 0, stroke{}, 6, ink()))
	c.key("mean", 8, mark(0, 0, ring{}, 3.5, ink()))
	c.key("P99.9 (written above)", 8, mark(0, 0, draw.PyramidGlyph{}, 3.5, ink()))
	c.placementKeys(cells)
	return c
}

func (c *chart) rangeRow(cell Cell, m Metric, y float64) {
	d := cell.Figure(m).Merged
	write := func(x float64, dx, dy vg.Length, align draw.XAlignment, value float64) {
		c.Add(label{x: x, y: y, dx: dx, dy: dy, style: style(smallText, ink(), align), text: m.unit.plain(value)})
	}
	least, most := d.shortest(), d.Max()
	c.Add(newWhisker(least, most, y, 8, thin(cell.colour(), 1.2)))
	p50, p99, tail := d.Quantile(0.5), d.Quantile(0.99), d.Quantile(0.999)
	if p99 > 0 {
		c.Add(bar(p50, p99, y, 10, cell.fill(), thin(cell.colour(), 1)))
	}
	write(least, -5, 0, draw.XRight, float64(d.Histogram.Min()))
	write(most, 5, 0, draw.XLeft, most)
	if p50 > 0 {
		c.Add(mark(p50, y, stroke{}, 6, ink()))
		write(p50, 0, -15, draw.XCenter, p50)
	}
	c.Add(mark(d.Histogram.Mean(), y, ring{}, 3.5, ink()))
	if tail > 0 {
		c.Add(mark(tail, y, draw.PyramidGlyph{}, 3.5, ink()))
		write(tail, 0, 14, draw.XCenter, tail)
	}
}

// direction says which way is better.
func (m Metric) direction() string {
	if m.margin.Goal == stats.LowerIsBetter {
		return "Less is better."
	}
	return "More is better."
}
