package evidence

import (
	"cmp"
	"slices"
	"time"

	"isolane.dev/isolane/results"
)

// Tail is what the longest samples of a cell met on the application's CPUs, over all used runs that recorded
// it. Times are parts of Excess, by which the samples exceeded their run's median.
type Tail struct {
	Quantiles           []float64 // one or several: runs differ in their number of samples
	Runs                int
	Samples, Missing    int
	Excess, Unexplained time.Duration
	Met                 []results.Met // the costliest first
	Lost                uint64
	Steal               time.Duration // of the application's CPUs in the whole windows
}

// TailOf sums up what the longest samples of a metric met.
func TailOf(name string, c results.Cell, used []results.Run) Tail {
	var t Tail
	for _, r := range used {
		k := slices.IndexFunc(r.Measured, func(m results.Measurement) bool {
			return m.Name == name && m.Tail != nil && len(m.Void) == 0
		})
		if k < 0 {
			continue
		}
		one := r.Measured[k].Tail
		t.Runs++
		t.Samples += one.Samples
		t.Missing += one.Missing
		t.Excess += time.Duration(one.Excess)
		t.Unexplained += time.Duration(one.Unexplained)
		t.Lost += one.Lost
		if !slices.Contains(t.Quantiles, one.Quantile) {
			t.Quantiles = append(t.Quantiles, one.Quantile)
		}
		for _, m := range one.Met {
			at := slices.IndexFunc(t.Met, func(o results.Met) bool {
				return o.Kind == m.Kind && o.Name == m.Name && o.Side == m.Side
			})
			if at < 0 {
				at, t.Met = len(t.Met), append(t.Met, results.Met{Kind: m.Kind, Name: m.Name, Side: m.Side})
			}
			t.Met[at].Took += m.Took
		}
		for _, cpu := range r.Witness.CPUs {
			if c.Application.Contains(cpu.ID) {
				t.Steal += time.Duration(cpu.Steal)
			}
		}
	}
	slices.Sort(t.Quantiles)
	slices.SortFunc(t.Met, func(a, b results.Met) int {
		return cmp.Or(cmp.Compare(b.Took, a.Took), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return t
}
