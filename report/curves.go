package report

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// curve is a cell's merged histogram.
type curve struct {
	cell Cell
	*Distribution
}

// curves are the cells that have samples, and the range of their values in microseconds.
func (s *Summary) curves(name string, quantile func(*Distribution) float64) (all []curve, lo, hi float64) {
	lo, hi = math.Inf(1), 0
	for _, c := range s.Cells {
		d := c.Figures[name].RTT
		if d.N() == 0 {
			continue
		}
		all = append(all, curve{c, d})
		lo = min(lo, max(1, float64(d.Histogram.Min()))/1e3)
		hi = max(hi, quantile(d)/1e3)
	}
	return all, lo, hi
}

// percentiles is a plotter: latency over the percentile, both logarithmic.
type percentiles struct {
	curves []curve
	first  string // path of the baseline
}

// nines is the place of a quantile on the axis: 0 for none, 1 for 90%, 2 for 99%.
func nines(p float64) float64 { return -math.Log10(1 - p) }

// percentilesChart shows the distributions up to the highest percentile that each sample supports.
func (s *Summary) percentilesChart(name, title, hint string) frame {
	f := newFrame(title, hint, 400)
	f.right = 178
	all, lo, hi := s.curves(name, func(d *Distribution) float64 { return d.Quantile(d.Supported) })
	p := f.plot
	p.X.Label.Text = "percentile (logarithmic towards 100)"
	f.unit = "round trip, µs (logarithmic)"
	last := 1.0
	for _, c := range all {
		last = max(last, nines(c.Supported))
	}
	p.X.Min, p.X.Max = 0, last+0.08
	ticks := plot.ConstantTicks{{Value: 0, Label: "0"}}
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999} {
		if nines(q) < last+0.01 {
			ticks = append(ticks, plot.Tick{Value: nines(q), Label: pname(q)[1:]})
		}
	}
	p.X.Tick.Marker = ticks
	p.Y.Min, p.Y.Max = logRange(lo, hi)
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = logTicks(p.Y.Min, p.Y.Max, tickText)
	first := ""
	if base := s.cell(s.Baseline); base != nil {
		first = base.Path
	}
	p.Add(percentiles{all, first})
	return f
}

// steps are the corners of the curve up to the supported percentile, and end at its value. Steps too
// small to see are merged.
func (c curve) steps() [][2]float64 {
	const least = 0.002 // decades
	var corners [][2]float64
	x, y, seen := 0.0, math.NaN(), int64(0)
	last := c.Quantile(c.Supported)
	for _, bar := range c.Histogram.Distribution() {
		if bar.Count == 0 {
			continue
		}
		v := float64(max(1, bar.To)) / 1e3
		ends := float64(bar.To) >= last
		if math.IsNaN(y) || ends || math.Log10(v/y) > least {
			if !math.IsNaN(y) {
				corners = append(corners, [2]float64{x, y})
			}
			corners = append(corners, [2]float64{x, v})
			y = v
		}
		if ends {
			return append(corners, [2]float64{nines(c.Supported), v})
		}
		seen += bar.Count
		x = nines(min(c.Supported, float64(seen)/float64(c.Histogram.TotalCount())))
	}
	return corners
}

// Plot implements plot.Plotter.
func (p percentiles) Plot(c draw.Canvas, on *plot.Plot) {
	x, y := on.Transforms(&c)
	grid(c, on, x, y)
	type end struct {
		curve
		style draw.LineStyle
		y     vg.Length
	}
	var ends []end
	for _, cv := range p.curves {
		style := cv.cell.line(p.first)
		corners := cv.steps()
		if len(corners) == 0 || cv.Supported == 0 {
			continue
		}
		var pts []vg.Point
		for _, at := range corners {
			pts = append(pts, vg.Point{X: x(at[0]), Y: y(at[1])})
		}
		c.StrokeLines(style, pts)
		last := pts[len(pts)-1]
		dot(c, last.X, last.Y, 2.5, style.Color, thin(ink(), 0.5))
		ends = append(ends, end{cv, style, last.Y})
	}
	slices.SortStableFunc(ends, func(a, b end) int { return cmp.Compare(b.y, a.y) })
	var at []vg.Length
	for _, e := range ends {
		at = append(at, e.y)
	}
	spreadOut(at, 24, c.Min.Y+12, c.Max.Y-6)
	for i, e := range ends {
		left := c.Max.X + 10
		c.StrokeLine2(e.style, left, at[i], left+32, at[i])
		s := style(8.5, ink(), text.XLeft, text.YCenter)
		small := style(7.5, faint(), text.XLeft, text.YCenter)
		d := s.FontExtents().Descent
		c.FillText(s, vg.Point{X: left + 38, Y: at[i] + 4 + d}, e.cell.Label())
		c.FillText(small, vg.Point{X: left + 38, Y: at[i] - 5.5 + d},
			fmt.Sprintf("to %s; %s samples", pname(e.Supported), count(e.N())))
	}
}

// spreadOut moves descending positions apart until they are a gap from each other, within lo to hi.
func spreadOut(at []vg.Length, gap, lo, hi vg.Length) {
	if n := len(at); n > 1 {
		gap = min(gap, (hi-lo)/vg.Length(n-1))
	}
	for i := range at {
		limit := hi - gap*vg.Length(i)
		if i > 0 {
			limit = at[i-1] - gap
		}
		at[i] = min(at[i], limit)
	}
	for i := len(at) - 1; i >= 0; i-- {
		at[i] = max(at[i], lo+gap*vg.Length(len(at)-1-i))
	}
}

func grid(c draw.Canvas, on *plot.Plot, x, y func(float64) vg.Length) {
	for _, t := range on.X.Tick.Marker.Ticks(on.X.Min, on.X.Max) {
		if t.Label != "" {
			c.StrokeLine2(thin(rule(), 0.5), x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
		}
	}
	for _, t := range on.Y.Tick.Marker.Ticks(on.Y.Min, on.Y.Max) {
		if t.Label != "" {
			c.StrokeLine2(thin(rule(), 0.5), c.Min.X, y(t.Value), c.Max.X, y(t.Value))
		}
	}
}

// ranges is a plotter: a row a cell, from the shortest to the longest round trip.
type ranges struct{ curves []curve }

// rangesChart is Figure 6 of the paper, with percentiles as far as the sample supports them.
func (s *Summary) rangesChart(name, title, hint string) frame {
	all, lo, hi := s.curves(name, (*Distribution).Max)
	f := newFrame(title, hint, vg.Length(110+40*len(all)))
	f.left = 132
	p := f.plot
	p.X.Label.Text = "round trip, µs (logarithmic)"
	p.X.Scale = plot.LogScale{}
	decades := math.Log10(hi/lo) + 0.3
	p.X.Min, p.X.Max = lo*math.Pow(10, -0.08*decades), hi*math.Pow(10, 0.1*decades) // room for the figures
	p.X.Tick.Marker = logTicks(p.X.Min, p.X.Max, tickText)
	p.Y.Min, p.Y.Max = -0.5, float64(len(all))-0.5
	p.Y.Tick.Length = 0
	p.Y.Width = 0
	p.Y.Tick.Marker = plot.ConstantTicks{}
	p.Add(ranges{all})
	f.keys = rangeKeys()
	return f
}

func rangeKeys() []key {
	return []key{
		{"min to max", func(c draw.Canvas) {
			c.StrokeLine2(thin(ink(), 1), c.Min.X, c.Center().Y, c.Max.X, c.Center().Y)
		}},
		{"P50 to P99", func(c draw.Canvas) {
			box(c, c.Min.X, c.Center().Y-4, c.Max.X, c.Center().Y+4, placementColor("lane"), thin(ink(), 0.5))
		}},
		{"P50 (written below)", func(c draw.Canvas) {
			c.StrokeLine2(thin(ink(), 2), c.Center().X, c.Min.Y-1, c.Center().X, c.Max.Y+1)
		}},
		{"mean", func(c draw.Canvas) { diamond(c, c.Center().X, c.Center().Y) }},
		{"P99.9 (written above)", func(c draw.Canvas) { tailMark(c, c.Center().X, c.Center().Y-4) }},
	}
}

func diamond(c draw.Canvas, x, y vg.Length) {
	pts := []vg.Point{{X: x - 4, Y: y}, {X: x, Y: y + 4}, {X: x + 4, Y: y}, {X: x, Y: y - 4}}
	c.FillPolygon(color.White, pts)
	c.StrokeLines(thin(ink(), 0.9), append(pts, pts[0]))
}

func tailMark(c draw.Canvas, x, y vg.Length) {
	c.FillPolygon(ink(), []vg.Point{{X: x - 3.5, Y: y + 7}, {X: x + 3.5, Y: y + 7}, {X: x, Y: y}})
}

// Plot implements plot.Plotter.
func (r ranges) Plot(c draw.Canvas, on *plot.Plot) {
	x, y := on.Transforms(&c)
	for _, t := range on.X.Tick.Marker.Ticks(on.X.Min, on.X.Max) {
		if t.Label != "" {
			c.StrokeLine2(thin(rule(), 0.5), x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
		}
	}
	for i, cv := range r.curves {
		row := y(float64(len(r.curves) - 1 - i))
		name, small := style(8.5, ink(), text.XLeft, text.YCenter), style(7.5, faint(), text.XLeft, text.YCenter)
		left, d := c.Min.X-132, name.FontExtents().Descent
		c.FillText(name, vg.Point{X: left, Y: row + 4 + d}, cv.cell.Label())
		c.FillText(small, vg.Point{X: left, Y: row - 5.5 + d},
			fmt.Sprintf("%s samples in %s", count(cv.N()), seconds(cv.Window)))
		drawRange(c, cv, x, row)
	}
}

func drawRange(c draw.Canvas, cv curve, x func(float64) vg.Length, y vg.Length) {
	at := func(ns float64) vg.Length { return x(max(1, ns) / 1e3) }
	colour := placementColor(cv.cell.Placement)
	from, to := at(float64(cv.Histogram.Min())), at(cv.Max())
	c.StrokeLine2(thin(colour, 1.2), from, y, to, y)
	for _, end := range []vg.Length{from, to} {
		c.StrokeLine2(thin(colour, 1.2), end, y-4, end, y+4)
	}
	p50, p99, tail := cv.Quantile(0.5), cv.Quantile(0.99), cv.Quantile(0.999)
	if p99 > 0 {
		box(c, at(p50), y-5, at(p99), y+5, cv.cell.fill(), thin(colour, 1))
	}
	left := style(8, ink(), text.XRight, text.YCenter)
	right := style(8, ink(), text.XLeft, text.YCenter)
	middle := style(8, ink(), text.XCenter, text.YCenter)
	label(c, left, from-5, y, micro(float64(cv.Histogram.Min())))
	label(c, right, to+5, y, micro(cv.Max()))
	if p50 > 0 {
		c.StrokeLine2(thin(ink(), 2), at(p50), y-6, at(p50), y+6)
		label(c, middle, at(p50), y-13, micro(p50))
	}
	diamond(c, at(cv.Histogram.Mean()), y)
	if tail > 0 {
		tailMark(c, at(tail), y)
		label(c, middle, at(tail), y+13, micro(tail))
	}
}
