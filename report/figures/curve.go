package figures

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Curve is what a session shows over a factor whose levels are numbers.
type Curve struct {
	Factor string
	Levels []string // ascending
	By     string   // the factors that the lines show: "noise-placement"
	Where  string   // levels of the factors that neither the axis nor the lines show: "express"
	Lines  []Line
}

// Line is one combination of the factors that lines show.
type Line struct {
	Name  string
	Look  Look
	cells []*Cell // by level; nil: there is none
}

// number reads a level that is one, with or without a unit: 100, 64Ki, 200us, 50%.
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

// Curves are those over each factor of numbers: one for each combination of what its lines do not show. Lines
// differ in hue by another factor, and are pale where nothing disturbs.
func (s *Summary) Curves() (all []Curve) {
	for _, f := range s.Session.Factors {
		var levels []string
		for _, l := range f.Levels {
			if slices.ContainsFunc(s.Cells, func(c Cell) bool { return c.Levels[f.Name] == l.Name }) {
				levels = append(levels, l.Name)
			}
		}
		slices.SortFunc(levels, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
		if f.Quiet != "" || len(levels) < 2 || math.IsNaN(number(levels[0])) { // NaN is less than all else
			continue
		}
		var curves []Curve
		for i, c := range s.Cells {
			at := slices.Index(levels, c.Levels[f.Name])
			if at < 0 || c.Used == 0 {
				continue
			}
			own, line := s.combination(c, f.Name)
			k := slices.IndexFunc(curves, func(o Curve) bool { return o.Where == own.Where })
			if k < 0 {
				own.Levels = levels
				k, curves = len(curves), append(curves, own)
			}
			lines := &curves[k].Lines
			n := slices.IndexFunc(*lines, func(o Line) bool { return o.Name == line.Name })
			if n < 0 {
				line.cells = make([]*Cell, len(levels))
				n, *lines = len(*lines), append(*lines, line)
			}
			(*lines)[n].cells[at] = &s.Cells[i]
		}
		all = append(all, slices.DeleteFunc(curves, single)...)
	}
	return all
}

// single says that no line has two points.
func single(c Curve) bool {
	return !slices.ContainsFunc(c.Lines, func(l Line) bool {
		return len(slices.DeleteFunc(slices.Clone(l.cells), func(c *Cell) bool { return c == nil })) > 1
	})
}

// combination tells where a cell belongs among the curves over a factor, and to which line.
func (s *Summary) combination(c Cell, over string) (Curve, Line) {
	line := Line{Look: Look{Hue: -1, Pale: c.Pale}}
	hue := s.mainBut(over)
	var by, name, where []string
	for _, f := range s.Session.Factors {
		level := c.Levels[f.Name]
		switch {
		case level == "" || f.Name == over:
			continue
		case hue != nil && f.Name == hue.Name:
			line.Look.Hue = slices.IndexFunc(f.Levels, func(l results.Level) bool { return l.Name == level })
		case f.Quiet != "":
			line.Look.Dashed = level != f.Quiet && level != strings.Split(Disturbed(&f), ", ")[0]
		default:
			where = append(where, level)
			continue
		}
		by, name = append(by, f.Name), append(name, level)
	}
	line.Name = cmp.Or(strings.Join(name, "-"), "all cells")
	return Curve{Factor: over, By: strings.Join(by, "-"), Where: strings.Join(where, "-")}, line
}

// load is what an open loop asked of the used runs of a cell, and what it got.
type load struct {
	wanted, lost uint64
	window       time.Duration
	over         int // runs that were overloaded
	absent       int // of them, without a figure
}

// leastLost is the share of what was asked beyond which a run that did not get it is overloaded.
const leastLost = 0.01

// addLoad takes in what was asked, also of measurements whose latencies say nothing as they were overloaded.
func (c *Cell) addLoad(m results.Measurement) {
	for _, why := range m.Void {
		if !slices.Contains(m.Overloaded, why) {
			return
		}
	}
	for name, samples := range m.Samples {
		l := c.loads[name]
		l.wanted, l.lost, l.window = l.wanted+samples.Wanted, l.lost+samples.Lost, l.window+time.Duration(m.Window)
		if len(m.Void) > 0 || float64(samples.Lost) > leastLost*float64(samples.Wanted) {
			l.over++
		}
		if len(m.Void) > 0 {
			l.absent++
		}
		c.loads[name] = l
	}
}

func (l load) perSecond(n uint64) float64 { return float64(n) / l.window.Seconds() }

// state says why percentiles of what was carried would tell too little: "" where they do not.
func (l load) state() string {
	switch {
	case l.lost > 0 && l.lost == l.wanted:
		return "all lost"
	case l.over > 0:
		return "overloaded"
	case l.lost > 0:
		return "lost " + format.Count(l.lost)
	}
	return ""
}

// Track is what a curve shows of a metric.
type Track struct {
	Load       bool        // X is what was carried per second
	Spread     string      // what Lo and Hi are
	Statistics []string    // P50, P99 and P99.9 of samples; else one without a name
	Lines      [][]Reading // by line and level
}

// Reading is what a point of a curve shows of a metric.
type Reading struct {
	X              float64   // what was carried per second, or the level; NaN for no point
	Offered        float64   // per second, of a load
	Over           bool      // it was overloaded
	State          string    // why there are no values, "" where there are
	Values, Lo, Hi []float64 // by statistic, with the spread of the runs; NaN for none
}

// statistic is a value of a metric: a percentile of all runs merged, or the median of the runs.
type statistic struct {
	name     string
	quantile float64
	of       func(Block) float64 // of a run
}

func (m Metric) statistics() []statistic {
	if m.Sampled {
		return []statistic{{"P50", 0.5, blockValue}, {"P99", 0.99, blockP99}, {"P99.9", 0.999, blockP999}}
	}
	return []statistic{{of: blockValue}}
}

// Track reads a metric along the curve.
func (c Curve) Track(m Metric) Track {
	t := Track{Load: m.Loop == results.Open && c.overLoad(m), Spread: "least to greatest run"}
	spreads := map[bool]bool{} // whether they are intervals
	for _, s := range m.statistics() {
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

// Drawn says whether some line has two points, so that it shows a course.
func (t Track) Drawn() bool {
	return slices.ContainsFunc(t.Lines, func(line []Reading) bool {
		return len(slices.DeleteFunc(slices.Clone(line), func(r Reading) bool {
			return math.IsNaN(r.X) || r.State != "" && !r.Over
		})) > 1
	})
}

func (t *Track) read(c Cell, m Metric, level float64, spreads map[bool]bool) Reading {
	f, asked := c.Figure(m), c.loads[m.Name]
	r := Reading{X: level, State: m.Missing(c)}
	if t.Load {
		r.X, r.Offered = asked.perSecond(asked.wanted-asked.lost), asked.perSecond(asked.wanted)
		r.Over, r.State = asked.lost > 0, cmp.Or(asked.state(), r.State)
	}
	for _, s := range m.statistics() {
		value := f.Centre
		if m.Sampled {
			value = f.Merged.Quantile(s.quantile)
		}
		lo, hi, interval := f.runs(s.of, !m.Sampled)
		if !math.IsNaN(lo) {
			spreads[interval] = true
		}
		r.Values, r.Lo, r.Hi = append(r.Values, value), append(r.Lo, lo), append(r.Hi, hi)
	}
	return r
}

// runs are the least and the greatest value of a run, NaN for less than two, or the ends of the 95% interval
// of their median by order statistics where there are enough for one.
func (f Figure) runs(of func(Block) float64, interval bool) (lo, hi float64, is bool) {
	values := f.Values(of)
	if len(values) < 2 {
		return math.NaN(), math.NaN(), false
	}
	slices.Sort(values)
	low, high := stats.QuantileRanks(uint64(len(values)), 0.5)
	if interval && low > 0 && high > 0 {
		return values[low-1], values[high-1], true
	}
	return values[0], values[len(values)-1], false
}

// overLoad says whether the factor is the load that a metric offers: then it grows, or falls, by a twentieth
// at least from point to point.
func (c Curve) overLoad(m Metric) bool {
	steps, up, down := 0, 0, 0
	for _, l := range c.Lines {
		last := math.NaN()
		for _, cell := range l.cells {
			if cell == nil || cell.loads[m.Name].wanted == 0 {
				continue
			}
			asked := cell.loads[m.Name]
			offered := asked.perSecond(asked.wanted)
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
