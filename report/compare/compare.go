// Package compare says by what factor one session differs from another, and what differs in their conditions.
//
// The runs of two sessions share no blocks, so they are independent samples: drift between the sessions is
// part of each ratio. Within a session it cancels, see package report/figures.
package compare

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"time"

	"isolane.dev/isolane/report/evidence"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Kind is at the head of the document.
const Kind = "Comparison"

const (
	confidence = 0.95
	// verdictRuns is how many runs of a cell each session must have for a verdict, as within a session.
	verdictRuns = 6
)

// Side is a session, with the user's name for it.
type Side struct {
	Name    string
	Session results.Session
}

// Document is what `isolane compare A B` prints.
type Document struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"` // Comparison
	A          Session `json:"a"`
	B          Session `json:"b"`
	// Notes are what a reader must know not to be misled, first of all that drift is not excluded.
	Notes       []string     `json:"notes"`
	Differences []Difference `json:"differences"` // of the conditions
	Comparisons []Comparison `json:"comparisons"`
	Without     []Without    `json:"withoutPartner"`
	metrics     []metric.Metric
}

// Session says which of the two it is.
type Session struct {
	Results  string    `json:"results"` // as the user named it
	Scenario string    `json:"scenario"`
	Mode     string    `json:"mode"`
	Complete bool      `json:"complete"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`
	Used     int       `json:"usedRuns"`
}

// Comparison is a metric in a cell of both sessions. The p-values have two families: all primary metrics in
// all cells, and all other metrics in all cells.
type Comparison struct {
	Cell     string            `json:"cell"` // as A names it
	Levels   map[string]string `json:"levels"`
	Baseline bool              `json:"baseline"` // of both sessions: a hint of drift
	Metric   string            `json:"metric"`
	Unit     string            `json:"unit"`
	Role     results.Role      `json:"role,omitempty"`
	A        Figure            `json:"a"`
	B        Figure            `json:"b"`
	Ratio    Ratio             `json:"ratio"`    // of B to A
	P        float64           `json:"p"`        // two-sided, of the rank sum test that the ratio is 1
	Over     string            `json:"over"`     // runs, or boots if the runs are not all of a single boot
	Adjusted *float64          `json:"adjusted"` // for the family, after Holm; null without a verdict
	Verdict  stats.Verdict     `json:"verdict,omitempty"`
	// Lowered are the guards that failed in either session, and make a verdict inconclusive.
	Lowered []string `json:"lowered,omitempty"`
	// Needed is about how many runs, or boots, each session needs for a verdict other than inconclusive.
	Needed int `json:"needed,omitempty"`
	metric metric.Metric
	a, b   figures.Figure
	found  figures.Comparison
	doubts []string
}

// Figure is what the used runs of a cell gave.
type Figure struct {
	Median float64 `json:"median"` // of the runs' values; the value of a distribution is its P50
	Runs   int     `json:"runs"`
	Boots  int     `json:"boots"` // in which they were made
	// Bound is "at least" or "at most" if the true figure may be better.
	Bound string `json:"bound,omitempty"`
}

// Ratio is the estimate of Hodges and Lehmann over all pairs of runs, or of boots, with its interval. If
// these are too few for one, low and high are the least and the greatest ratio of a pair of runs.
type Ratio struct {
	Estimate   float64 `json:"estimate"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"` // 0: no interval
	// Bound is the same for the ratio if one of the two is a bound; if both are, the ratio says nothing.
	Bound string `json:"bound,omitempty"`
}

// Without is a cell or a metric that cannot be compared.
type Without struct {
	What string `json:"what"` // cell noisy-lane-express
	In   string `json:"in"`   // A or B: the session that has it
	Why  string `json:"why"`
}

// Stored is Sessions for two directories with results, or the files there.
func Stored(a, b string, all bool) (Document, error) {
	var sides [2]Side
	for i, name := range []string{a, b} {
		dir := name
		if base := filepath.Base(name); base == results.File || base == results.Packed {
			dir = filepath.Dir(name)
		}
		s, err := results.Read(dir)
		if err != nil {
			return Document{}, err
		}
		sides[i] = Side{name, s}
	}
	return Sessions(sides[0], sides[1], all)
}

// Sessions compares b with a: the primary metrics of either, or all. It fails if they have no cell in common.
func Sessions(a, b Side, all bool) (Document, error) {
	d := Document{APIVersion: results.APIVersion, Kind: Kind, A: newSession(a), B: newSession(b),
		Differences: []Difference{}, Comparisons: []Comparison{}, Without: []Without{}}
	sa, err := figures.Summarize(a.Session)
	if err != nil {
		return d, fmt.Errorf("%s: %w", a.Name, err)
	}
	sb, err := figures.Summarize(b.Session)
	if err != nil {
		return d, fmt.Errorf("%s: %w", b.Name, err)
	}
	d.A.Used, d.B.Used = sa.Used, sb.Used
	pairs := d.pair(&sa, &sb)
	if len(pairs) == 0 {
		return d, fmt.Errorf("%s and %s have no cell in common: expected some of the same factors and levels, "+
			"as two sessions of one scenario have", a.Name, b.Name)
	}
	d.metrics = d.shared(&sa, &sb, all)
	if len(d.metrics) == 0 {
		return d, fmt.Errorf("%s and %s have no %smetric of one name and unit in common", a.Name, b.Name,
			map[bool]string{false: "primary "}[all])
	}
	for _, m := range d.metrics {
		for _, p := range pairs {
			d.compare(m, p[0], p[1], bootsOf(&sa, p[0].Name), bootsOf(&sb, p[1].Name))
		}
	}
	d.Notes = notes(&sa, &sb)
	if sa.Verdicts && sb.Verdicts {
		d.judge()
	}
	d.Differences = append(d.Differences, conditions(a.Session, b.Session, pairs)...)
	return d, nil
}

func newSession(s Side) Session {
	return Session{Results: s.Name, Scenario: s.Session.Scenario.Name, Mode: s.Session.Scenario.Mode,
		Complete: s.Session.Complete, Started: s.Session.Started, Ended: s.Session.Ended}
}

// pair finds the cells with the same levels, in the order of a, and says which have no partner.
func (d *Document) pair(a, b *figures.Summary) (pairs [][2]figures.Cell) {
	partner := func(c figures.Cell, in []figures.Cell) int {
		return slices.IndexFunc(in, func(o figures.Cell) bool { return maps.Equal(c.Levels, o.Levels) })
	}
	for _, c := range a.Cells {
		if k := partner(c, b.Cells); k >= 0 {
			pairs = append(pairs, [2]figures.Cell{c, b.Cells[k]})
		} else {
			d.Without = append(d.Without, Without{"cell " + c.Name, "A", "B has no cell of these levels"})
		}
	}
	for _, c := range b.Cells {
		if partner(c, a.Cells) < 0 {
			d.Without = append(d.Without, Without{"cell " + c.Name, "B", "A has no cell of these levels"})
		}
	}
	return pairs
}

// shared returns the metrics that mean the same in both, the primary ones first, as a describes them.
func (d *Document) shared(a, b *figures.Summary, all bool) []metric.Metric {
	var primary, others []metric.Metric
	for _, m := range a.Metrics {
		o := b.Metric(m.Name)
		switch {
		case !all && !m.IsPrimary() && (o == nil || !o.IsPrimary()):
		case o == nil:
			d.Without = append(d.Without, Without{"metric " + m.Name, "A", "B has no metric of this name"})
		case m.Metric.Unit != o.Metric.Unit, m.Quantity != o.Quantity, m.Better != o.Better, m.Sampled != o.Sampled:
			d.Without = append(d.Without, Without{"metric " + m.Name, "A", "that of B is another quantity or unit"})
		default:
			if m.Metric.Margin != o.Metric.Margin {
				d.Differences = append(d.Differences, Difference{"scenario: margin of " + m.Name,
					fmt.Sprintf("%g%% (used here)", 100*m.Metric.Margin), fmt.Sprintf("%g%%", 100*o.Metric.Margin)})
			}
			if m.IsPrimary() {
				primary = append(primary, m)
			} else {
				others = append(others, m)
			}
		}
	}
	for _, m := range b.Metrics {
		if (all || m.IsPrimary()) && a.Metric(m.Name) == nil {
			d.Without = append(d.Without, Without{"metric " + m.Name, "B", "A has no metric of this name"})
		}
	}
	return append(primary, others...)
}

func (d *Document) compare(m metric.Metric, a, b figures.Cell, bootsA, bootsB map[int]string) {
	fa, fb := a.Figure(m), b.Figure(m)
	found := related(fa, fb, bootsA, bootsB)
	gone := math.IsInf(fa.Centre, 1) || math.IsInf(fb.Centre, 1)
	if !found.Known() || gone {
		in, other, why := "A", "B", b.Missing(m)
		if len(fa.Blocks) == 0 {
			in, other, why = "B", "A", a.Missing(m)
		}
		if why == "" {
			why = map[bool]string{false: "no values above 0", true: "its median was lost"}[gone]
		}
		d.Without = append(d.Without, Without{fmt.Sprintf("%s in %s", m.Name, a.Name), in, other + ": " + why})
		return
	}
	low, high, _ := found.Spread()
	over := map[bool]string{false: "runs", true: "boots"}[found.Boots]
	d.Comparisons = append(d.Comparisons, Comparison{Cell: a.Name, Levels: a.Levels,
		Baseline: a.Baseline && b.Baseline, Metric: m.Name, Unit: m.Metric.Unit, Role: m.Role,
		A:     Figure{fa.Centre, len(fa.Blocks), len(byBoot(fa, bootsA)), fa.Side()},
		B:     Figure{fb.Centre, len(fb.Blocks), len(byBoot(fb, bootsB)), fb.Side()},
		Ratio: Ratio{found.Estimate, low, high, found.Confidence, fb.Over(fa).Side()}, P: found.P, Over: over,
		metric: m, a: fa, b: fb, found: found, doubts: doubts(m, a, b)})
}

// doubts returns the guards that failed in either cell or between them, once each. A run that carried nothing
// has no ratio, nor has one whose median was lost.
func doubts(m metric.Metric, a, b figures.Cell) (all []string) {
	fa, fb := a.Figure(m), b.Figure(m)
	found := slices.Concat(fa.Doubts, fb.Doubts)
	nothing := func(b figures.Block) bool { return b.Value == 0 || math.IsInf(b.Value, 1) }
	if slices.ContainsFunc(fa.Blocks, nothing) || slices.ContainsFunc(fb.Blocks, nothing) {
		found = append(found, "left out")
	}
	took := func(c figures.Cell) (all []float64) {
		for _, w := range c.Ways(m) {
			all = append(all, w.Took)
		}
		return all
	}
	if slices.Equal(a.Apart, b.Apart) && evidence.FarApart(stats.Median(took(a)), stats.Median(took(b))) {
		found = append(found, figures.DistanceOfCPUs)
	}
	for _, guard := range found {
		if !slices.Contains(all, guard) {
			all = append(all, guard)
		}
	}
	return all
}
