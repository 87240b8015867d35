package report

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is a picture with its data: a title, a line that says how to read it, a key, and a plot.
type chart struct {
	File  string // name of the SVG, without directory
	Alt   string // what it shows, for those who do not see it
	SVG   []byte
	Data  table
	Minor bool // one of the further charts

	title, hint string
	unit        string // of the vertical axis; written above it
	keys        []key
	height      vg.Length
	left, right vg.Length // kept free beside the axes
	*plot.Plot
}

// key explains one kind of mark.
type key struct {
	text   string
	width  vg.Length // of the sample
	sample plot.Thumbnailer
}

// chartWidth is that of every chart, in points: narrow, so that its text can be read where it is shown on 400
// pixels. The page scales it to what there is.
const chartWidth = 440

// Sizes of text.
const (
	titleText = 13
	bodyText  = 11
	smallText = 10.5
	lineSkip  = 14
)

// slack is how much wider than the metrics a text may come out in another font than ours.
const slack = 1.15

func style(size vg.Length, c color.Color, x draw.XAlignment) draw.TextStyle {
	return draw.TextStyle{Color: c, XAlign: x, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler,
		Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}}
}

func bold(s draw.TextStyle) draw.TextStyle {
	s.Font.Weight = xfont.WeightBold
	return s
}

func thin(c color.Color, width vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: width}
}

func newChart(title, hint string) *chart {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle = style(smallText, ink(), draw.XCenter)
		a.Label.TextStyle.YAlign = draw.YBottom
		a.Tick.Label.Font, a.Tick.Label.Color = a.Label.TextStyle.Font, ink()
		a.LineStyle, a.Tick.LineStyle = thin(faint(), 0.7), thin(faint(), 0.7)
		a.Padding, a.Tick.Length = 0, 4
	}
	p.X.Label.Padding = 4
	grid := plotter.NewGrid()
	grid.Vertical, grid.Horizontal = thin(rule(), 0.5), thin(rule(), 0.5)
	p.Add(grid)
	return &chart{title: title, hint: hint, Plot: p}
}

func (c *chart) key(text string, width vg.Length, sample plot.Thumbnailer) {
	c.keys = append(c.keys, key{text, width, sample})
}

// paint makes the picture.
func (c *chart) paint() error {
	const margin, width = 12, chartWidth - 2*12
	title, hint := bold(style(titleText, ink(), draw.XLeft)), style(smallText, faint(), draw.XLeft)
	titles, hints := wrapped(c.title, title, width), wrapped(c.hint, hint, width)
	places, rows := c.places(width)
	head := vg.Length(len(titles))*(titleText+4) + vg.Length(len(hints)+rows)*lineSkip + 18
	if c.unit != "" {
		head += lineSkip + 4
	}
	height := 2*margin + head + c.height
	out := vgsvg.New(chartWidth, height)
	canvas := draw.New(out)
	canvas.FillPolygon(color.White, corners(canvas.Rectangle))
	canvas = draw.Crop(canvas, margin, -margin, margin, -margin)
	top := canvas.Max.Y
	write := func(s draw.TextStyle, skip vg.Length, lines ...string) {
		for _, line := range lines {
			canvas.FillText(s, vg.Point{X: canvas.Min.X, Y: top - skip/2 + s.FontExtents().Descent}, line)
			top -= skip
		}
	}
	write(title, titleText+4, titles...)
	write(hint, lineSkip, hints...)
	top -= 4
	for i, k := range c.keys {
		l := k.legend()
		l.Draw(draw.Crop(canvas, places[i].X, 0, 0, top-canvas.Max.Y+places[i].Y))
	}
	top -= vg.Length(rows) * lineSkip
	if c.unit != "" {
		top -= 4
		write(style(smallText, ink(), draw.XLeft), lineSkip, c.unit)
	}
	c.Draw(draw.Crop(canvas, c.left, -c.right, 0, top-8-canvas.Max.Y))
	var raw bytes.Buffer
	_, err := out.WriteTo(&raw)
	if err == nil {
		c.SVG, err = finish(raw.String(), c.Alt, height)
	}
	return err
}

func (k key) legend() plot.Legend {
	l := plot.NewLegend()
	l.Top, l.Left, l.ThumbnailWidth = true, true, k.width
	l.TextStyle = style(smallText, ink(), draw.XLeft)
	l.TextStyle.YAlign = draw.YBottom
	l.Add(k.text, k.sample)
	return l
}

// places puts the keys into rows. They are relative to the upper left corner.
func (c *chart) places(width vg.Length) (all []vg.Point, rows int) {
	x := width
	for _, k := range c.keys {
		wide := k.width + slack*style(smallText, ink(), 0).Width("n"+k.text)
		if x > 0 && x+wide > width {
			x, rows = 0, rows+1
		}
		all = append(all, vg.Point{X: x, Y: -lineSkip * vg.Length(rows-1)})
		x += wide + 12
	}
	return all, rows
}

func wrapped(s string, st draw.TextStyle, width vg.Length) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && slack*st.Width(line+" "+word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// finish makes what vgsvg writes fit for a page: a size that follows the page, a font that every browser has
// beside the one with the same metrics, colours for the night, and a name for those who do not see the chart.
func finish(raw, alt string, height vg.Length) ([]byte, error) {
	_, body, ok := strings.Cut(raw, `xmlns:xlink="http://www.w3.org/1999/xlink">`)
	if !ok {
		return nil, fmt.Errorf("chart: the SVG writer's output has changed: %.80q", raw)
	}
	body = strings.NewReplacer(
		"font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal;", "",
		"font-family:Liberation Sans;font-variant:normal;font-weight:bold;font-style:normal;", "font-weight:bold;",
		"\n\tstyle=", " style=",
	).Replace(body)
	const fonts = "'Liberation Sans', Arimo, Arial, Helvetica, sans-serif"
	const scale = 1.3 // shown as large as other text, where there is room
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" class="isolane-chart" width="%.0f" height="%.0f" `+
		`viewBox="0 0 %d %.5g" style="max-width:100%%;height:auto" role="img" aria-label="%s" font-family="%s">`+
		"\n<style>%s</style>%s", scale*chartWidth, scale*height, chartWidth, height, html.EscapeString(alt), fonts,
		night(), body), nil
}

func corners(r vg.Rectangle) []vg.Point {
	return []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}}
}

// label is text at a point of the plot, on its ground's colour, so that no line of the grid crosses it.
type label struct {
	x, y   float64
	dx, dy vg.Length
	style  draw.TextStyle
	text   string
}

// Plot implements plot.Plotter.
func (l label) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := vg.Point{X: x(l.x) + l.dx, Y: y(l.y) + l.dy + l.style.FontExtents().Descent}
	r := l.style.Rectangle(l.text).Add(at)
	r.Min.X, r.Max.X = r.Min.X-1, r.Max.X+1
	c.FillPolygon(color.White, corners(r))
	c.FillText(l.style, at, l.text)
}

// bar is a horizontal bar from one value to another.
func bar(from, to, y float64, width vg.Length, fill color.Color, edge draw.LineStyle) *plotter.BarChart {
	b := &plotter.BarChart{Values: plotter.Values{to - from}, XMin: y, Width: width, Color: fill, LineStyle: edge, Horizontal: true}
	b.StackOn(&plotter.BarChart{Values: plotter.Values{from}, XMin: y})
	return b
}

// whisker is a line between two values with caps at its ends; it is a sample of itself.
type whisker struct{ *plotter.XErrorBars }

func newWhisker(lo, hi, y float64, caps vg.Length, s draw.LineStyle) whisker {
	return whisker{&plotter.XErrorBars{XYs: plotter.XYs{{X: lo, Y: y}}, XErrors: plotter.XErrors{{High: hi - lo}},
		LineStyle: s, CapWidth: caps}}
}

// Thumbnail implements plot.Thumbnailer.
func (w whisker) Thumbnail(c *draw.Canvas) {
	y, half := c.Center().Y, w.CapWidth/2
	c.StrokeLines(w.LineStyle, []vg.Point{{X: c.Min.X, Y: y}, {X: c.Max.X, Y: y}},
		[]vg.Point{{X: c.Min.X, Y: y - half}, {X: c.Min.X, Y: y + half}},
		[]vg.Point{{X: c.Max.X, Y: y - half}, {X: c.Max.X, Y: y + half}})
}

// mark is a glyph at a point.
func mark(x, y float64, shape draw.GlyphDrawer, radius vg.Length, c color.Color) *plotter.Scatter {
	return &plotter.Scatter{XYs: plotter.XYs{{X: x, Y: y}},
		GlyphStyle: draw.GlyphStyle{Color: c, Radius: radius, Shape: shape}}
}

// ring is a white disc with an outline.
type ring struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (ring) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	draw.CircleGlyph{}.DrawGlyph(c, s, at)
	s.Radius -= 0.8
	c.SetColor(color.White)
	draw.CircleGlyph{}.DrawGlyph(c, s, at)
}

// stroke is a thick line across a bar.
type stroke struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (stroke) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	c.StrokeLine2(thin(s.Color, 2), at.X, at.Y-s.Radius, at.X, at.Y+s.Radius)
}
