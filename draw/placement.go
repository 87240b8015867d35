package draw

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/terminal"
)

// Placement prints what goes where and why, and how good that is.
func Placement(w io.Writer, p plan.Placement) {
	t := terminal.Of(w)
	for i, m := range p.Moves {
		fmt.Fprintf(w, "move %d: %s from CPUs %s to %s", i+1, m.Lane, m.From, m.To)
		if m.MemoryBytes > 0 {
			fmt.Fprintf(w, ", %s of memory", quantity.Bytes(m.MemoryBytes))
		}
		fmt.Fprintf(w, " (%s)\n", m.Reason)
	}
	for _, l := range p.Lanes {
		fmt.Fprintf(w, "lane %s: CPUs %s, memory of NUMA node %s\n", l.Name, l.CPUs, l.MemoryNodes)
		for _, role := range slices.Sorted(maps.Keys(l.Roles)) {
			fmt.Fprintf(w, "  %s: CPUs %s\n", role, l.Roles[role])
		}
		for _, reason := range l.Reasons {
			fmt.Fprint(w, t.Fold("  ", reason))
		}
	}
	fmt.Fprintf(w, "housekeeping: CPUs %s\n", p.Housekeeping)
	if p.Optimal {
		fmt.Fprintln(w, "optimal: nothing costs less")
	} else {
		fmt.Fprint(w, t.Fold("not known to be optimal: ", p.Cost.Above(*p.Bound)))
		fmt.Fprint(w, t.Fold("  it costs: ", p.Cost.String()))
		if none := (plan.Cost{}); *p.Bound != none {
			fmt.Fprint(w, t.Fold("  nothing costs less than: ", p.Bound.String()))
		}
	}
}
