// Package chart draws a metric of a session as an SVG: plots.go has a function for each kind of plot, and
// chart.go their marks, scales and axes. A page or a README can show the SVG without any other file.
package chart

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"math"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/terminal"
)

//go:embed chart.svg.tmpl
var chartTemplate string

// Labels are the words around a plot.
type Labels struct {
	Title string
	Hint  string // how to read it
	Alt   string // what it shows, for readers who do not see it
}

// chart is a picture: a title, a line that says how to read it, a key, and a plot. Lengths are in pixels of
// its text, downward from the upper left corner.
type chart struct {
	alt         string
	height      float64
	marks       strings.Builder
	x, y        scale // of the plot
	keyX        float64
	left, right float64 // ends of the plot
}

// Every chart is narrow, so that its text can be read at 400 pixels. The page scales it to its width.
const (
	width    = 440
	margin   = 12
	lineSkip = 14
)

// newChart writes the title and the line below it.
func newChart(l Labels) *chart {
	c := &chart{alt: l.Alt, height: margin, left: margin, right: width - margin, keyX: width}
	for _, p := range []struct {
		class, text   string
		columns, skip int
	}{{"title", l.Title, 52, 17}, {"faint", l.Hint, 75, lineSkip}} {
		folded := terminal.Terminal{Columns: p.columns}.Fold("", p.text)
		for line := range strings.Lines(folded) {
			c.height += float64(p.skip)
			c.text(p.class, margin, c.height-5, strings.TrimSpace(line))
		}
	}
	return c
}

// mark writes an element; lengths are rounded.
func (c *chart) mark(format string, args ...any) {
	for i, v := range args {
		if length, ok := v.(float64); ok {
			args[i] = round(length)
		}
	}
	fmt.Fprintf(&c.marks, format+"\n", args...)
}

// text writes text with its baseline at y.
func (c *chart) text(class string, x, y float64, text string) {
	c.mark(`<text class="%s" x="%g" y="%g">%s</text>`, class, x, y, html.EscapeString(text))
}

// grounded writes text that hides the lines below it, as wide as the widest font needs.
func (c *chart) grounded(class string, x, y float64, text string) {
	x1 := x + 6.2*float64(terminal.Width(text))
	if strings.HasSuffix(class, " end") {
		x1 = 2*x - x1
	}
	c.box("ground", x, x1, y-4, 12)
	c.text(class, x, y, text)
}

// box draws a box centred on y. A pale one hides what is below it, which would show through.
func (c *chart) box(class string, x0, x1, y, high float64) {
	if strings.HasSuffix(class, " pale") {
		c.box("ground", x0, x1, y, high)
	}
	c.mark(`<rect class="%s" x="%g" y="%g" width="%g" height="%g" />`, class, min(x0, x1), y-high/2,
		math.Abs(x1-x0), high)
}

func (c *chart) line(class string, x0, y0, x1, y1 float64) {
	c.mark(`<path class="%s" d="M%g,%gL%g,%g" />`, class, x0, y0, x1, y1)
}

// whisker draws a whisker with caps at its ends, 8 high.
func (c *chart) whisker(class string, x0, x1, y float64) {
	c.mark(`<path class="%s" d="M%[2]g,%[4]gV%[5]gM%[2]g,%[6]gH%[3]gM%[3]g,%[4]gV%[5]g" />`, class, x0, x1,
		y-4, y+4, y)
}

func (c *chart) dot(class string, x, y, r float64) {
	c.mark(`<circle class="%s" cx="%g" cy="%g" r="%g" />`, class, x, y, r)
}

func (c *chart) diamond(x, y float64) {
	c.mark(`<path class="mean" d="M%g,%gl4,4l-4,4l-4,-4z" />`, x, y-4)
}
func (c *chart) triangle(x, y float64) {
	c.mark(`<path class="solid" d="M%g,%gh7l-3.5,7z" />`, x-3.5, y)
}

func round(v float64) float64 { return math.Round(100*v) / 100 }

// key explains a mark, in as many columns as its text needs in the widest font. draw gets its sample's ends.
func (c *chart) key(text string, sample float64, draw func(x0, x1, y float64)) {
	capitals := len(regexp.MustCompile(`\p{Lu}`).FindAllString(text, -1)) // more than two need more room
	wide := sample + 4 + 5.7*float64(terminal.Width(text)) + 3*float64(max(0, capitals-2))
	if c.keyX+wide > width-margin {
		c.keyX = margin
		c.height += lineSkip
	}
	draw(c.keyX, c.keyX+sample, c.height-4)
	c.text("", c.keyX+sample+4, c.height, text)
	c.keyX += wide + 8
}

// scale places values between two ends.
type scale struct {
	lo, hi, from, to float64
	log              bool
}

func (s scale) at(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(v)
	}
	return s.from + (s.to-s.from)*(v-lo)/(hi-lo)
}

// tick is a place on an axis. A minor one has no label.
type tick struct {
	value float64
	label string
}

// logTicks labels 1, 2 and 5 of each decade, and over many decades only 1, for lack of room. If fewer than
// two labels would be left, which show no scale, it labels more.
func logTicks(lo, hi float64, format func(float64) string) (ticks []tick) {
	labels := []string{"1", "125", "123456789"}
	if math.Log10(hi/lo) <= 1.5 {
		labels = labels[1:]
	}
	for labelled := 0; labelled < 2 && len(labels) > 0; labels = labels[1:] {
		ticks, labelled = nil, 0
		for e := math.Floor(math.Log10(lo)); e <= math.Log10(hi); e++ {
			for digit := 1; digit <= 9; digit++ {
				t := tick{value: float64(digit) * math.Pow(10, e)}
				if t.value < lo*0.999 || t.value > hi*1.001 {
					continue
				}
				if strings.ContainsRune(labels[0], rune('0'+digit)) {
					t.label, labelled = format(t.value), labelled+1
				}
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

// linear returns the ticks of an axis from 0, at multiples of some step.
func linear(step, hi float64, format func(float64) string) (ticks []tick) {
	for hi/step > 8 {
		step *= 2
	}
	for v := 0.0; v <= hi; v += step {
		ticks = append(ticks, tick{v, format(v)})
	}
	return ticks
}

// outward rounds a range outward to one digit, so that ticks are at its ends.
func outward(lo, hi float64) (float64, float64) {
	down, up := math.Pow(10, math.Floor(math.Log10(lo))), math.Pow(10, math.Floor(math.Log10(hi)))
	lo, hi = down*math.Floor(lo/down), up*math.Ceil(hi/up)
	return lo, max(hi, 2*lo)
}

// axes draws the axis below a plot of some height, with its grid, and the vertical one if there are ticks.
func (c *chart) axes(high float64, name string, ticks, vertical []tick) {
	c.height += 14
	c.x.from, c.x.to = c.left, c.right
	c.y.from, c.y.to = c.height+high, c.height
	foot := c.height + high
	for _, t := range ticks {
		x, length := c.x.at(t.value), 2.0
		if t.label != "" {
			length = 4
			c.line("grid", x, foot, x, c.height)
			c.text("middle", x, foot+15, t.label)
		}
		c.line("axis", x, foot, x, foot+length)
	}
	for _, t := range vertical {
		y, length := c.y.at(t.value), 2.0
		if t.label != "" {
			length = 4
			c.line("grid", c.left, y, c.right, y)
			c.text("end", c.left-7, y+4, t.label)
		}
		c.line("axis", c.left-length, y, c.left, y)
	}
	if len(vertical) > 0 {
		c.line("axis", c.left, foot, c.left, c.height)
	}
	c.line("axis", c.left, foot, c.right, foot)
	c.text("middle", (c.left+c.right)/2, foot+30, name)
}

// paint makes the picture; the axis is below the plot.
func (c *chart) paint() []byte {
	c.height = math.Ceil(c.height + 34 + margin)
	const scale = 1.3 // shown as large as other text, if there is room
	var b bytes.Buffer
	err := template.Must(template.New("chart").Parse(chartTemplate)).Execute(&b, map[string]any{
		"Alt": c.alt, "Width": width, "Height": c.height, "Marks": &c.marks,
		"ShownWidth": math.Round(scale * width), "ShownHeight": math.Round(scale * c.height)})
	if err != nil {
		panic(err) // the template is wrong
	}
	return b.Bytes()
}

// cellClass returns the class of a cell's marks: the main factor's level as hue, pale if nothing disturbs it.
func cellClass(l figures.Look) string {
	class := "hue"
	if l.Hue >= 0 {
		class += fmt.Sprintf(" hue%d", l.Hue%hues)
	}
	if l.Pale {
		class += " pale"
	}
	return class
}

// hues is how many hues the style sheet has.
const hues = 6

// lineClass returns the class of a line: a hue, and dashes so that lines differ without colour.
func lineClass(l figures.Look) string { return cellClass(l) + " curve " + dash(l) }

func dash(l figures.Look) string {
	n := 0
	if l.Pale {
		n = 1
	}
	if l.Dashed {
		n += 2
	}
	return fmt.Sprintf("dash%d", n)
}

// dotClass returns the class of marks on a line, which are not pale.
func dotClass(l figures.Look) string { return strings.TrimSuffix(cellClass(l), " pale") }

// levelKeys explains the hues of the cells, and why some are pale.
func (c *chart) levelKeys(s *figures.Summary, cells []figures.Cell) {
	sample := func(l figures.Look) func(x0, x1, y float64) {
		return func(x0, x1, y float64) { c.box(cellClass(l), x0, x1, y, 10) }
	}
	if main := s.Main(); main != nil {
		for hue, level := range main.Levels {
			if slices.ContainsFunc(cells, func(c figures.Cell) bool { return c.Hue == hue }) {
				c.key(level.Name, 10, sample(figures.Look{Hue: hue}))
			}
		}
	}
	if slices.ContainsFunc(cells, func(c figures.Cell) bool { return c.Pale }) {
		c.key("pale: "+s.Disturbance().Quiet, 10, sample(figures.Look{Pale: true}))
	}
}
