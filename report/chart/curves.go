package chart

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/report/curves"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
)

// panelHigh is the height of the plot of one statistic.
const panelHigh = 140

// Curves shows a metric over a numeric factor: a line for each combination of the others, and a plot for each
// percentile. Over a load the axis shows what was carried, and a point without percentiles is at the top.
func Curves(curve curves.Curve, m metric.Metric, l Labels) []byte {
	c := newChart(l)
	c.left, c.right = c.left+50, c.right-18
	track := curve.Track(m)
	numbered := c.curveKeys(curve, track)
	name, ticks := c.along(curve, track)
	for k, statistic := range track.Statistics {
		lo, hi := bounds(track, k)
		if !(hi > 0) {
			continue
		}
		if k > 0 {
			c.height += 34
		}
		c.height += lineSkip + 4
		label := strings.TrimSpace(statistic + " " + m.Axis())
		c.y = scale{hi: hi * 1.08}
		vertical := linear(math.Pow(10, math.Floor(math.Log10(hi)))/4, hi*1.08, m.Unit.Tick)
		if m.Sampled || lo > 0 && hi/lo > 20 {
			label += " (logarithmic)"
			lo, hi = outward(lo, hi)
			c.y, vertical = scale{lo: lo, hi: hi, log: true}, logTicks(lo, hi, m.Unit.Tick)
		}
		c.text("", margin, c.height, label)
		c.axes(panelHigh, name, ticks, vertical)
		var ends []lineEnd
		for i, line := range curve.Lines {
			if x, y, ok := c.track(line.Look, track.Lines[i], k, i-len(curve.Lines)/2); ok {
				ends = append(ends, lineEnd{i + 1, x, y})
			}
		}
		if numbered {
			c.lineNumbers(ends, c.height+panelHigh)
		}
		c.height += panelHigh
	}
	return c.paint()
}

// curveKeys explains the lines, and reports whether these need numbers.
func (c *chart) curveKeys(curve curves.Curve, track curves.Track) (numbered bool) {
	over := false
	if numbered = alike(curve.Lines, func(l curves.Line) figures.Look { return l.Look }); numbered {
		c.right -= lineNumber
	}
	for k, line := range curve.Lines {
		name := line.Name
		if _, err := strconv.ParseFloat(name, 64); err == nil {
			name = curve.By + " " + name // a number alone says nothing
		}
		if numbered {
			name = fmt.Sprintf("%d: %s", k+1, name)
		}
		for _, r := range track.Lines[k] {
			if mark := " (" + r.Bound + "in part)"; r.Bound != "" && !strings.HasSuffix(name, mark) {
				name += mark
			}
		}
		c.key(name, 34, func(x0, x1, y float64) {
			c.line(lineClass(line.Look), x0, y, x1, y)
			c.dot(dotClass(line.Look), (x0+x1)/2, y, 2.5)
		})
		over = over || slices.ContainsFunc(track.Lines[k], func(r curves.Reading) bool { return r.Over })
	}
	c.key(track.Spread, 8, func(x0, _, y float64) { c.upright("whisker", x0+4, y-5, y+5) })
	if over {
		c.key("overloaded: no percentile", 8, func(x0, _, y float64) { c.peak("hue curve", x0+4, y+4) })
	}
	return numbered
}

// along makes the horizontal scale.
func (c *chart) along(curve curves.Curve, track curves.Track) (name string, ticks []tick) {
	var at []tick
	for _, line := range track.Lines {
		for k, r := range line {
			if !math.IsNaN(r.X) {
				at = append(at, tick{r.X, curve.Levels[k]})
			}
		}
	}
	slices.SortFunc(at, func(a, b tick) int { return cmp.Compare(a.value, b.value) })
	at = slices.Compact(at)
	if len(at) == 0 || at[len(at)-1].value <= 0 {
		return curve.Factor, nil
	}
	lo, hi := at[0].value, at[len(at)-1].value
	c.x = scale{hi: hi * 1.05}
	if lo > 0 && hi/lo >= 5 {
		c.x = scale{lo: lo / 1.15, hi: hi * 1.15, log: true}
	}
	switch {
	case !track.Load:
		return curve.Factor, at
	case c.x.log:
		return "carried per second (logarithmic)", logTicks(c.x.lo, c.x.hi, format.Tick)
	}
	return "carried per second", linear(math.Pow(10, math.Floor(math.Log10(hi)))/4, c.x.hi, format.Tick)
}

// bounds returns the least and the greatest of a statistic.
func bounds(t curves.Track, k int) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, line := range t.Lines {
		for _, r := range line {
			if r.State != "" {
				continue
			}
			for _, v := range []float64{r.Values[k], r.Lo[k], r.Hi[k]} {
				if v > 0 && !math.IsInf(v, 1) {
					lo, hi = min(lo, v), max(hi, v)
				}
			}
		}
	}
	return lo, hi
}

// track draws a line, with the whiskers of its points moved aside so that those of several lines can be seen,
// and returns its end.
func (c *chart) track(look figures.Look, line []curves.Reading, k, aside int) (endX, endY float64, ok bool) {
	var path strings.Builder
	word := "M"
	for _, r := range line {
		x := c.x.at(r.X)
		switch {
		case r.Over && !math.IsNaN(x):
			c.peak(peakClass(look), x+2*float64(aside), c.y.to+8)
		case r.State == "" && r.Values[k] > 0 && !math.IsInf(r.Values[k], 1):
			fmt.Fprintf(&path, "%s%g,%g", word, round(x), round(c.y.at(r.Values[k])))
			word = "L"
			continue
		}
		word = "M" // a line does not cross what is missing
	}
	c.mark(`<path class="%s" d="%s" />`, lineClass(look), &path)
	for _, r := range line {
		if r.State != "" || !(r.Values[k] > 0) || math.IsInf(r.Values[k], 1) {
			continue
		}
		x := c.x.at(r.X)
		if r.Lo[k] > 0 {
			c.upright(dotClass(look)+" whisker", x+2*float64(aside), c.y.at(r.Lo[k]), c.y.at(min(r.Hi[k], c.y.hi)))
		}
		endY = c.y.at(r.Values[k])
		c.dot(dotClass(look), x, endY, 2.5)
		endX, ok = x, true
	}
	return endX, endY, ok
}

// upright draws a vertical whisker.
func (c *chart) upright(class string, x, y0, y1 float64) {
	c.mark(`<path class="%s" d="M%[2]g,%[3]gh6m-3,0V%[4]gm-3,0h6" />`, class, x-3, y0, y1)
}

// peakClass is hollow if nothing disturbs.
func peakClass(l figures.Look) string {
	if l.Pale {
		return dotClass(l) + " curve"
	}
	return dotClass(l)
}

// peak draws a triangle that points up.
func (c *chart) peak(class string, x, y float64) {
	c.mark(`<path class="%s" d="M%g,%gl4,-7l4,7z" />`, class, x-4, y)
}
