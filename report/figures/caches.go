package figures

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/report/evidence"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
)

// Ways returns how long a cache line took between client and application while a metric was measured.
func (c Cell) Ways(m metric.Metric) []evidence.Way {
	return evidence.Ways(c.used, append(slices.Clone(m.MeanOf), m.Name)...)
}

// ValuesWhere returns the values of the blocks whose way is such.
func (c Cell) ValuesWhere(m metric.Metric, is func(evidence.Way) bool) (all []float64) {
	for _, w := range c.Ways(m) {
		if b, ok := c.Figure(m).At(w.Block); ok && is(w) {
			all = append(all, b.Value)
		}
	}
	return all
}

// DistanceOfCPUs is the guard on how far client and application were from each other.
const DistanceOfCPUs = "distance of the CPUs"

// caches: a hypervisor may run CPUs that share a cache, as the kernel has it, below two, and all that passes
// between client and application takes longer then. Cells whose CPUs the kernel itself places otherwise are
// not compared: that a lane has CPUs near its client is its merit.
func (s *Summary) caches() Guard {
	g := Guard{DistanceOfCPUs, Unknown, "no run says how long a cache line takes between client and application"}
	base := s.Cell(s.Baseline)
	if base == nil {
		return Guard{}
	}
	for c := range s.cells() {
		var differ []string
		for _, m := range s.Metrics {
			own, theirs, n := c.Ways(m), base.Ways(m), 0
			if !slices.Equal(c.Apart, base.Apart) || len(own) == 0 || len(m.MeanOf) > 0 ||
				m.Role == results.Check {
				continue
			}
			if g.State == Unknown {
				g.State, g.Text = Kept, "a cache line took about as long as in the baseline's run of the block"
			}
			for _, w := range own {
				of := first(theirs, func(o evidence.Way) bool { return o.Block == w.Block })
				if of != nil && evidence.FarApart(w.Took, of.Took) {
					n++
				}
			}
			if float64(n) > maxVoid*float64(len(own)) {
				differ = append(differ, fmt.Sprintf("%s %d of %d", m.Name, n, len(own)))
				s.touched(DistanceOfCPUs, m.Name, c, func(_ metric.Metric, f *Figure) { f.lower(DistanceOfCPUs) })
			}
		}
		if len(differ) > 0 {
			g.fail(fmt.Sprintf("%s (%s)", c.Name, strings.Join(differ, ", ")))
		}
	}
	if g.State == Failed {
		g.Text = "a cache line took twice as long between client and application as in the baseline's run of the " +
			"block, or half as long, in " + g.Text + ": have the hypervisor pin its CPUs"
	}
	return g
}
