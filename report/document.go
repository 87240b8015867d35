package report

import (
	"fmt"
	"io"
	"math"
	"path/filepath"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
	"isolane.dev/isolane/terminal"
)

// Document has the content of the tables for programs: what `isolane report -o json` prints. The raw results
// are in results.json.
type Document struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"` // Report
	Page       string         `json:"page"` // the file that was written
	Scenario   string         `json:"scenario"`
	Mode       string         `json:"mode"`
	Complete   bool           `json:"complete"`
	Planned    int            `json:"plannedRuns"`
	Used       int            `json:"usedRuns"`
	Void       int            `json:"voidRuns"`
	Baseline   string         `json:"baseline,omitempty"` // the cell that the others are compared with
	Cells      []documentCell `json:"cells"`
	Aims       []figures.Aim  `json:"aims"`
	// Guards are the classic errors of measuring, and whether the session is free of them.
	Guards []figures.Guard `json:"guards"`
	// Objective has the bounds of the proved lane's objective, with a verdict on each.
	Objective []lane.Judgement `json:"objective,omitempty"`
	// Searches come without their trials, which are in results.json.
	Searches []documentSearch `json:"searches,omitempty"`
	summary  figures.Summary
}

// Write prints the tables.
func (d Document) Write(w io.Writer) {
	// A failed write ends the command, see terminal.Checked.
	_ = Text(w, d.summary, terminal.Of(w))
	fmt.Fprintf(w, "\nreport: %s\n", d.Page)
}

// Summary returns what the document was made from.
func (d Document) Summary() *figures.Summary { return &d.summary }

// documentCell is what a document says of one cell.
type documentCell struct {
	Name    string           `json:"name"`
	Used    int              `json:"usedRuns"`
	Void    int              `json:"voidRuns"`
	Figures []documentFigure `json:"figures"`
	// Isolation says how well a disturbed cell is isolated from the disturbance.
	Isolation []documentIsolation `json:"isolation,omitempty"`
}

// documentIsolation is about one value of a primary metric.
type documentIsolation struct {
	Metric    string         `json:"metric"`              // its name
	Statistic string         `json:"statistic,omitempty"` // P50 or p99.9 of a distribution
	Quiet     string         `json:"quietCell,omitempty"` // the same cell without the disturbance
	ToQuiet   *documentRatio `json:"toQuiet,omitempty"`   // the ratio to it
	Loser     string         `json:"loser,omitempty"`     // the disturbed cell that is otherwise as the baseline
	WonBack   *documentRatio `json:"wonBack,omitempty"`   // share of the loser's loss that is won back: 1 is all
	Because   string         `json:"because,omitempty"`   // why nothing can be said about that
}

// documentFigure is one quantity of a cell. What its sample does not support is null.
type documentFigure struct {
	Name     string         `json:"name"`
	Quantity string         `json:"quantity"`
	Unit     string         `json:"unit"`            // of what follows
	Role     results.Role   `json:"role,omitempty"`  // primary, cost or check
	Value    *float64       `json:"value,omitempty"` // the median of the blocks, if a run has one value
	P50      *float64       `json:"p50,omitempty"`   // of all runs merged
	P99      *float64       `json:"p99,omitempty"`
	P999     *float64       `json:"p999,omitempty"`
	Max      *float64       `json:"max,omitempty"`
	Samples  uint64         `json:"samples,omitempty"`
	Lost     uint64         `json:"lost,omitempty"`  // longer than all samples; a percentile among them is null
	Ratio    *documentRatio `json:"ratio,omitempty"` // to the baseline
	Verdict  stats.Verdict  `json:"verdict,omitempty"`
	// Bound is "at least" or "at most" if the true figure may be better, with the reason.
	Bound string `json:"bound,omitempty"`
	// Lowered is the guard that lowered the verdict, or "at least: " and what limits the figure, or "another
	// load", for which there is no verdict.
	Lowered string `json:"lowered,omitempty"`
	// Needed is about how many blocks, or boots, an inconclusive verdict needs, if only these are missing.
	Needed int `json:"needed,omitempty"`
}

// documentRatio is an estimate with its confidence interval. If the blocks are too few for an interval, low
// and high are the least and the greatest ratio of a block.
type documentRatio struct {
	Estimate   float64  `json:"estimate"`
	Low        *float64 `json:"low"`
	High       *float64 `json:"high"`
	Confidence float64  `json:"confidence"` // 0: no interval
	// Bound is "at least" or "at most" if one of its two figures is a bound. If both are, the ratio says
	// nothing.
	Bound  string `json:"bound,omitempty"`
	Blocks int    `json:"blocks"`
	Boots  int    `json:"boots,omitempty"` // instead of blocks, for cells of different boots
}

// newDocument returns the content of the tables for programs. dir is the directory of the results.
func newDocument(s *figures.Summary, dir string) Document {
	d := Document{APIVersion: results.APIVersion, Kind: "Report", Page: filepath.Join(dir, pageName),
		Scenario: s.Session.Scenario.Name, Mode: s.Session.Scenario.Mode, Complete: s.Session.Complete,
		Planned: s.Planned, Used: s.Used, Void: s.Void, Baseline: s.Baseline,
		Cells: []documentCell{}, Aims: append([]figures.Aim{}, s.Aims...),
		Guards: append([]figures.Guard{}, s.Guards...), Objective: s.Objective,
		Searches: newSearches(s), summary: *s}
	base := s.Cell(s.Baseline)
	for _, c := range s.Cells {
		cell := documentCell{Name: c.Name, Used: c.Used, Void: c.Void, Figures: []documentFigure{},
			Isolation: isolation(s, c.Name)}
		for _, m := range s.Metrics {
			if f := c.Figures[m.Name]; f != nil {
				one := newFigure(m, *f)
				if base != nil && !c.Baseline && m.IsFigure() {
					one.Ratio = newRatio(f.Ratio, f.Over(base.Figure(m)))
				}
				cell.Figures = append(cell.Figures, one)
			}
		}
		d.Cells = append(d.Cells, cell)
	}
	return d
}

func newFigure(m metric.Metric, f figures.Figure) documentFigure {
	r := documentFigure{Name: m.Name, Quantity: m.Quantity, Unit: m.Metric.Unit, Role: m.Role,
		Verdict: f.Verdict, Lowered: f.Lowered}
	if d := f.Merged; d != nil {
		r.P50, r.P99 = known(d.Quantile(0.5)), known(d.Quantile(0.99))
		r.P999, r.Max, r.Samples, r.Lost = known(d.Quantile(0.999)), known(d.Max()), d.N(), d.Lost
	} else {
		r.Value = known(f.Centre)
	}
	if side := f.Side(); side != "" {
		r.Bound = side + ": " + f.Limit
	}
	if f.Undecided() {
		r.Needed = f.Needed
	}
	return r
}

// newRatio returns nil if there is no estimate, or an infinite one, as after a loss. of says what bound it
// is.
func newRatio(c figures.Comparison, of figures.Figure) *documentRatio {
	if known(c.Estimate) == nil || !c.Known() {
		return nil
	}
	low, high, interval := c.Spread()
	r := &documentRatio{Estimate: c.Estimate, Low: known(low), High: known(high), Blocks: c.N,
		Bound: of.Side()}
	if c.Boots {
		r.Blocks, r.Boots = 0, c.N
	}
	if interval {
		r.Confidence = c.Confidence
	}
	return r
}

// isolation returns what the tables say about a disturbed cell.
func isolation(s *figures.Summary, cell string) (all []documentIsolation) {
	for _, i := range s.Isolation {
		for _, a := range i.Aspects {
			one := documentIsolation{Metric: a.Metric.Name, Statistic: a.Statistic}
			if a.Tail {
				one.Statistic = "p99.9"
			}
			if i.Quiet != nil {
				one.Quiet = i.Quiet.Name
				one.ToQuiet = newRatio(a.Cost, i.Cell.Figure(a.Metric).Over(i.Quiet.Figure(a.Metric)))
			}
			if i.Loser != nil {
				one.Loser, one.Because = i.Loser.Name, a.Why
				one.WonBack = newRatio(a.Back, wonBack(i.Cell.Figure(a.Metric)))
			}
			if i.Cell.Name == cell && (one.ToQuiet != nil || one.WonBack != nil || one.Because != "") {
				all = append(all, one)
			}
		}
	}
	return all
}

// known returns nil for what is no number.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
