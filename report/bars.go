package report

import (
	"fmt"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bars is a plotter: one bar a cell in percent of the baseline, with what is known around it, and
// the paper's bar beside it.
type bars struct {
	cells []Cell
	name  string // of the figure
	value func(Figure) string
	paper string // its metric, "" for no paper bars
	log   bool
	top   float64 // of the axis
}

// barsChart shows a figure in percent of the baseline: Figures 3 and 5 of the paper.
func (s *Summary) barsChart(name, title, hint, paper string, value func(Figure) string) frame {
	f := newFrame(title, hint, 400)
	b := bars{cells: s.Cells, name: name, value: value, paper: paper}
	lo, hi := b.extent()
	b.log = hi > 10 || lo < 0.02
	p := f.plot
	p.X.Min, p.X.Max = -0.5, float64(len(s.Cells))-0.5
	p.X.Tick.Length = 0
	p.X.Tick.Label.YAlign = text.YTop
	var ticks plot.ConstantTicks
	for i, c := range s.Cells {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: stacked(c)})
	}
	p.X.Tick.Marker = ticks
	f.unit = "% of " + s.Baseline
	if b.log {
		f.unit += " (logarithmic)"
		p.Y.Scale = plot.LogScale{}
		p.Y.Min, b.top = logRange(min(lo, 1)*0.8, hi)
		p.Y.Max = b.top * math.Pow(b.top/p.Y.Min, 0.14)
		p.Y.Tick.Marker = logTicks(p.Y.Min, b.top, func(v float64) string { return tickText(100*v) + "%" })
	} else {
		b.top = hi
		p.Y.Min, p.Y.Max = 0, hi*1.14
		p.Y.Tick.Marker = linearTicks(hi * 1.05)
	}
	p.Add(b)
	f.keys = b.keys(s)
	return f
}

// stacked is a cell's name in lines that fit below a bar.
func stacked(c Cell) string {
	first := c.Noise + "-" + c.Placement + "-"
	return c.Noise + "\n" + c.Placement + "\n" + strings.TrimPrefix(c.Label(), first)
}

// extent is the range of all that is to be drawn, with the line at 100%.
func (b bars) extent() (lo, hi float64) {
	lo, hi = 1, 1
	take := func(v float64) {
		if v > 0 && !math.IsInf(v, 0) {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	for _, c := range b.cells {
		r := c.Figures[b.name].Ratio
		take(r.Estimate)
		from, to, _ := r.Spread()
		take(from)
		take(to)
		take(r.Low)
		take(r.High)
		if p, ok := c.paper(b.paper); ok {
			take(p.Percent / 100)
		}
	}
	return lo, hi
}

func linearTicks(hi float64) plot.ConstantTicks {
	step := math.Pow(10, math.Floor(math.Log10(hi)))
	for _, m := range []float64{0.1, 0.2, 0.25, 0.5, 1} {
		if hi/(step*m) <= 8 {
			step *= m
			break
		}
	}
	var ticks plot.ConstantTicks
	for i := 0; float64(i)*step <= hi; i++ {
		v := float64(i) * step
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%g%%", math.Round(1e4*v)/100)})
	}
	return ticks
}

func (b bars) keys(s *Summary) []key {
	_, note := s.spreadHead()
	whisker := "95% interval"
	if note != "" {
		whisker = "range of the blocks"
		if strings.HasPrefix(note, "[") {
			whisker = "95% interval, or range of few blocks"
		}
	}
	keys := []key{
		{"measured: Hodges–Lehmann estimate", func(c draw.Canvas) {
			for i, p := range []string{"floating", "pinned", "lane"} {
				left := c.Min.X + 7*vg.Length(i)
				box(c, left, c.Min.Y, left+6, c.Max.Y, placementColor(p), thin(placementColor(p), 0.5))
			}
		}},
		{whisker, func(c draw.Canvas) { whiskerMark(c, c.Center().X, c.Min.Y, c.Max.Y) }},
		{"one block", func(c draw.Canvas) { blockDot(c, c.Center().X, c.Center().Y) }},
	}
	for _, c := range b.cells {
		if _, ok := c.paper(b.paper); ok {
			return append(keys, key{"the paper's figure", func(c draw.Canvas) {
				hatched(c, c.Min.X, c.Min.Y, c.Max.X, c.Max.Y)
			}})
		}
	}
	return keys
}

func whiskerMark(c draw.Canvas, x, from, to vg.Length) {
	for _, s := range []draw.LineStyle{thin(color.White, 3), thin(ink(), 1.3)} {
		c.StrokeLine2(s, x, from, x, to)
		c.StrokeLine2(s, x-4, from, x+4, from)
		c.StrokeLine2(s, x-4, to, x+4, to)
	}
}

func blockDot(c draw.Canvas, x, y vg.Length) { dot(c, x, y, 2, color.White, thin(ink(), 0.8)) }

// Plot implements plot.Plotter.
func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if t.Label != "" {
			c.StrokeLine2(thin(rule(), 0.5), c.Min.X, y(t.Value), c.Max.X, y(t.Value))
		}
	}
	foot := y(p.Y.Min)
	if b.log {
		foot = y(1)
	}
	width := min(x(1)-x(0), 150)
	for i, cell := range b.cells {
		middle := x(float64(i))
		if paper, ok := cell.paper(b.paper); ok {
			b.drawPaper(c, published(paper), middle+0.16*width, foot, middle+0.42*width, y(paper.Percent/100))
			middle -= 0.14 * width
		}
		b.drawCell(c, cell, middle-0.28*width, middle+0.28*width, foot, y)
	}
	line := draw.LineStyle{Color: ink(), Width: 1, Dashes: []vg.Length{4, 3}}
	c.StrokeLine2(line, c.Min.X, y(1), c.Max.X, y(1))
}

// drawPaper writes the figure into the bar, upwards, where it cannot meet another label.
func (b bars) drawPaper(c draw.Canvas, figure string, x0, foot, x1, top vg.Length) {
	hatched(c, x0, foot, x1, top)
	s := style(8, ink(), text.XLeft, text.YCenter)
	txt := "paper " + figure
	s.Rotation = math.Pi / 2
	at := vg.Point{X: (x0 + x1) / 2, Y: foot + 4}
	if b.log { // a bar may be flat or hang
		at.Y = max(foot, top) + 4
	}
	w, h := s.Width(txt), s.Height(txt)
	c.FillPolygon(color.White, corners(at.X-h/2, at.Y-2, at.X+h/2, at.Y+w+2))
	c.FillText(s, vg.Point{X: at.X - s.FontExtents().Descent, Y: at.Y}, txt)
}

func (b bars) drawCell(c draw.Canvas, cell Cell, left, right, foot vg.Length, y func(float64) vg.Length) {
	f, ok := cell.Figures[b.name]
	middle := (left + right) / 2
	remark := style(8, faint(), text.XCenter, text.YBottom)
	switch {
	case !ok || len(f.Blocks) == 0:
		label(c, remark, middle, foot+4, strings.ReplaceAll(cell.missing(b.name), " ", "\n"))
		return
	case !f.Ratio.Known():
		label(c, remark, middle, foot+4, "not\ncompared\n"+b.value(f))
		return
	}
	box(c, left, foot, right, y(f.Ratio.Estimate), cell.fill(), thin(placementColor(cell.Placement), 1))
	top := max(y(f.Ratio.Estimate), foot)
	if !cell.Baseline {
		top = max(top, drawBlocks(c, f.Ratio, left, right, y))
	}
	s := style(8.5, ink(), text.XCenter, text.YBottom)
	if len(b.cells) > 8 {
		s.Font.Size = 7
	}
	txt := percent(f.Ratio.Estimate) + "\n" + b.value(f)
	if line := y(1); top < line && top+6+s.Height(txt) > line {
		top = line // rather than across it
	}
	label(c, s, middle, top+4, txt)
}

// drawBlocks draws the whisker and to its right the blocks in their order, so that a drift shows. It
// returns how high they reach.
func drawBlocks(c draw.Canvas, r Comparison, left, right vg.Length, y func(float64) vg.Length) vg.Length {
	width, top := right-left, c.Min.Y
	if lo, hi, _ := r.Spread(); lo > 0 && !math.IsInf(hi, 0) && len(r.Blocks) > 1 {
		whiskerMark(c, left+0.13*width, y(lo), y(hi))
		top = y(hi)
	}
	for k, b := range r.Blocks {
		blockDot(c, left+width*(0.26+0.7*vg.Length(float64(k)+0.5)/vg.Length(len(r.Blocks))), y(b.Ratio))
		top = max(top, y(b.Ratio))
	}
	return top
}
