package stats

import "math"

// MostNeeded is the largest result of Needed: nobody measures longer than that for a verdict.
const MostNeeded = 1000

// Design says how two samples were taken.
type Design int

// The designs.
const (
	Paired   Design = iota // in the same blocks: Compare
	Unpaired               // independent of each other: CompareUnpaired
)

// least returns the smallest two-sided p-value that n values of each sample can give: all on one side.
func (d Design) least(n int) float64 {
	p := 2.0
	for k := range n {
		if d == Paired {
			p /= 2
		} else {
			p *= float64(k+1) / float64(n+k+1)
		}
	}
	return p
}

// Least returns how many values each sample must have before any difference can be shown among so many
// comparisons, as Holm's correction requires for the first: 6 pairs, or 4 values of each independent sample,
// for one comparison.
func (d Design) Least(comparisons int, alpha float64) int {
	n := 1
	for n < MostNeeded && d.least(n)*float64(max(1, comparisons)) > alpha {
		n++
	}
	return n
}

// Needed estimates how many values each sample must have for a verdict in four sessions of five, at most
// MostNeeded. It assumes that the ratio is as estimated and that further values spread like those of c, n of
// each sample. Below a dozen values the verdict comes in fewer sessions, because the estimate uses the normal
// distribution. An estimate beyond the margin must be beyond it by its standard error, and must differ from 1
// at the level that Holm's correction requires for the first of so many comparisons. For another estimate,
// the interval must lie within the margin.
func (d Design) Needed(c Comparison, m Margin, n, comparisons int) int {
	least := d.Least(comparisons, m.Alpha)
	if c.Confidence == 0 || !c.Known() {
		return least
	}
	normal := func(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }
	off, size := math.Abs(math.Log(c.Estimate)), math.Log1p(m.Size)
	deviation := math.Log(c.Hi/c.Lo) / 2 / normal((1+c.Confidence)/2) * math.Sqrt(float64(n))
	most := min(off/(normal(1-m.Alpha/2/float64(max(1, comparisons)))+normal(0.8)), (off-size)/normal(0.8))
	if off <= size {
		most, least = (size-off)/(normal(1-m.Alpha/2)+normal(0.9)), d.Least(1, m.Alpha)
	}
	more := min(MostNeeded, math.Ceil(deviation/most*deviation/most))
	return max(least, n+1, int(more))
}
