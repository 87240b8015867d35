// Package figures makes the figures of a session from its results: medians, ratios to the baseline with their
// intervals, verdicts, aims, the objective of a lane, and the evidence on where threads ran.
//
// What was sampled is in report/samples, what a metric is called, and its unit, in report/metric.
//
//	sum, err := figures.Summarize(session)
//	fmt.Println(sum.Baseline, sum.Aims, sum.Cell("noisy-lane-express").Figures["throughput"].Ratio)
package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/report/evidence"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/report/samples"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Summary is what a session says.
type Summary struct {
	Session            results.Session
	Baseline           string         // name of the cell that the others are compared with
	Planned            int            // runs, including those of the warm-up block
	Used, Void         int            // runs
	Again              int            // runs that replaced void ones
	Dropped            map[string]int // valid runs that are not used, by reason
	Values, VoidValues int            // single measurements in used runs
	Late               int            // of these, those of late clients, which are bounds and not void
	Verdicts           bool           // quick sessions have none
	Metrics            []metric.Metric
	Cells              []Cell
	Isolation          []Isolation // of disturbed cells
	Aims               []Aim
	Guards             []Guard
	Objective          []lane.Judgement // of the lane that was proved; none in other sessions
}

// Cell is what a session says about one cell.
type Cell struct {
	results.Cell
	Look
	Published  []results.Published
	Used, Void int                     // runs
	used       []results.Run           // by block
	Boots      []int                   // in which the used ones were made, of the session's
	Figures    map[string]*Figure      // by metric
	loads      map[string]samples.Load // of what is sampled, by metric
	lacks      map[string]lack         // by metric
	spoilt     lack                    // void runs
	Work       map[string]*Figure      // what the neighbours got, relative to the standard cell
	WorkBase   string                  // that cell; "" for none
	Evidence   evidence.Evidence
	Machine    evidence.Machine
	Tail       evidence.Tail // of the primary round trip
}

// Label returns the cell's name, with an asterisk if another level than the requested one was in force.
func (c Cell) Label() string {
	if len(c.InForce) > 0 {
		return c.Name + "*"
	}
	return c.Name
}

// Figure returns what a cell has of a metric; without blocks if there is nothing.
func (c Cell) Figure(m metric.Metric) Figure { return c.figure(m.Name) }

func (c Cell) figure(name string) Figure {
	if f, ok := c.Figures[name]; ok {
		return *f
	}
	return Figure{Centre: math.NaN()}
}

// Figure is one quantity over the used runs of a cell.
type Figure struct {
	Blocks  []Block // one per run
	Centre  float64 // median of the blocks' values; NaN for none
	Ratio   Comparison
	Means   Comparison            // of the means of distributions, as papers print them
	Merged  *samples.Distribution // nil if a run gives one value
	runs    []*samples.Distribution
	Verdict stats.Verdict // "" in quick sessions and for the baseline
	Needed  int           // about how many blocks, or boots, a verdict other than inconclusive needs
	Lowered string        // the guard that lowered it, "at least: " and what limited the figure, or otherLoad
	Limit   string        // what was at its limit, or late, so that the true figure may be better
	AtMost  bool          // then it is an upper bound; else a lower one
	Doubts  []string      // the guards that failed in this cell, even without a verdict
}

// Block is one run's value, in the unit of its metric; for a distribution the median. The others are NaN
// without a distribution, or if the run's sample is too small. The mean excludes what was lost.
type Block struct {
	Block                       int
	Value, Mean, P90, P99, P999 float64
	Late                        bool // its client was late: they are bounds
}

// At returns the block of that number.
func (f Figure) At(number int) (Block, bool) {
	if b := first(f.Blocks, func(b Block) bool { return b.Block == number }); b != nil {
		return *b, true
	}
	return Block{}, false
}

// first returns the first element that fits; nil for none.
func first[T any](all []T, fits func(T) bool) *T {
	if k := slices.IndexFunc(all, fits); k >= 0 {
		return &all[k]
	}
	return nil
}

// Summarize computes everything that text, page and charts show.
func Summarize(s results.Session) (Summary, error) {
	sum := Summary{Session: s, Verdicts: s.Scenario.Mode != "quick", Dropped: map[string]int{},
		Planned: (s.Scenario.Blocks + max(1, s.Scenario.Boots)) * len(s.Cells)}
	for _, m := range s.Metrics {
		sum.Metrics = append(sum.Metrics, metric.New(m, s.Metrics))
	}
	for _, c := range s.Cells {
		if c.Baseline {
			sum.Baseline = c.Name
		}
		cell, err := sum.newCell(c)
		if err != nil {
			return sum, err
		}
		sum.Cells = append(sum.Cells, cell)
	}
	sum.compare()
	sum.Guards = sum.guard()
	sum.compareWork()
	sum.Isolation = sum.isolate()
	sum.Aims = sum.aims()
	sum.Objective = sum.judgeLane()
	return sum, nil
}

// newCell collects the used runs of a cell and counts all of them. Comparisons come later.
func (s *Summary) newCell(c results.Cell) (Cell, error) {
	cell := Cell{Cell: c, Look: s.look(c), Figures: map[string]*Figure{}, Work: map[string]*Figure{},
		loads: map[string]samples.Load{}, lacks: map[string]lack{}}
	for _, p := range s.Session.Scenario.Published {
		if p.Cell == c.Name {
			cell.Published = append(cell.Published, p)
		}
	}
	for _, r := range s.Session.Runs {
		if r.Cell == c.Name && r.Again > 0 {
			s.Again++
		}
		switch {
		case r.Cell != c.Name:
		case len(r.Void) > 0:
			cell.addVoid(r)
		case r.Dropped != "":
			s.Dropped[r.Dropped]++
		default:
			cell.used = append(cell.used, r)
		}
	}
	slices.SortStableFunc(cell.used, func(a, b results.Run) int { return cmp.Compare(a.Block, b.Block) })
	for _, r := range cell.used {
		for _, m := range r.Measured {
			s.Values++
			if err := s.take(&cell, m, r.Block); err != nil {
				return cell, fmt.Errorf("block %d, %s, %s: %w", r.Block, r.Cell, m.Name, err)
			}
		}
		cell.addWork(r)
	}
	for _, m := range s.Metrics {
		cell.addMean(m)
	}
	for _, figures := range []map[string]*Figure{cell.Figures, cell.Work} {
		for _, f := range figures {
			f.Centre = median(f.Blocks)
		}
	}
	cell.Used, cell.Boots = len(cell.used), bootsOf(cell.used)
	s.Used, s.Void = s.Used+cell.Used, s.Void+cell.Void
	cell.Evidence, cell.Machine = evidence.Of(c, cell.used), evidence.MachineOf(c, cell.used)
	cell.Tail = evidence.TailOf(s.PrimaryDistribution().Name, c, cell.used)
	return cell, nil
}

// Values returns the values of the blocks, see Block.Of, leaving out blocks without one.
func (f Figure) Values(statistic string) (all []float64) {
	for _, b := range f.Blocks {
		if v := b.Of(statistic); !math.IsNaN(v) {
			all = append(all, v)
		}
	}
	return all
}

func median(blocks []Block) float64 { return stats.Median(Figure{Blocks: blocks}.Values("")) }

// Cell returns the cell of that name, or nil.
func (s *Summary) Cell(name string) *Cell {
	return first(s.Cells, func(c Cell) bool { return c.Name == name })
}

// Sampled returns the cells that have samples.
func (s *Summary) Sampled(m metric.Metric) []Cell {
	return slices.DeleteFunc(slices.Clone(s.Cells), func(c Cell) bool { return c.Figure(m).Merged.N() == 0 })
}

// NoRun is why a cell has no figure if the session has not come to it yet.
const NoRun = "no run used"

// Unused says why no run of a cell is used; "" if one is.
func (c Cell) Unused() string {
	switch {
	case c.Used > 0:
		return ""
	case c.Void > 0:
		return "all runs void"
	}
	return NoRun
}

// Missing says why a cell has no figure of a metric; "" if it has one.
func (c Cell) Missing(m metric.Metric) string {
	switch {
	case len(c.Figure(m).Blocks) > 0 || c.Used == 0:
		return c.Unused()
	case m.Loop == results.Open && c.loads[m.Name].Overloaded > 0:
		return c.loads[m.Name].State()
	case len(m.MeanOf) > 0:
		return "no run with all directions"
	}
	return "no valid measurement"
}

// Command returns the command that repeats the session.
func (s *Summary) Command() string {
	sc := s.Session.Scenario
	if l := s.Session.Lane; l != nil {
		return fmt.Sprintf("isolane prove %s --lane %s --%s --seed %d", sc.Name, l.Name, sc.Mode, sc.Seed)
	}
	var cells []string
	for _, c := range s.Cells {
		cells = append(cells, c.Name)
	}
	return fmt.Sprintf("isolane prove %s --%s --seed %d --cells %s", sc.Name, sc.Mode, sc.Seed,
		strings.Join(cells, ","))
}
