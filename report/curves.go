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
	all, lo, hi := s.curves(name, func(d *Distribution) float64 { return d.Quantile(d.Supported) })
	f := newFrame(title, hint, 290)
	f.right = 8
	p := f.plot
	p.X.Label.Text = "percentile (logarithmic towards 100)"
	f.unit = "round trip (logarithmic)"
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
	p.Y.Tick.Marker = logTicks(p.Y.Min, p.Y.Max, durationTick)
	first := ""
	if base := s.cell(s.Baseline); base != nil {
		first = base.Path
	}
	p.Add(percentiles{all, first})
	slices.SortStableFunc(all, func(a, b curve) int { return cmp.Compare(b.Quantile(b.Supported), a.Quantile(a.Supported)) })
	for _, c := range all {
		f.keys = append(f.keys, key{
			text: fmt.Sprintf("%s, to %s of %s samples", c.cell.Label(), pname(c.Supported), count(c.N())),
			draw: func(canvas draw.Canvas) {
				y := canvas.Center().Y
				canvas.StrokeLine2(c.cell.line(first), canvas.Min.X, y, canvas.Max.X, y)
			}, swatch: 34})
	}
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

// Heights of what a row of it has below the name, and what the figures at its ends need.
const (
	rangeLabel = 15
	rangeBar   = 13
	rangeEnds  = 46
)

// rangesChart is Figure 6 of the paper, with percentiles as far as the sample supports them.
func (s *Summary) rangesChart(name, title, hint string) frame {
	all, lo, hi := s.curves(name, (*Distribution).Max)
	const row = rowName + 2*rangeLabel + rangeBar + rowGap
	f := newFrame(title, hint, vg.Length(len(all))*row+34)
	f.left, f.right = rangeEnds, rangeEnds
	p := f.plot
	p.X.Label.Text = "round trip (logarithmic)"
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = lo, max(hi, 2*lo)
	p.X.Tick.Marker = logTicks(p.X.Min, p.X.Max, durationTick)
	p.Y.Min, p.Y.Max = 0, float64(len(all))
	p.HideY()
	p.Add(ranges{all})
	f.keys = rangeKeys()
	var cells []Cell
	for _, c := range all {
		cells = append(cells, c.cell)
	}
	f.keys = append(f.keys, placementKeys(cells)...)
	return f
}

func rangeKeys() []key {
	return []key{
		{text: "min to max", draw: func(c draw.Canvas) {
			c.StrokeLine2(thin(ink(), 1), c.Min.X, c.Center().Y, c.Max.X, c.Center().Y)
		}},
		{text: "P50 to P99", draw: func(c draw.Canvas) {
			box(c, c.Min.X, c.Center().Y-4, c.Max.X, c.Center().Y+4, nil, thin(ink(), 1))
		}},
		{text: "P50 (written below)", draw: func(c draw.Canvas) {
			c.StrokeLine2(thin(ink(), 2), c.Center().X, c.Min.Y-1, c.Center().X, c.Max.Y+1)
		}, swatch: 6},
		{text: "mean", draw: func(c draw.Canvas) { diamond(c, c.Center().X, c.Center().Y) }, swatch: 8},
		{text: "P99.9 (written above)", draw: func(c draw.Canvas) { tailMark(c, c.Center().X, c.Center().Y-4) }, swatch: 8},
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
		top := y(float64(len(r.curves) - i))
		label(c, style(bodyText, ink(), text.XLeft, text.YCenter), c.Min.X-rangeEnds, top-rowName/2, cv.cell.Label())
		label(c, style(smallText, faint(), text.XRight, text.YCenter), c.Max.X+rangeEnds, top-rowName/2,
			fmt.Sprintf("%s samples in %s", count(cv.N()), seconds(cv.Window)))
		drawRange(c, cv, x, top-rowName-rangeLabel-rangeBar/2)
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
	label(c, style(smallText, ink(), text.XRight, text.YCenter), from-5, y, micro(float64(cv.Histogram.Min())))
	label(c, style(smallText, ink(), text.XLeft, text.YCenter), to+5, y, micro(cv.Max()))
	middle := style(smallText, ink(), text.XCenter, text.YCenter)
	if p50 > 0 {
		c.StrokeLine2(thin(ink(), 2), at(p50), y-6, at(p50), y+6)
		label(c, middle, at(p50), y-15, micro(p50))
	}
	diamond(c, at(cv.Histogram.Mean()), y)
	if tail > 0 {
		tailMark(c, at(tail), y)
		label(c, middle, at(tail), y+14, micro(tail))
	}
}
