package report

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bars is a plotter: for each cell a row with its name and figure, its bar in percent of the baseline with
// the whisker, its blocks, and the paper's bar.
type bars struct {
	cells []Cell
	name  string // of the figure
	value func(Figure) string
	paper string // its metric, "" for no paper bars
	log   bool
}

// Heights of what a row has, from its top.
const (
	rowName   = 14
	rowBar    = 13
	rowBlocks = 9
	rowPaper  = 13
	rowGap    = 8
)

// barsChart shows a figure in percent of the baseline: Figures 3 and 5 of the paper.
func (s *Summary) barsChart(name, title, hint, paper string, value func(Figure) string) frame {
	unused := s.unused()
	cells := slices.DeleteFunc(slices.Clone(s.Cells), func(c Cell) bool { return slices.Contains(unused, c.Label()) })
	b := bars{cells: cells, name: name, value: value, paper: paper}
	rows := vg.Length(0)
	for _, c := range cells {
		rows += b.row(c)
	}
	f := newFrame(title, hint, rows+34)
	lo, hi := b.extent()
	b.log = hi > 10 || lo < 0.02
	p := f.plot
	p.Y.Min, p.Y.Max = 0, float64(rows)
	p.HideY()
	p.X.Label.Text = "% of " + s.Baseline
	if b.log {
		p.X.Label.Text += " (logarithmic)"
		p.X.Scale = plot.LogScale{}
		p.X.Min, p.X.Max = logRange(min(lo, 1)*0.8, hi)
		p.X.Tick.Marker = logTicks(p.X.Min, p.X.Max, func(v float64) string { return tickText(100*v) + "%" })
	} else {
		p.X.Min, p.X.Max = 0, hi*1.05
		p.X.Tick.Marker = linearTicks(hi * 1.05)
	}
	p.Add(b)
	f.right = 14 // half of the last tick's label
	f.keys = b.keys(s)
	return f
}

// row is the height of a cell's.
func (b bars) row(c Cell) vg.Length {
	if _, ok := c.paper(b.paper); ok {
		return rowName + rowBar + rowBlocks + rowPaper + rowGap
	}
	return rowName + rowBar + rowBlocks + rowGap
}

// published says whether a cell has a figure of the paper.
func (b bars) published() bool {
	return slices.ContainsFunc(b.cells, func(c Cell) bool {
		_, ok := c.paper(b.paper)
		return ok
	})
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
	head, note := s.spreadHead()
	whisker := "range of the blocks"
	switch {
	case strings.HasPrefix(note, "["):
		whisker = "95% interval, or range of few blocks"
	case strings.HasPrefix(head, "95%"):
		whisker = head
	}
	keys := placementKeys(b.cells)
	keys = append(keys,
		key{text: whisker, draw: func(c draw.Canvas) { whiskerMark(c, c.Min.X, c.Max.X, c.Center().Y) }},
		key{text: "one block", draw: func(c draw.Canvas) { blockDot(c, c.Center().X, c.Center().Y) }, swatch: 6})
	if b.published() {
		keys = append(keys, key{text: "the paper's figure", draw: func(c draw.Canvas) {
			hatched(c, c.Min.X, c.Min.Y+1, c.Max.X, c.Max.Y-1)
		}})
	}
	return keys
}

// placementKeys explain the hues of the cells that there are, and why some are pale.
func placementKeys(cells []Cell) []key {
	var keys []key
	for _, p := range placements() {
		if slices.ContainsFunc(cells, func(c Cell) bool { return c.Placement == p }) {
			keys = append(keys, key{text: p, swatch: 10, draw: func(c draw.Canvas) {
				box(c, c.Min.X, c.Min.Y, c.Max.X, c.Max.Y, placementColor(p), thin(placementColor(p), 1))
			}})
		}
	}
	if slices.ContainsFunc(cells, func(c Cell) bool { return c.Noise == "quiet" }) {
		keys = append(keys, key{text: "pale: quiet", swatch: 10, draw: func(c draw.Canvas) {
			hue := placementColor("floating")
			box(c, c.Min.X, c.Min.Y, c.Max.X, c.Max.Y, pale(hue), thin(hue, 1))
		}})
	}
	return keys
}

// whiskerMark lies on a bar.
func whiskerMark(c draw.Canvas, from, to, y vg.Length) {
	for _, s := range []draw.LineStyle{thin(color.White, 3), thin(ink(), 1.3)} {
		c.StrokeLine2(s, from, y, to, y)
		c.StrokeLine2(s, from, y-4, from, y+4)
		c.StrokeLine2(s, to, y-4, to, y+4)
	}
}

func blockDot(c draw.Canvas, x, y vg.Length) { dot(c, x, y, 1.8, color.White, thin(ink(), 0.8)) }

// Plot implements plot.Plotter.
func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if t.Label != "" {
			c.StrokeLine2(thin(rule(), 0.5), x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
		}
	}
	line := draw.LineStyle{Color: ink(), Width: 1, Dashes: []vg.Length{4, 3}}
	c.StrokeLine2(line, x(1), c.Min.Y, x(1), c.Max.Y)
	foot := x(p.X.Min)
	if b.log {
		foot = x(1)
	}
	top := p.Y.Max
	for _, cell := range b.cells {
		b.drawCell(c, cell, y(top), foot, x)
		top -= float64(b.row(cell))
	}
}

func (b bars) drawCell(c draw.Canvas, cell Cell, top, foot vg.Length, x func(float64) vg.Length) {
	f, ok := cell.Figures[b.name]
	name := style(bodyText, ink(), text.XLeft, text.YCenter)
	figure := style(bodyText, ink(), text.XRight, text.YCenter)
	figure.Font.Weight = xfont.WeightBold
	remark := style(bodyText, faint(), text.XRight, text.YCenter)
	label(c, name, c.Min.X, top-rowName/2, cell.Label())
	bar := top - rowName - rowBar/2
	switch {
	case !ok || len(f.Blocks) == 0:
		label(c, remark, c.Max.X, top-rowName/2, cell.missing(b.name))
	case !f.Ratio.Known():
		label(c, remark, c.Max.X, top-rowName/2, "not compared, "+b.value(f))
	default:
		label(c, figure, c.Max.X, top-rowName/2, percent(f.Ratio.Estimate)+", "+b.value(f))
		box(c, foot, bar-rowBar/2+1, x(f.Ratio.Estimate), bar+rowBar/2-1, cell.fill(), thin(placementColor(cell.Placement), 1))
		if !cell.Baseline {
			drawBlocks(c, f.Ratio, bar, x)
		}
	}
	if paper, ok := cell.paper(b.paper); ok {
		low := bar - rowBar/2 - rowBlocks
		to := x(paper.Percent / 100)
		hatched(c, min(foot, to), low-rowPaper+2, max(foot, to), low-2)
		label(c, style(smallText, faint(), text.XLeft, text.YCenter), max(foot, to)+4, low-rowPaper/2, published(paper))
	}
}

// drawBlocks draws the whisker, and below the bar the blocks, the first at the top.
func drawBlocks(c draw.Canvas, r Comparison, bar vg.Length, x func(float64) vg.Length) {
	if lo, hi, _ := r.Spread(); lo > 0 && !math.IsInf(hi, 0) && len(r.Blocks) > 1 {
		whiskerMark(c, x(lo), x(hi), bar)
	}
	for k, b := range r.Blocks {
		blockDot(c, x(b.Ratio), bar-rowBar/2-2-(rowBlocks-4)*vg.Length(float64(k)+0.5)/vg.Length(len(r.Blocks)))
	}
}
