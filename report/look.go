package report

import (
	"fmt"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Inks of all charts by day; night says what becomes of them.
func ink() color.NRGBA   { return color.NRGBA{0x22, 0x22, 0x22, 0xff} }
func faint() color.NRGBA { return color.NRGBA{0x59, 0x59, 0x59, 0xff} }
func rule() color.NRGBA  { return color.NRGBA{0xdd, 0xdd, 0xdd, 0xff} }

// colour is that of a placement by day.
func (h hue) colour() color.NRGBA {
	c := color.NRGBA{A: 0xff}
	if _, err := fmt.Sscanf(h.day, "#%02X%02X%02X", &c.R, &c.G, &c.B); err != nil {
		return faint()
	}
	return c
}

// colour is the hue of a cell's placement.
func (c Cell) colour() color.NRGBA {
	for _, h := range hues() {
		if h.placement == c.Placement {
			return h.colour()
		}
	}
	return faint()
}

// fill is the colour of a cell's bar: quiet cells are pale.
func (c Cell) fill() color.NRGBA {
	if c.Noise == quiet {
		return pale(c.colour())
	}
	return c.colour()
}

func pale(full color.NRGBA) color.NRGBA {
	half := func(v uint8) uint8 { return uint8(255 - (255-int(v))*2/5) } //nolint:gosec // G115: 153 to 255
	return color.NRGBA{half(full.R), half(full.G), half(full.B), 0xff}
}

// night is the style of all charts in the dark: what each colour becomes.
func night() string {
	var b strings.Builder
	b.WriteString("@media (prefers-color-scheme: dark) {\n")
	replace := func(day color.NRGBA, night string) {
		for _, what := range []string{"fill", "stroke"} {
			fmt.Fprintf(&b, ".isolane-chart [style*=\"%s:#%02X%02X%02X\"] { %s: %s !important }\n", what, day.R, day.G, day.B,
				what, night)
		}
	}
	replace(color.NRGBA{0xff, 0xff, 0xff, 0xff}, "#16181a")
	replace(ink(), "#e8e8e6")
	replace(faint(), "#a9adb0")
	replace(rule(), "#3a3e42")
	for _, h := range hues() {
		replace(h.colour(), h.night)
		replace(pale(h.colour()), h.pale)
	}
	return b.String() + "}"
}

// line is the style of a cell's curve: colour for the placement, dashes for noise and path, so that
// the curves can be told apart without colour.
func (c Cell) line(first string) draw.LineStyle {
	s := thin(c.colour(), 1.6)
	switch quiet, other := c.Noise == quiet, c.Path != first; {
	case quiet && other:
		s.Dashes = []vg.Length{2, 2}
	case quiet:
		s.Dashes = []vg.Length{7, 3}
	case other:
		s.Dashes = []vg.Length{12, 3, 2, 3}
	}
	return s
}

// placementKeys explain the hues of the cells that there are, and why some are pale.
func (c *chart) placementKeys(cells []Cell) {
	like := func(fill, edge color.Color) plot.Thumbnailer { return bar(1, 1, 0, 0, fill, thin(edge, 1)) }
	anyPale := false
	for _, h := range hues() {
		found := false
		for _, cell := range cells {
			found = found || cell.Placement == h.placement
			anyPale = anyPale || cell.Noise == quiet
		}
		if found {
			c.key(h.placement, 10, like(h.colour(), h.colour()))
		}
	}
	if anyPale {
		full := hues()[0].colour()
		c.key("pale: quiet", 10, like(pale(full), full))
	}
}

// logAxis gives an axis a logarithmic scale from lo to hi, with labels at 1, 2 and 5 of each decade; over many
// decades there is room for the ones only.
func logAxis(a *plot.Axis, lo, hi float64, format func(float64) string) {
	a.Min, a.Max, a.Scale = lo, hi, plot.LogScale{}
	many := math.Log10(hi/lo) > 1.5
	var ticks plot.ConstantTicks
	for _, t := range (plot.LogTicks{}).Ticks(lo/10, hi) { // from lo on it would begin above what is below 1
		digit := math.Round(t.Value / math.Pow(10, math.Floor(math.Log10(t.Value)+1e-9)))
		if t.Value < lo*0.999 || t.Value > hi*1.001 || t.IsMinor() && digit == 1 { // a decade is there twice
			continue
		}
		t.Label = ""
		if digit == 1 || !many && (digit == 2 || digit == 5) {
			t.Label = format(t.Value)
		}
		ticks = append(ticks, t)
	}
	a.Tick.Marker = ticks
}

// outward rounds a range to one digit, so that ticks are at its ends.
func outward(lo, hi float64) (float64, float64) {
	down, up := math.Pow(10, math.Floor(math.Log10(lo))), math.Pow(10, math.Floor(math.Log10(hi)))
	lo, hi = down*math.Floor(lo/down), up*math.Ceil(hi/up)
	return lo, max(hi, 2*lo)
}

// percents are the ticks of an axis of ratios from 0 to at most 10.
func percents(hi float64) (ticks plot.ConstantTicks) {
	step := 0.25
	for hi/step > 8 {
		step *= 2
	}
	for v := 0.0; v <= hi; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%g%%", 100*v)})
	}
	return ticks
}
