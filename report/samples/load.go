package samples

import (
	"time"

	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/results"
)

// Load is what an open loop asked for in the used runs of a cell, and what it got.
type Load struct {
	Wanted, Lost uint64
	Overloaded   int // runs
	window       time.Duration
}

// LeastLost is the lost share of what was asked beyond which a run is overloaded.
const LeastLost = 0.01

// Add adds a run. A measurement whose latencies mean nothing was overloaded in any case.
func (l *Load) Add(m results.Samples, void bool, window time.Duration) {
	l.Wanted, l.Lost, l.window = l.Wanted+m.Wanted, l.Lost+m.Lost, l.window+window
	if void || float64(m.Lost) > LeastLost*float64(m.Wanted) {
		l.Overloaded++
	}
}

// PerSecond returns a count per second of the window.
func (l Load) PerSecond(n uint64) float64 { return float64(n) / l.window.Seconds() }

// State says why percentiles of what was carried would not tell enough; "" if they do.
func (l Load) State() string {
	switch {
	case l.Lost > 0 && l.Lost == l.Wanted:
		return "all lost"
	case l.Overloaded > 0:
		return "overloaded"
	case l.Lost > 0:
		return "lost " + format.Count(l.Lost)
	}
	return ""
}
