package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// name says which samples these are: P99.9.
func (t Tail) name() string {
	var names []string
	for _, q := range t.Quantiles {
		if q == 0 {
			names = append(names, "worst 1%")
		} else {
			names = append(names, pname(q))
		}
	}
	return strings.Join(names, " and ")
}

// shares says what the samples met, in percent of the excess: four sources at most, the others together.
func (t Tail) shares() string {
	if t.Excess == 0 {
		return "nothing beyond the median"
	}
	var parts []string
	others := t.Excess - t.Unexplained
	for _, m := range t.Met[:min(4, len(t.Met))] {
		if share := t.share(time.Duration(m.Took)); share >= 1 {
			parts = append(parts, fmt.Sprintf("%d%% %s", share, metName(m)))
			others -= time.Duration(m.Took)
		}
	}
	if share := t.share(others); share >= 1 {
		parts = append(parts, fmt.Sprintf("%d%% others", share))
	}
	text := strings.Join(append(parts, fmt.Sprintf("%d%% unexplained", t.share(t.Unexplained))), ", ")
	if t.Lost > 0 {
		text += fmt.Sprintf(" (%s found no room)", quantity.Count(int(min(t.Lost, math.MaxInt32)), "intrusion"))
	}
	return text
}

// share is a part of the excess in percent.
func (t Tail) share(of time.Duration) int {
	return int(math.Round(100 * float64(of) / float64(t.Excess)))
}

// samples is how many there were, and how many of them are known.
func (t Tail) samples() string {
	if t.Missing == 0 {
		return count(uint64(t.Samples))
	}
	return fmt.Sprintf("%d of %d", t.Samples, t.Samples+t.Missing)
}

// metName tells softirqs, interrupts and IPIs, which are named after what they serve, from tasks.
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
func (c Cell) tailLine() string {
	text := fmt.Sprintf("%s of %s: %s", c.Tail.name(), c.Label(), c.Tail.shares())
	if c.Tail.Steal > 0 {
		text += fmt.Sprintf("; steal in the whole windows: %s ms", digits(c.Tail.Steal.Seconds()*1e3))
	}
	return text
}

const tailNote = "Shares of the time beyond the run's median that an interruption of 2 µs or more " +
	"overlaps, on the " +
	"application's CPUs or, where that explains nothing, on the client's; where they nest, the innermost " +
	"counts. What " +
	"the packet itself needs is among them. A wake-up is the time from the call that wakes a thread until it " +
	"runs, " +
	"beyond the usual. Steal is what the hypervisor reports to have taken from these runs and wake-ups."

func (s *Summary) tailTable() table {
	cells := slices.DeleteFunc(slices.Clone(s.Cells), func(c Cell) bool { return c.Tail.Runs == 0 })
	t := newTable("What the worst samples met ("+s.distribution().Name+")", cells, nil,
		column{Name: "from", Words: true, of: func(c Cell) string { return c.Tail.name() }},
		column{Name: "samples", of: func(c Cell) string { return c.Tail.samples() }},
		column{Name: "excess, µs", of: func(c Cell) string {
			return times().plain(float64(c.Tail.Excess) / float64(max(1, c.Tail.Samples)))
		}},
		column{Name: "of which", Words: true, Long: true, of: func(c Cell) string { return c.Tail.shares() }},
		column{Name: "steal, ms", of: func(c Cell) string { return digits(c.Tail.Steal.Seconds() * 1e3) }})
	t.Notes = []string{tailNote, "Excess is a mean. The last column is the steal of the whole windows."}
	return t
}

// sourceTable shows what took time on the application's CPUs at all.
func (s *Summary) sourceTable() table {
	t := table{
		Title: "What took time on the application's CPUs: the eight costliest of each cell, of all used runs",
		Columns: append(heads(3, "cell", "source", "kind", "ms", "count", "P99, µs", "longest, µs"),
			column{Name: "what to do", Words: true, Long: true}),
		Notes: []string{"The application's own tasks are no sources. Times do not overlap, but steal is within " +
			"the others. P99 is that of the worst run, and of the worst task where several have a name. " +
			"A kernel thread bound to a CPU cannot be moved; another program on a lane's CPUs makes a run void."}}
	for _, c := range s.Cells {
		for _, o := range c.Proof.Sources[:min(8, len(c.Proof.Sources))] {
			t.Rows = append(t.Rows, []string{c.Label(), o.Name, o.Kind, digits(o.Total.Seconds() * 1e3),
				orNone(o.Count > 0, count(o.Count)), orNone(o.P99 > 0, times().plain(float64(o.P99))),
				orNone(o.Longest > 0, times().plain(float64(o.Longest))), o.Remedy})
		}
	}
	return t
}

func orNone(known bool, text string) string {
	if known {
		return text
	}
	return none
}
