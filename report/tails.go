package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/report/evidence"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/results"
)

// tailName says which samples these are: P99.9.
func tailName(t evidence.Tail) string {
	var names []string
	for _, q := range t.Quantiles {
		if q == 0 {
			names = append(names, "worst 1%")
		} else {
			names = append(names, format.Quantile(q))
		}
	}
	return strings.Join(names, " and ")
}

// tailShares says what the samples met, in percent of the excess: at most four sources, and the others
// together.
func tailShares(t evidence.Tail) string {
	if t.Excess == 0 {
		return "nothing beyond the median"
	}
	var parts []string
	others := t.Excess - t.Unexplained
	for _, m := range t.Met[:min(4, len(t.Met))] {
		if share := tailShare(t, time.Duration(m.Took)); share >= 1 {
			parts = append(parts, fmt.Sprintf("%d%% %s", share, metName(m)))
			others -= time.Duration(m.Took)
		}
	}
	if share := tailShare(t, others); share >= 1 {
		parts = append(parts, fmt.Sprintf("%d%% others", share))
	}
	text := strings.Join(append(parts, fmt.Sprintf("%d%% unexplained", tailShare(t, t.Unexplained))), ", ")
	if t.Lost > 0 {
		text += fmt.Sprintf(" (%s intrusions found no room)", format.Count(t.Lost))
	}
	return text
}

// tailShare returns a part of the excess in percent.
func tailShare(t evidence.Tail, of time.Duration) int {
	return int(math.Round(100 * float64(of) / float64(t.Excess)))
}

// tailSamples returns how many samples there were, and how many of them are known.
func tailSamples(t evidence.Tail) string {
	if t.Missing == 0 {
		return format.Count(uint64(t.Samples))
	}
	return fmt.Sprintf("%d of %d", t.Samples, t.Samples+t.Missing)
}

// metName names a source. It marks softirqs, interrupts and IPIs, which are named after what they serve, to
// tell them from tasks.
func metName(m results.Met) string {
	name := m.Name
	switch m.Kind {
	case "softirq", "interrupt", "wake-up":
		name += " " + m.Kind
	case "ipi":
		name += " IPI"
	case "steal":
		name = m.Kind
	}
	if m.Side != "" {
		name += " (" + m.Side + ")"
	}
	return name
}

// tailLine says in words what the worst samples met.
func tailLine(c figures.Cell) string {
	text := fmt.Sprintf("%s of %s: %s", tailName(c.Tail), c.Label(), tailShares(c.Tail))
	if c.Tail.Steal > 0 {
		text += fmt.Sprintf("; steal in the whole windows: %s ms", format.Digits(c.Tail.Steal.Seconds()*1e3))
	}
	return text
}

const tailNote = "Shares of the time beyond the run's median that an interruption of 2 µs or more " +
	"overlaps, on the application's CPUs or, where that explains nothing, on the client's; where they " +
	"nest, the innermost counts. What a sample itself needs is among them. A wake-up is the time from " +
	"the call that wakes a thread until it runs, beyond the usual. Steal is what the hypervisor reports " +
	"to have taken from these runs and wake-ups."

// tailCells returns the cells whose worst samples were examined.
func tailCells(s *figures.Summary) []figures.Cell {
	return slices.DeleteFunc(slices.Clone(s.Cells), func(c figures.Cell) bool { return c.Tail.Runs == 0 })
}

func tailTable(s *figures.Summary) table {
	if len(tailCells(s)) == 0 {
		return table{}
	}
	steal := func(c figures.Cell) string { return format.Digits(c.Tail.Steal.Seconds() * 1e3) }
	t := newTable("What the worst samples met ("+s.PrimaryDistribution().Name+")", tailCells(s), nil,
		column{Name: "from", Words: true, of: func(c figures.Cell) string { return tailName(c.Tail) }},
		column{Name: "samples", of: func(c figures.Cell) string { return tailSamples(c.Tail) }},
		column{Name: "excess, µs", of: func(c figures.Cell) string {
			return format.Times().Plain(float64(c.Tail.Excess) / float64(max(1, c.Tail.Samples)))
		}},
		column{Name: "of which", Words: true, Long: true, of: func(c figures.Cell) string {
			return tailShares(c.Tail)
		}},
		column{Name: "steal, ms", of: steal})
	t.Notes = []string{tailNote, "Excess is a mean. The last column is the steal of the whole windows."}
	return t
}
