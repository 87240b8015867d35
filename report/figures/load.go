package figures

import (
	"math"
	"slices"
	"time"

	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Load is what an open loop asked of the used runs of a cell, and what it got.
type Load struct {
	Wanted, Lost uint64
	window       time.Duration
	over         int // runs that were overloaded
}

// leastLost is the share of what was asked beyond which a run that did not get it is overloaded.
const leastLost = 0.01

// Load is what was asked of a metric, nothing where that is no open loop.
func (c Cell) Load(m Metric) Load { return c.loads[m.Name] }

// addLoad takes in what was asked, also of measurements whose latencies say nothing as they were overloaded.
func (c *Cell) addLoad(m results.Measurement) {
	for _, why := range m.Void {
		if !slices.Contains(m.Overloaded, why) {
			return
		}
	}
	for name, samples := range m.Samples {
		l := c.loads[name]
		l.Wanted, l.Lost, l.window = l.Wanted+samples.Wanted, l.Lost+samples.Lost, l.window+time.Duration(m.Window)
		if len(m.Void) > 0 || float64(samples.Lost) > leastLost*float64(samples.Wanted) {
			l.over++
		}
		c.loads[name] = l
	}
}

// PerSecond is how many of so many there were in a second.
func (l Load) PerSecond(n uint64) float64 { return float64(n) / l.window.Seconds() }

// State says why percentiles of what was carried would tell too little: "" where they do not.
func (l Load) State() string {
	switch {
	case l.Lost > 0 && l.Lost == l.Wanted:
		return "all lost"
	case l.over > 0:
		return "overloaded"
	case l.Lost > 0:
		return "lost " + format.Count(l.Lost)
	}
	return ""
}

// Runs are the least and the greatest value of a run, NaN for less than two, or the ends of the 95% interval
// of their median by order statistics where there are enough for one.
func (f Figure) Runs(statistic string, interval bool) (lo, hi float64, is bool) {
	values := f.Values(statistic)
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
