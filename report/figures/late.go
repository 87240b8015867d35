package figures

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// lateClient is the guard on clients that were late, and the reason for the bounds that they leave.
const lateClient = "late client"

// bound records that a figure contains values of a late client: the true one may be better, but not worse.
func (f *Figure) bound(m metric.Metric) {
	f.Limit, f.AtMost = lateClient, m.Margin.Goal == stats.LowerIsBetter
}

// mark marks the last block as one of a late client. Checks are not compared, so they need no bound.
func (f *Figure) mark(m metric.Metric, block int) {
	if n := len(f.Blocks); m.Role != results.Check && n > 0 && f.Blocks[n-1].Block == block {
		f.Blocks[n-1].Late = true
		f.bound(m)
	}
}

// Of returns the figure with the bound that one of its blocks is.
func (f Figure) Of(b Block) Figure {
	if f.Limit == lateClient && !b.Late {
		f.Limit = ""
	}
	return f
}

// Why says in a sentence why a figure is a bound.
func (f Figure) Why() string {
	if f.Limit == lateClient {
		return "the client was late in some runs"
	}
	return f.Limit + " was at its limit"
}

// BoundNote explains the mark of a bound; "" for no bound.
func (f Figure) BoundNote() string {
	if f.Limit == "" {
		return ""
	}
	may := map[bool]string{true: "lower", false: "higher"}[f.AtMost]
	return fmt.Sprintf("%s: %s, so the true figure may be %s.", strings.TrimSpace(f.Bounded("")), f.Why(), may)
}

// lateClients: what a late client found is a bound on the worse side, so only "better" in spite of it is a
// verdict.
func (s *Summary) lateClients() Guard {
	var g Guard
	for c := range s.cells() {
		var names []string // the same for all metrics of a probe
		most := 0
		for _, m := range s.Metrics {
			f := c.Figure(m)
			late := len(slices.DeleteFunc(slices.Clone(f.Blocks), func(b Block) bool { return !b.Late }))
			if late == 0 || len(m.MeanOf) > 0 { // a mean goes with its parts
				continue
			}
			names, most = append(names, m.Name), max(most, late)
			s.touched(lateClient, m.Name, c, func(m metric.Metric, f *Figure) {
				if f == c.Figures[m.Name] { // or a mean with it as a part
					if f.bound(m); f.Verdict == stats.Better && !c.Baseline {
						f.Lowered = "at least: " + lateClient
						return
					}
				}
				f.lower(lateClient)
			})
		}
		if len(names) > 0 {
			g.Name = lateClient
			g.fail(fmt.Sprintf("%s in %s of %s: bounds, as a client was late", strings.Join(names, ", "),
				quantity.Count(most, "run"), c.Name))
		}
	}
	return g
}
