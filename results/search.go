package results

import (
	"slices"
	"time"
)

// SearchKind says what a search looks for.
type SearchKind string

// The kinds of searches.
const (
	Smallest SearchKind = "smallest" // level of a factor at which a figure is reached: the least CPUs
	Highest  SearchKind = "highest"  // load at which a figure is reached
	Bounds   SearchKind = "bounds"   // the loads of RFC 9971: noiseless, deterministic, partial drop
)

// Search looks beside the fixed cells for the point up to which something holds. It gives brackets, for it
// does not assume that what holds at a point holds at each easier one.
type Search struct {
	Name   string     `json:"name"`
	Kind   SearchKind `json:"searchKind"`
	Varied string     `json:"varied"`         // what: cpus, rate of trip
	Unit   string     `json:"unit,omitempty"` // written behind a point: /s
	// Metric is the one whose figure must hold; "": what was lost.
	Metric string `json:"metric,omitempty"`
	// Points are those that trials may be made at, from the easiest to the hardest.
	Points []float64    `json:"points"`
	Window Nanoseconds  `json:"windowNanoseconds"` // of each trial
	Limit  int          `json:"limit"`             // trials of a cell at most
	Goals  []SearchGoal `json:"goals"`
	Cells  []Searched   `json:"cells"`
}

// SearchGoal is what must hold, and in how much of the trial time.
type SearchGoal struct {
	Name       string `json:"name"`
	Definition string `json:"definition"`
	// Loss is the part of what was sent that may be lost, where nothing else is asked for.
	Loss float64 `json:"lossRatio"`
	// Exceed is the part of the trial time in which it need not hold.
	Exceed float64 `json:"exceedRatio"`
	// Sum is the time of trials at one point that decides about it in any case.
	Sum Nanoseconds `json:"durationSumNanoseconds"`
}

// Searched are the trials in one cell, or in cells that differ in the varied factor only, and what they say.
type Searched struct {
	Name     string    `json:"name"`  // the levels of the cells, without that of the varied factor
	Cells    []Cell    `json:"cells"` // one, or one a point
	Trials   []Trial   `json:"trials"`
	Brackets []Bracket `json:"brackets"` // one a goal; none before the first trial
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
	Boot     int         `json:"boot,omitempty"`    // its place in the session's boots
	Dropped  string      `json:"dropped,omitempty"` // why it does not count although it is valid
	Void     []string    `json:"void,omitempty"`    // what contradicts the plan
	// Doubts are why what did not hold may be the client's fault.
	Doubts     []string `json:"doubts,omitempty"`
	Overloaded string   `json:"overloaded,omitempty"` // what could not be carried: no goal holds
	Loss       *float64 `json:"lossRatio,omitempty"`  // nil: unknown
	Value      *float64 `json:"value,omitempty"`      // of the search's metric; nil: none
	Held       []bool   `json:"held,omitempty"`       // by goal; none where the trial does not count
	// Measured is without the longest samples.
	Measured *Measurement `json:"measurement,omitempty"`
}

// Bracket is between which points something ceases to hold.
type Bracket struct {
	Holds *float64 `json:"holds"` // the hardest point easier than Fails at which it holds; nil: none
	Fails *float64 `json:"fails"` // the easiest point at which it does not hold; nil: none, so at least Holds
	// Throughput is the conditional throughput at Holds: of the trials there, what is carried in all but the
	// part of the time in which it need not be. Nil where nothing is lost in the sense of the search.
	Throughput *float64 `json:"conditionalThroughput,omitempty"`
	Notes      []string `json:"notes,omitempty"` // what the two do not say
}

// Gap is a quotient of two loads, less 1.
type Gap struct {
	Estimate float64  `json:"estimate"`
	Low      float64  `json:"low"`  // between the near ends of the brackets
	High     *float64 `json:"high"` // between the far ends; nil: the first may hold at any load
}

// NotCarried makes the measurement void because the application did not carry what it was asked to.
func (m *Measurement) NotCarried(why string) {
	m.Void, m.Overloaded = append(m.Void, why), append(m.Overloaded, why)
}

// Capacity is what the application carries at most of what a probe asks, per second.
type Capacity struct {
	Probe string    `json:"probe"`
	Cell  string    `json:"cell"`            // in which it was measured
	Rate  float64   `json:"perSecond"`       // the median of Runs
	Runs  []float64 `json:"runsPerSecond"`   // each with fresh processes, without the first
	Limit string    `json:"limit,omitempty"` // what else was at its limit: the application may carry more
}

// EveryCell are the session's and those of its searches.
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

// EveryRun are the session's runs, and of the trials of its searches where and when they were made.
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
