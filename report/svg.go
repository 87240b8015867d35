package report

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"math"
	"strconv"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

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

// Inks of all charts by day; dark says what becomes of them at night.
func ink() color.NRGBA   { return color.NRGBA{0x22, 0x22, 0x22, 0xff} }
func faint() color.NRGBA { return color.NRGBA{0x59, 0x59, 0x59, 0xff} }
func rule() color.NRGBA  { return color.NRGBA{0xdd, 0xdd, 0xdd, 0xff} }

// placements are those that have a hue.
func placements() []string { return []string{"floating", "pinned", "lane"} }

// placementsAtNight are the full and the pale hue in the dark.
func placementsAtNight() map[string][2]string {
	return map[string][2]string{"floating": {"#f07c2e", "#7d4526"}, "pinned": {"#4aa3df", "#285573"}, "lane": {"#2cc294", "#1c6450"}}
}

// placementColor is of the palette of Okabe and Ito, which colour-blind people can tell apart.
func placementColor(placement string) color.NRGBA {
	switch placement {
	case "floating":
		return color.NRGBA{0xd5, 0x5e, 0x00, 0xff} // vermillion
	case "pinned":
		return color.NRGBA{0x00, 0x72, 0xb2, 0xff} // blue
	case "lane":
		return color.NRGBA{0x00, 0x9e, 0x73, 0xff} // bluish green
	}
	return faint()
}

// fill is the colour of a cell's bar: quiet cells are pale.
func (c Cell) fill() color.NRGBA {
	if c.Noise == "quiet" {
		return pale(placementColor(c.Placement))
	}
	return placementColor(c.Placement)
}

func pale(full color.NRGBA) color.NRGBA {
	half := func(v uint8) uint8 { return uint8(255 - (255-int(v))*2/5) }
	return color.NRGBA{half(full.R), half(full.G), half(full.B), 0xff}
}

// dark is the style of all charts in the dark: each colour's stand-in.
func dark() string {
	var b strings.Builder
	b.WriteString("@media (prefers-color-scheme: dark) {\n")
	replace := func(day color.NRGBA, night string) {
		name := fmt.Sprintf("#%02X%02X%02X", day.R, day.G, day.B)
		fmt.Fprintf(&b, ".isolane-chart [style*=\"fill:%s\"] { fill: %s !important }\n", name, night)
		fmt.Fprintf(&b, ".isolane-chart [style*=\"stroke:%s\"] { stroke: %s !important }\n", name, night)
	}
	replace(color.NRGBA{0xff, 0xff, 0xff, 0xff}, "#16181a")
	replace(ink(), "#e8e8e6")
	replace(faint(), "#a9adb0")
	replace(rule(), "#3a3e42")
	for _, placement := range placements() {
		night := placementsAtNight()[placement]
		replace(placementColor(placement), night[0])
		replace(pale(placementColor(placement)), night[1])
	}
	return b.String() + "}"
}

// line is the style of a cell's curve: colour for the placement, dashes for noise and path, so that
// the curves can be told apart without colour.
func (c Cell) line(first string) draw.LineStyle {
	s := draw.LineStyle{Color: placementColor(c.Placement), Width: 1.6}
	switch quiet, other := c.Noise == "quiet", c.Path != first; {
	case quiet && other:
		s.Dashes = []vg.Length{2, 2}
	case quiet:
		s.Dashes = []vg.Length{7, 3}
	case other:
		s.Dashes = []vg.Length{12, 3, 2, 3}
	}
	return s
}

func style(size vg.Length, c color.Color, x text.XAlignment, y text.YAlignment) draw.TextStyle {
	return draw.TextStyle{Color: c, XAlign: x, YAlign: y, Handler: plot.DefaultTextHandler,
		Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}}
}

func thin(c color.Color, width vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: width}
}

// frame is what the charts have in common: a title, a line that says how to read it, a key, and the
// axes.
type frame struct {
	title, hint string
	unit        string // of the vertical axis; written above it
	keys        []key
	left, right vg.Length // kept free beside the axes
	height      vg.Length
	plot        *plot.Plot
}

// key explains one kind of mark. draw gets the swatch's canvas.
type key struct {
	text   string
	draw   func(c draw.Canvas)
	swatch vg.Length // its width, 0 for what is usual
	x      vg.Length // set where it is drawn
}

func (k key) wide() vg.Length {
	if k.swatch > 0 {
		return k.swatch
	}
	return 18
}

func newFrame(title, hint string, height vg.Length) frame {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle = style(smallText, ink(), text.XCenter, text.YBottom)
		a.Tick.Label.Font = style(smallText, ink(), 0, 0).Font
		a.Tick.Label.Color = ink()
		a.LineStyle, a.Tick.LineStyle = thin(faint(), 0.7), thin(faint(), 0.7)
		a.Padding, a.Tick.Length = 0, 4
	}
	p.X.Label.Padding = 4
	return frame{title: title, hint: hint, plot: p, height: height}
}

// svg draws the chart. alt says what it shows, for those who do not see it.
func (f frame) svg(alt string) ([]byte, error) {
	const margin = 12
	width := vg.Length(chartWidth - 2*margin)
	title := style(titleText, ink(), text.XLeft, text.YTop)
	title.Font.Weight = xfont.WeightBold
	hint := style(smallText, faint(), text.XLeft, text.YTop)
	titles, hints, keys := wrapped(f.title, title, width), wrapped(f.hint, hint, width), f.keyRows(width)
	head := vg.Length(len(titles))*(titleText+4) + vg.Length(len(hints)+len(keys))*lineSkip + 18
	if f.unit != "" {
		head += lineSkip
	}
	height := 2*margin + head + f.height
	out := vgsvg.New(chartWidth, height)
	c := draw.New(out)
	c.FillPolygon(color.White, corners(0, 0, chartWidth, height))
	c = draw.Crop(c, margin, -margin, margin, -margin)
	top := c.Max.Y
	for _, line := range titles {
		c.FillText(title, vg.Point{X: c.Min.X, Y: top}, line)
		top -= titleText + 4
	}
	for _, line := range hints {
		c.FillText(hint, vg.Point{X: c.Min.X, Y: top}, line)
		top -= lineSkip
	}
	top -= 4
	for _, row := range keys {
		for _, k := range row {
			x := c.Min.X + k.x
			k.draw(draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
				Min: vg.Point{X: x, Y: top - 12}, Max: vg.Point{X: x + k.wide(), Y: top - 2}}})
			s := style(smallText, ink(), text.XLeft, text.YCenter)
			c.FillText(s, vg.Point{X: x + k.wide() + 4, Y: top - 7 + s.FontExtents().Descent}, k.text)
		}
		top -= lineSkip
	}
	if f.unit != "" {
		c.FillText(style(smallText, ink(), text.XLeft, text.YTop), vg.Point{X: c.Min.X, Y: top - 4}, f.unit)
		top -= lineSkip
	}
	f.plot.Draw(draw.Crop(c, f.left, -f.right, 0, top-8-c.Max.Y))
	var raw bytes.Buffer
	if _, err := out.WriteTo(&raw); err != nil {
		return nil, err
	}
	return finish(raw.String(), alt)
}

// keyRows puts the keys into rows.
func (f frame) keyRows(width vg.Length) [][]key {
	var rows [][]key
	x := width
	for _, k := range f.keys {
		wide := k.wide() + 4 + style(smallText, ink(), text.XLeft, text.YCenter).Width(k.text)*slack
		if x > 0 && x+wide > width {
			rows, x = append(rows, nil), 0
		}
		k.x = x
		rows[len(rows)-1] = append(rows[len(rows)-1], k)
		x += wide + 12
	}
	return rows
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

// finish makes what vgsvg writes fit for a page: a font that every browser has beside the one with
// the same metrics, and a name for those who do not see the chart.
func finish(raw, alt string) ([]byte, error) {
	_, rest, _ := strings.Cut(raw, "<svg ")
	size, rest, _ := strings.Cut(rest, "\n\txmlns=")
	_, body, ok := strings.Cut(rest, `xmlns:xlink="http://www.w3.org/1999/xlink">`)
	if !ok {
		return nil, fmt.Errorf("chart: the SVG writer's output has changed: %.80q", raw)
	}
	body = strings.NewReplacer(
		"font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal;", "",
		"font-family:Liberation Sans;font-variant:normal;font-weight:bold;font-style:normal;", "font-weight:bold;",
		"\n\tstyle=", " style=",
	).Replace(body)
	const fonts = "'Liberation Sans', Arimo, Arial, Helvetica, sans-serif"
	_, viewBox, _ := strings.Cut(size, "viewBox=")
	_, high, ok := strings.Cut(strings.Trim(viewBox, `"`), fmt.Sprintf("0 0 %d ", chartWidth))
	if !ok {
		return nil, fmt.Errorf("chart: the SVG writer's size has changed: %q", size)
	}
	tall, err := strconv.ParseFloat(high, 64)
	if err != nil {
		return nil, fmt.Errorf("chart: the SVG writer's size has changed: %q", size)
	}
	const scale = 1.3 // shown as large as other text, where there is room
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" class="isolane-chart" width="%.0f" height="%.0f" viewBox=%s `+
		`style="max-width:100%%;height:auto" role="img" aria-label="%s" font-family="%s">`+"\n<style>%s</style>%s",
		scale*chartWidth, scale*tall, viewBox, html.EscapeString(alt), fonts, dark(), body), nil
}

func corners(x0, y0, x1, y1 vg.Length) []vg.Point {
	return []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
}

// box draws a rectangle.
func box(c draw.Canvas, x0, y0, x1, y1 vg.Length, fill color.Color, edge draw.LineStyle) {
	pts := corners(x0, y0, x1, y1)
	if fill != nil {
		c.FillPolygon(fill, pts)
	}
	c.StrokeLines(edge, append(pts, pts[0]))
}

// hatched draws the rectangle of somebody else's figure.
func hatched(c draw.Canvas, x0, y0, x1, y1 vg.Length) {
	y0, y1 = min(y0, y1), max(y0, y1)
	box(c, x0, y0, x1, y1, color.White, thin(faint(), 0.8))
	const step = 5
	var lines [][]vg.Point
	for d := y0 - (x1 - x0); d < y1; d += step { // lines of 45 degrees: y = d + (x - x0)
		a, b := max(x0, x0+y0-d), min(x1, x0+y1-d)
		if a < b {
			lines = append(lines, []vg.Point{{X: a, Y: d + a - x0}, {X: b, Y: d + b - x0}})
		}
	}
	c.StrokeLines(thin(faint(), 0.5), lines...)
}

func dot(c draw.Canvas, x, y, r vg.Length, fill color.Color, edge draw.LineStyle) {
	var p vg.Path
	p.Move(vg.Point{X: x + r, Y: y})
	p.Arc(vg.Point{X: x, Y: y}, r, 0, 2*math.Pi)
	p.Close()
	c.SetColor(fill)
	c.Fill(p)
	c.SetLineStyle(edge)
	c.Stroke(p)
}

// label writes text on a white ground.
func label(c draw.Canvas, s draw.TextStyle, x, y vg.Length, txt string) {
	r := s.Rectangle(txt).Add(vg.Point{X: x, Y: y + s.FontExtents().Descent})
	c.FillPolygon(color.White, corners(r.Min.X-1, r.Min.Y, r.Max.X+1, r.Max.Y))
	c.FillText(s, vg.Point{X: x, Y: y + s.FontExtents().Descent}, txt)
}

// durationTick prints a tick of microseconds.
func durationTick(v float64) string {
	switch {
	case v >= 1e6:
		return tickText(v/1e6) + " s"
	case v >= 1e3:
		return tickText(v/1e3) + " ms"
	}
	return tickText(v) + " µs"
}

// tickText prints the value of a tick, which is a round one.
func tickText(v float64) string {
	if v >= 1000 {
		return digits(v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// logTicks are 1, 2 and 5 of each decade from lo to hi; over many decades there is room for the ones only.
func logTicks(lo, hi float64, format func(float64) string) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	many := math.Log10(hi/lo) > 1.5
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if v < lo*0.999 || v > hi*1.001 {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 || !many {
				t.Label = format(v)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// logRange rounds outward to 1, 2 or 5 of a decade.
func logRange(lo, hi float64) (float64, float64) {
	down, up := math.Pow(10, math.Floor(math.Log10(lo))), math.Pow(10, math.Floor(math.Log10(hi)))
	from, to := down, up
	for _, m := range []float64{1, 2, 5} {
		if m*down <= lo {
			from = m * down
		}
	}
	for _, m := range []float64{10, 5, 2, 1} {
		if m*up >= hi {
			to = m * up
		}
	}
	if from >= to {
		to = from * 10
	}
	return from, to
}
