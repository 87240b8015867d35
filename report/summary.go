// Package report turns a results directory into a table, a page and charts. It reads nothing but
// that directory, so a page can be made again from the raw results at any time.
//
// Summarize computes; Text, HTML and the charts only print what it found. Percentiles come from
// merged histograms and end where the sample ends; what a sample does not support is left out.
package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Throughput names the figure that stands for all throughput measurements of a run: the geometric
// mean of the directions, of runs in which none of them is void.
const Throughput = "throughput"

// primaryRTT is the measurement that stands for the round trip where a session has it.
const primaryRTT = "rtt-udp-64-pingpong"

// Summary is what a session says.
type Summary struct {
	Session  results.Session
	Baseline string // name of the cell that the others are compared with
	Planned  int    // runs, with those of the warm-up block
	Used     int    // runs
	Void     int
	Dropped  map[string]int // valid runs that are not used, by reason
	// Figures counts the single measurements in used runs, VoidFigures those of them that are void.
	Figures, VoidFigures int
	Verdicts             bool     // quick sessions have none
	Inconclusive         int      // verdicts on the primary figures
	Directions           []string // names of the throughput measurements
	RTTs                 []string // names of the RTT measurements
	RTT                  string   // the primary one, "" for none
	Cells                []Cell
	Costs                []Cost
	Aims                 []Aim
}

// Cell is what a session says of one cell.
type Cell struct {
	results.Cell
	Used, Void, Dropped int               // runs
	Figures             map[string]Figure // by measurement, and Throughput
	Work                []Figure          // what the neighbours got, against them in the floating cell
	WorkBase            string            // that cell, "" for none
	Proof               Proof
	Tail                Tail // of the primary RTT
}

// Label is the cell's name, with an asterisk where another path than the one asked was in force.
func (c Cell) Label() string {
	if c.PathInForce != c.Path && c.PathInForce != "" {
		return c.Name + "*"
	}
	return c.Name
}

// Figure is one quantity over the used runs of a cell.
type Figure struct {
	Name   string
	Metric string  // rtt or throughput; work for what neighbours got
	Blocks []Block // one a run
	Centre float64 // median of the blocks' values, NaN for none
	Ratio  Comparison
	Means  Comparison    // of the mean RTTs, as papers print them
	P      float64       // of no difference, adjusted by Holm
	RTT    *Distribution // nil for throughput
	// Verdict is "" in quick sessions and for the baseline.
	Verdict stats.Verdict
}

// Block is one run's value: bit/s, or nanoseconds of P50. The others are nanoseconds too, NaN where
// there is none or where the run's sample is too small for it.
type Block struct {
	Block                  int
	Value, Mean, P99, P999 float64
}

// Distribution is a histogram merged over runs, and what it supports.
type Distribution struct {
	Histogram *hdrhistogram.Histogram
	Lag       *hdrhistogram.Histogram // open loop: actual minus intended send time
	Sent      uint64
	Lost      uint64
	Supported float64       // the highest quantile that the sample supports
	Window    time.Duration // of all runs together
	Open      bool          // open loop
}

// N is the size of the sample.
func (d *Distribution) N() uint64 {
	if d == nil {
		return 0
	}
	return uint64(d.Histogram.TotalCount())
}

// Quantile returns a percentile in nanoseconds, NaN where the sample is too small for it.
func (d *Distribution) Quantile(p float64) float64 {
	if d == nil || d.N() < stats.SamplesFor(p) {
		return math.NaN()
	}
	return float64(d.Histogram.ValueAtQuantile(100 * p))
}

// Max is the longest round trip in nanoseconds, NaN for an empty sample.
func (d *Distribution) Max() float64 {
	if d.N() == 0 {
		return math.NaN()
	}
	return float64(d.Histogram.Max())
}

// Summarize computes everything that the table and the page show.
func Summarize(s results.Session) (Summary, error) {
	sum := Summary{Session: s, Verdicts: s.Scenario.Mode != "quick", Dropped: map[string]int{},
		Planned: (s.Scenario.Blocks + 1) * len(s.Cells)}
	for _, r := range s.Runs {
		sum.count(r)
	}
	if len(sum.RTTs) > 0 {
		sum.RTT = sum.RTTs[0]
		if slices.Contains(sum.RTTs, primaryRTT) {
			sum.RTT = primaryRTT
		}
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
	sum.compareWork()
	sum.Costs = sum.costs()
	sum.Aims = sum.aims()
	return sum, nil
}

func (s *Summary) count(r results.Run) {
	switch {
	case len(r.Void) > 0:
		s.Void++
	case r.Dropped != "":
		s.Dropped[r.Dropped]++
	default:
		s.Used++
	}
	for _, m := range r.Measured {
		switch {
		case m.Rate != nil && !slices.Contains(s.Directions, m.Name):
			s.Directions = append(s.Directions, m.Name)
		case m.RTT != nil && !slices.Contains(s.RTTs, m.Name):
			s.RTTs = append(s.RTTs, m.Name)
		}
		if r.Used() {
			s.Figures++
			if len(m.Void) > 0 {
				s.VoidFigures++
			}
		}
	}
}

// newCell gathers the used runs of a cell. Comparisons come later.
func (s *Summary) newCell(c results.Cell) (Cell, error) {
	cell := Cell{Cell: c, Figures: map[string]Figure{}}
	var used []results.Run
	for _, r := range s.Session.Runs {
		switch {
		case r.Cell != c.Name:
		case len(r.Void) > 0:
			cell.Void++
		case r.Dropped != "":
			cell.Dropped++
		default:
			cell.Used++
			used = append(used, r)
		}
	}
	slices.SortStableFunc(used, func(a, b results.Run) int { return cmp.Compare(a.Block, b.Block) })
	for _, r := range used {
		if err := cell.add(r, len(s.Directions)); err != nil {
			return cell, err
		}
	}
	for name, f := range cell.Figures {
		f.Centre = median(f.Blocks)
		cell.Figures[name] = f
	}
	cell.Work = work(used)
	cell.Proof = newProof(c, used)
	cell.Tail = newTail(s.RTT, c, used)
	return cell, nil
}

// add takes in the measurements of one run that are not void.
func (c *Cell) add(r results.Run, directions int) error {
	product, rates := 1.0, 0
	for _, m := range r.Measured {
		if len(m.Void) > 0 {
			continue
		}
		f := c.Figures[m.Name]
		f.Name, f.Metric = m.Name, m.Metric
		switch {
		case m.Rate != nil:
			f.Blocks = append(f.Blocks, newBlock(r.Block, m.Rate.BitsPerSecond))
			product *= m.Rate.BitsPerSecond
			rates++
		case m.RTT != nil:
			if err := f.merge(m, r.Block); err != nil {
				return fmt.Errorf("block %d, %s, %s: %w", r.Block, r.Cell, m.Name, err)
			}
		}
		c.Figures[m.Name] = f
	}
	if rates > 0 && rates == directions {
		f := c.Figures[Throughput]
		f.Name, f.Metric = Throughput, Throughput
		f.Blocks = append(f.Blocks, newBlock(r.Block, math.Pow(product, 1/float64(rates))))
		c.Figures[Throughput] = f
	}
	return nil
}

func newBlock(block int, value float64) Block {
	return Block{Block: block, Value: value, Mean: math.NaN(), P99: math.NaN(), P999: math.NaN()}
}

// merge adds a run's histograms to those of the runs before, and its own values.
func (f *Figure) merge(m results.Measurement, block int) error {
	h, err := m.RTT.Latency.Decode()
	if err != nil {
		return err
	}
	lag, err := m.RTT.SendLag.Decode()
	if err != nil {
		return err
	}
	if f.RTT == nil {
		f.RTT = &Distribution{Histogram: results.NewHistogram(), Lag: results.NewHistogram()}
	}
	d := f.RTT
	if lost := d.Histogram.Merge(h) + d.Lag.Merge(lag); lost > 0 {
		return fmt.Errorf("%d values are beyond the range of the histogram", lost)
	}
	d.Sent += m.RTT.Sent
	d.Lost += m.RTT.Lost
	d.Window += time.Duration(m.Window)
	d.Supported = stats.SupportedQuantile(d.N())
	d.Open = m.RTT.Mode == "open"
	one := &Distribution{Histogram: h}
	if one.N() == 0 {
		return nil // everything was lost; the losses count, but there is no latency
	}
	b := newBlock(block, float64(h.ValueAtQuantile(50)))
	b.Mean, b.P99, b.P999 = h.Mean(), one.Quantile(0.99), one.Quantile(0.999)
	f.Blocks = append(f.Blocks, b)
	return nil
}

func median(blocks []Block) float64 {
	var values []float64
	for _, b := range blocks {
		values = append(values, b.Value)
	}
	return stats.Median(values)
}

// cell returns the cell of that name, or nil.
func (s *Summary) cell(name string) *Cell {
	for i := range s.Cells {
		if s.Cells[i].Name == name {
			return &s.Cells[i]
		}
	}
	return nil
}

// paper returns the published figure of a cell for a metric.
func (c Cell) paper(metric string) (results.Published, bool) {
	for _, p := range c.Published {
		if p.Metric == metric {
			return p, true
		}
	}
	return results.Published{}, false
}

// short is the last part of a measurement's name: the direction.
func short(name string) string { return name[strings.LastIndexByte(name, '-')+1:] }
