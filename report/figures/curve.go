package figures

import (
	"cmp"
	"fmt"
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
	Where  string   // levels of the factors that neither the axis nor the lines show: "express"
	By     string   // the factors that the lines show: "noise-placement"
	Lines  []Line
}

// Line is one combination of the other factors. Its points ascend.
type Line struct {
	Name   string
	Look   Look
	Points []Point
}

// Label is its name, or what stands for none.
func (l Line) Label() string { return cmp.Or(l.Name, "all cells") }

// Point is a cell at its level.
type Point struct {
	Level float64
	Cell  Cell
}

// number reads a level that is one, with or without a unit: 100, 64Ki, 200us.
func number(level string) (float64, bool) {
	if v, err := strconv.ParseFloat(level, 64); err == nil {
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	if d, err := quantity.ParseDuration(level); err == nil {
		return float64(d), true
	}
	if r, err := quantity.ParseBitRate(level); err == nil {
		return float64(r), true
	}
	b, err := quantity.ParseBytes(level)
	return float64(b), err == nil
}

// Curves are those over each factor of numbers: one for each combination of what its lines do not show. Lines
// differ in hue by another factor, and are pale where nothing disturbs.
func (s *Summary) Curves() (all []Curve) {
	for _, f := range s.Session.Factors {
		numbers := !slices.ContainsFunc(f.Levels, func(l results.Level) bool { _, is := number(l.Name); return !is })
		if f.Quiet != "" || !numbers {
			continue
		}
		hue := s.mainBut(f.Name)
		curves := []Curve{}
		for _, c := range s.Cells {
			level, ok := c.Levels[f.Name]
			if !ok || c.Used == 0 {
				continue
			}
			at, _ := number(level)
			own := Look{Hue: -1, Pale: c.Pale}
			var by, name, where []string
			for _, o := range s.Session.Factors {
				switch l := c.Levels[o.Name]; {
				case l == "" || o.Name == f.Name:
				case hue != nil && o.Name == hue.Name:
					own.Hue = slices.IndexFunc(o.Levels, func(k results.Level) bool { return k.Name == l })
					by, name = append(by, o.Name), append(name, l)
				case o.Quiet != "":
					own.Dashed = l != o.Quiet && l != strings.Split(Disturbed(&o), ", ")[0]
					by, name = append(by, o.Name), append(name, l)
				default:
					where = append(where, l)
				}
			}
			curve := find(&curves, func(c Curve) bool { return c.Where == strings.Join(where, "-") })
			curve.Factor, curve.Where, curve.By = f.Name, strings.Join(where, "-"), strings.Join(by, "-")
			if !slices.Contains(curve.Levels, level) {
				curve.Levels = append(curve.Levels, level)
			}
			line := find(&curve.Lines, func(l Line) bool { return l.Name == strings.Join(name, "-") })
			line.Name, line.Look = strings.Join(name, "-"), own
			line.Points = append(line.Points, Point{at, c})
		}
		for _, c := range curves {
			slices.SortFunc(c.Levels, func(a, b string) int {
				x, _ := number(a)
				y, _ := number(b)
				return cmp.Compare(x, y)
			})
			for _, l := range c.Lines {
				slices.SortStableFunc(l.Points, func(a, b Point) int { return cmp.Compare(a.Level, b.Level) })
			}
			if slices.ContainsFunc(c.Lines, func(l Line) bool { return len(l.Points) > 1 }) {
				all = append(all, c)
			}
		}
	}
	return all
}

// find returns the first element that is as wanted, or a new one behind the others.
func find[T any](all *[]T, wanted func(T) bool) *T {
	k := slices.IndexFunc(*all, wanted)
	if k < 0 {
		k, *all = len(*all), append(*all, *new(T))
	}
	return &(*all)[k]
}

// Load is what an open loop asked of the used runs of a cell, and what it got.
type Load struct {
	Wanted, Lost uint64
	Window       time.Duration
	Runs, Over   int // those of them that were overloaded
}

// addLoad takes in what was asked, also of measurements whose latencies say nothing as they were overloaded.
func (c *Cell) addLoad(s *Summary, m results.Measurement) {
	for _, why := range m.Void {
		if !strings.HasPrefix(why, results.Overloaded) {
			return
		}
	}
	for name, samples := range m.Samples {
		if metric, ok := s.metric(name); ok && metric.Loop == results.Open {
			l := c.Loads[name]
			l.Wanted, l.Lost, l.Window = l.Wanted+samples.Wanted, l.Lost+samples.Lost, l.Window+time.Duration(m.Window)
			l.Runs++
			if len(m.Void) > 0 || float64(samples.Lost) > leastLost*float64(samples.Wanted) {
				l.Over++
			}
			c.Loads[name] = l
		}
	}
}

// leastLost is the share of what was asked beyond which a run that did not get it is overloaded.
const leastLost = 0.01

// Offered and Carried are per second.
func (l Load) Offered() float64 { return float64(l.Wanted) / l.Window.Seconds() }

// Carried is what came to its end.
func (l Load) Carried() float64 { return float64(l.Wanted-l.Lost) / l.Window.Seconds() }

// State says why percentiles of what was carried would tell too little: "" where they do not.
func (l Load) State() string {
	switch {
	case l.Over > 0:
		return "overloaded"
	case l.Lost > 0:
		return fmt.Sprintf("lost %s", format.Count(l.Lost))
	}
	return ""
}

// Reading is what a point of a curve shows of a metric.
type Reading struct {
	X       float64 // what was carried per second, or the level
	Offered float64 // per second, of a load
	State   string  // why there are no values, "" where there are
	Over    bool    // it was overloaded
	// Values by statistic, with the interval of the runs around each; NaN for none.
	Values, Lo, Hi []float64
}

// Track is what a curve shows of a metric.
type Track struct {
	Load       bool        // X is what was carried per second
	Spread     string      // what Lo and Hi are
	Statistics []string    // P50, P99 and P99.9 of samples; else one without a name
	Lines      [][]Reading // as those of the curve
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
	t := Track{Load: c.overLoad(m), Spread: "least to greatest run"}
	for _, s := range m.statistics() {
		t.Statistics = append(t.Statistics, s.name)
	}
	for _, l := range c.Lines {
		var line []Reading
		for _, p := range l.Points {
			f, load := p.Cell.Figure(m), p.Cell.Loads[m.Name]
			r := Reading{X: p.Level, State: m.Missing(p.Cell)}
			if t.Load {
				r.X, r.Offered, r.Over = load.Carried(), load.Offered(), load.Lost > 0
				r.State = cmp.Or(load.State(), r.State)
			}
			for _, s := range m.statistics() {
				value := f.Centre
				if m.Sampled {
					value = f.Merged.Quantile(s.quantile)
				}
				lo, hi, interval := f.runs(s.of, !m.Sampled)
				if interval {
					t.Spread = "95% interval"
				}
				r.Values, r.Lo, r.Hi = append(r.Values, value), append(r.Lo, lo), append(r.Hi, hi)
			}
			line = append(line, r)
		}
		t.Lines = append(t.Lines, line)
	}
	return t
}

// runs are the least and the greatest value of a run, NaN for less than two, or the ends of the 95% interval of
// their median by order statistics where there are enough for one.
func (f Figure) runs(of func(Block) float64, interval bool) (lo, hi float64, is bool) {
	var values []float64
	for _, b := range f.Blocks {
		if v := of(b); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	if len(values) < 2 {
		return math.NaN(), math.NaN(), false
	}
	slices.Sort(values)
	if low, high := stats.QuantileRanks(uint64(len(values)), 0.5); interval && low > 0 && high > 0 {
		return values[low-1], values[high-1], true
	}
	return values[0], values[len(values)-1], false
}

// overLoad says whether the factor is the load that a metric offers: then it grows, or falls, by a twentieth at
// least from point to point.
func (c Curve) overLoad(m Metric) bool {
	steps, up, down := 0, 0, 0
	for _, l := range c.Lines {
		last := math.NaN()
		for _, p := range l.Points {
			load := p.Cell.Loads[m.Name]
			if load.Runs == 0 {
				continue
			}
			if !math.IsNaN(last) {
				steps++
			}
			switch offered := load.Offered(); {
			case offered > 1.05*last:
				up++
			case offered < last/1.05:
				down++
			}
			last = load.Offered()
		}
	}
	return steps > 0 && max(up, down) == steps
}
