// Package curves is what a session shows over factors whose levels are numbers.
package curves

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
)

// Curve is what a session shows over a factor whose levels are numbers.
type Curve struct {
	Factor string
	Levels []string // ascending
	By     string   // the factors that the lines show: "noise-placement"
	Where  string   // levels of the factors that neither axis nor lines show: "express"
	Lines  []Line
}

// Line is one combination of the factors that lines show.
type Line struct {
	Name  string
	Look  figures.Look
	cells []*figures.Cell // by level; nil: there is none
}

// number reads a level that is a number, with or without a unit: 100, 64Ki, 200us, 50%.
func number(level string) float64 {
	if v, err := strconv.ParseFloat(level, 64); err == nil && !math.IsInf(v, 0) {
		return v
	}
	if p, err := quantity.ParsePercent(level); err == nil {
		return float64(p)
	}
	if d, err := quantity.ParseDuration(level); err == nil {
		return float64(d)
	}
	if b, err := quantity.ParseBytes(level); err == nil {
		return float64(b)
	}
	return math.NaN()
}

// Of returns the curves over each numeric factor: one for each combination of what its lines do not show.
// Lines differ in hue by another factor, and are pale if nothing disturbs.
func Of(s *figures.Summary) (all []Curve) {
	for _, f := range s.Session.Factors {
		var levels []string
		for _, l := range f.Levels {
			if slices.ContainsFunc(s.Cells, func(c figures.Cell) bool { return c.Levels[f.Name] == l.Name }) {
				levels = append(levels, l.Name)
			}
		}
		slices.SortFunc(levels, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
		if f.Quiet != "" || len(levels) < 2 || math.IsNaN(number(levels[0])) { // NaN sorts before all numbers
			continue
		}
		var curves []Curve
		for i, c := range s.Cells {
			at := slices.Index(levels, c.Levels[f.Name])
			if at < 0 || c.Used == 0 {
				continue
			}
			own, line := combination(s, c, f.Name)
			k := slices.IndexFunc(curves, func(o Curve) bool { return o.Where == own.Where })
			if k < 0 {
				own.Levels = levels
				k, curves = len(curves), append(curves, own)
			}
			lines := &curves[k].Lines
			n := slices.IndexFunc(*lines, func(o Line) bool { return o.Name == line.Name })
			if n < 0 {
				line.cells = make([]*figures.Cell, len(levels))
				n, *lines = len(*lines), append(*lines, line)
			}
			(*lines)[n].cells[at] = &s.Cells[i]
		}
		all = append(all, slices.DeleteFunc(curves, single)...)
	}
	return all
}

// single reports whether no line has two points.
func single(c Curve) bool {
	return !slices.ContainsFunc(c.Lines, func(l Line) bool {
		return len(slices.DeleteFunc(slices.Clone(l.cells), func(c *figures.Cell) bool { return c == nil })) > 1
	})
}

// combination says to which curve over a factor, and to which line, a cell belongs.
func combination(s *figures.Summary, c figures.Cell, over string) (Curve, Line) {
	line := Line{Look: figures.Look{Hue: -1, Pale: c.Pale}}
	hue := s.MainBut(over)
	var by, name, where []string
	for _, f := range s.Session.Factors {
		level := c.Levels[f.Name]
		switch {
		case level == "" || f.Name == over:
			continue
		case hue != nil && f.Name == hue.Name:
			line.Look.Hue = slices.IndexFunc(f.Levels, func(l results.Level) bool { return l.Name == level })
		case f.Quiet != "":
			line.Look.Dashed = level != f.Quiet && level != strings.Split(figures.Disturbed(&f), ", ")[0]
		default:
			where = append(where, level)
			continue
		}
		by, name = append(by, f.Name), append(name, level)
	}
	line.Name = cmp.Or(strings.Join(name, "-"), "all cells")
	return Curve{Factor: over, By: strings.Join(by, "-"), Where: strings.Join(where, "-")}, line
}

// Track is what a curve shows of a metric.
type Track struct {
	Load       bool        // X is what was carried per second
	Spread     string      // what Lo and Hi are
	Statistics []string    // P50, P90, P99 and P99.9 of samples; else one without a name
	Lines      [][]Reading // by line and level
}

// Reading is what a point of a curve shows of a metric.
type Reading struct {
	X              float64   // what was carried per second, or the level; NaN for no point
	Offered        float64   // per second, of a load
	Over           bool      // it was overloaded
	State          string    // why there are no values; "" if there are
	Bound          string    // "≤ " or "≥ " if the true values may be better
	Values, Lo, Hi []float64 // by statistic, with the spread of the runs; NaN for none
}

// Marked marks a printed value that is a bound.
func (r Reading) Marked(text string) string {
	if text == format.None {
		return text
	}
	return r.Bound + text
}

// statistic is a value of a metric: a percentile of all runs merged, or the median of the runs.
type statistic struct {
	name     string
	quantile float64
	of       string // of a run, for Block.Of
}

func statistics(m metric.Metric) []statistic {
	if m.Sampled {
		return []statistic{{"P50", 0.5, ""}, {"P90", 0.9, "p90"}, {"P99", 0.99, "p99"}, {"P99.9", 0.999, "p99.9"}}
	}
	return []statistic{{}}
}

// Track reads a metric along the curve.
func (c Curve) Track(m metric.Metric) Track {
	t := Track{Load: m.Loop == results.Open && c.overLoad(m), Spread: "least to greatest run"}
	spreads := map[bool]bool{} // whether they are intervals
	for _, s := range statistics(m) {
		t.Statistics = append(t.Statistics, s.name)
	}
	for _, l := range c.Lines {
		line := make([]Reading, len(l.cells))
		for k, cell := range l.cells {
			line[k] = Reading{X: math.NaN(), State: format.None}
			if cell != nil {
				line[k] = t.read(*cell, m, number(c.Levels[k]), spreads)
			}
		}
		t.Lines = append(t.Lines, line)
	}
	switch {
	case spreads[true] && spreads[false]:
		t.Spread = "95% interval, of few runs their range"
	case spreads[true]:
		t.Spread = "95% interval"
	}
	return t
}

// Drawn reports whether some line has at least two points.
func (t Track) Drawn() bool {
	return slices.ContainsFunc(t.Lines, func(line []Reading) bool {
		return len(slices.DeleteFunc(slices.Clone(line), func(r Reading) bool {
			return math.IsNaN(r.X) || r.State != "" && !r.Over
		})) > 1
	})
}

func (t *Track) read(c figures.Cell, m metric.Metric, level float64, spreads map[bool]bool) Reading {
	f, asked := c.Figure(m), c.Load(m)
	r := Reading{X: level, State: c.Missing(m), Bound: f.Bounded("")}
	if t.Load {
		r.X, r.Offered = asked.PerSecond(asked.Wanted-asked.Lost), asked.PerSecond(asked.Wanted)
		r.Over, r.State = asked.Lost > 0, cmp.Or(asked.State(), r.State)
	}
	for _, s := range statistics(m) {
		value := f.Centre
		if m.Sampled {
			value = f.Merged.Quantile(s.quantile)
		}
		lo, hi, interval := f.Runs(s.of, !m.Sampled)
		if !math.IsNaN(lo) {
			spreads[interval] = true
		}
		r.Values, r.Lo, r.Hi = append(r.Values, value), append(r.Lo, lo), append(r.Hi, hi)
	}
	return r
}

// overLoad reports whether the factor is the load that a metric offers: if so, it grows or falls by at least
// a twentieth from point to point.
func (c Curve) overLoad(m metric.Metric) bool {
	steps, up, down := 0, 0, 0
	for _, l := range c.Lines {
		last := math.NaN()
		for _, cell := range l.cells {
			if cell == nil || cell.Load(m).Wanted == 0 {
				continue
			}
			asked := cell.Load(m)
			offered := asked.PerSecond(asked.Wanted)
			switch {
			case math.IsNaN(last):
				steps--
			case offered > 1.05*last:
				up++
			case offered < last/1.05:
				down++
			}
			steps, last = steps+1, offered
		}
	}
	return steps > 0 && max(up, down) == steps
}
