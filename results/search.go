package results

import (
	"slices"
	"time"
)

// SearchKind says what a search looks for.
type SearchKind string

// The kinds of searches.
const (
	Smallest SearchKind = "smallest" // least level of a factor at which a figure is reached: the fewest CPUs
	Highest  SearchKind = "highest"  // the highest load at which a figure is reached
	Bounds   SearchKind = "bounds"   // the loads of RFC 9971: noiseless, deterministic, partial drop
)

// Search looks, beside the fixed cells, for the point up to which something holds. It returns brackets,
// because it does not assume that what holds at one point holds at all easier ones.
type Search struct {
	Name   string     `json:"name"`
	Kind   SearchKind `json:"searchKind"`
	Varied string     `json:"varied"`         // what is varied: cpus, rate of trip
	Unit   string     `json:"unit,omitempty"` // printed after a point: /s
	// Metric names the metric whose figure must hold; "": the losses.
	Metric string `json:"metric,omitempty"`
	// Points are the points of possible trials, from the easiest to the hardest.
	Points []float64    `json:"points"`
	Window Nanoseconds  `json:"windowNanoseconds"` // of each trial
	Limit  int          `json:"limit"`             // most trials of a cell
	Goals  []SearchGoal `json:"goals"`
	Cells  []Searched   `json:"cells"`
}

// SearchGoal is what must hold, and in how much of the trial time.
type SearchGoal struct {
	Name       string `json:"name"`
	Definition string `json:"definition"`
	// Loss is the share of the sent messages that may be lost, if nothing else is required.
	Loss float64 `json:"lossRatio"`
	// Exceed is the share of the trial time in which the goal need not hold.
	Exceed float64 `json:"exceedRatio"`
	// Sum is the time of trials at one point that always decides about it.
	Sum Nanoseconds `json:"durationSumNanoseconds"`
}

// Searched has the trials in one cell, or in cells that differ only in the varied factor, and their result.
type Searched struct {
	Name     string    `json:"name"`  // the levels of the cells, except that of the varied factor
	Cells    []Cell    `json:"cells"` // one, or one for each point
	Trials   []Trial   `json:"trials"`
	Brackets []Bracket `json:"brackets"` // one for each goal; none before the first trial
	Settled  bool      `json:"settled"`  // no further trial is due
	// Gap is how much more the first goal allows than the second, as a part of 1: what a single run may reach
	// beyond what can be relied on.
	Gap *Gap `json:"gap,omitempty"`
}

// Trial is one run at one point, with fresh processes and sockets.
type Trial struct {
	Cell     string      `json:"cell"`
	Point    float64     `json:"point"`
	Started  time.Time   `json:"started"`
	Duration Nanoseconds `json:"durationNanoseconds"`
	Boot     int         `json:"boot,omitempty"`    // index into the session's boots
	Dropped  string      `json:"dropped,omitempty"` // why this valid trial does not count
	Void     []string    `json:"void,omitempty"`    // what contradicts the plan
	// Doubts say why the client may be to blame for what did not hold.
	Doubts     []string `json:"doubts,omitempty"`
	Overloaded string   `json:"overloaded,omitempty"` // what the application could not carry: no goal holds
	Loss       *float64 `json:"lossRatio,omitempty"`  // nil: unknown
	Value      *float64 `json:"value,omitempty"`      // of the search's metric; nil: none
	Held       []bool   `json:"held,omitempty"`       // by goal; nil if the trial does not count
	// Measured is the measurement without its longest samples.
	Measured *Measurement `json:"measurement,omitempty"`
}

// Bracket says between which points something ceases to hold.
type Bracket struct {
	Holds *float64 `json:"holds"` // the hardest point easier than Fails at which it holds; nil: none
	Fails *float64 `json:"fails"` // the easiest point at which it does not hold; nil: none, so at least Holds
	// Throughput is the conditional throughput at Holds: what the trials there carried in all but the part of
	// the time in which the goal need not hold. It is nil if the search is not about losses.
	Throughput *float64 `json:"conditionalThroughput,omitempty"`
	Notes      []string `json:"notes,omitempty"` // what the two points do not say
}

// Gap is a quotient of two loads, minus 1.
type Gap struct {
	Estimate float64  `json:"estimate"`
	Low      float64  `json:"low"`  // between the near ends of the brackets
	High     *float64 `json:"high"` // between the far ends; nil: the first goal may hold at any load
}

// NotCarried makes the measurement void because the application did not carry the requested load.
func (m *Measurement) NotCarried(why string) {
	m.Void, m.Overloaded = append(m.Void, why), append(m.Overloaded, why)
}

// Capacity is the most that the application carries of what a probe requests, per second.
type Capacity struct {
	Probe string    `json:"probe"`
	Cell  string    `json:"cell"`            // in which it was measured
	Rate  float64   `json:"perSecond"`       // the median of Runs
	Runs  []float64 `json:"runsPerSecond"`   // each with fresh processes; the first run is left out
	Limit string    `json:"limit,omitempty"` // what else was at its limit: the application may carry more
}

// EveryCell returns the cells of the session and of its searches.
func EveryCell(s *Session) []*Cell {
	var all []*Cell
	for i := range s.Cells {
		all = append(all, &s.Cells[i])
	}
	for i := range s.Searches {
		for k := range s.Searches[i].Cells {
			for n := range s.Searches[i].Cells[k].Cells {
				all = append(all, &s.Searches[i].Cells[k].Cells[n])
			}
		}
	}
	return all
}

// EveryRun returns the session's runs. For the trials of its searches it has only the cell and the boot.
func EveryRun(s *Session) []Run {
	all := slices.Clone(s.Runs)
	for _, q := range s.Searches {
		for _, d := range q.Cells {
			for _, t := range d.Trials {
				all = append(all, Run{Cell: t.Cell, Boot: t.Boot})
			}
		}
	}
	return all
}
