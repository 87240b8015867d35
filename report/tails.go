package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/results"
)

// tailName says which samples these are: P99.9.
func tailName(t figures.Tail) string {
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

// tailShares says what the samples met, in percent of the excess: four sources at most, the others together.
func tailShares(t figures.Tail) string {
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

// tailShare is a part of the excess in percent.
func tailShare(t figures.Tail, of time.Duration) int {
	return int(math.Round(100 * float64(of) / float64(t.Excess)))
}

// tailSamples is how many there were, and how many of them are known.
func tailSamples(t figures.Tail) string {
	if t.Missing == 0 {
		return format.Count(uint64(t.Samples))
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

func tailTable(s *figures.Summary) table {
	cells := slices.DeleteFunc(slices.Clone(s.Cells), func(c figures.Cell) bool { return c.Tail.Runs == 0 })
	steal := func(c figures.Cell) string { return format.Digits(c.Tail.Steal.Seconds() * 1e3) }
	t := newTable("What the worst samples met ("+s.PrimaryDistribution().Name+")", cells, nil,
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

// threadTable shows where the threads ran: on the CPUs that were planned, or on which.
func threadTable(s *figures.Summary) table {
	type cpus = fmt.Stringer
	on := func(part string, of func(figures.Cell) (seen, planned cpus)) column {
		return column{Name: part + " on CPUs", of: func(c figures.Cell) string {
			seen, planned := of(c)
			text := orNone(seen.String() != "", seen.String())
			if seen.String() != planned.String() {
				text += " (planned " + orNone(planned.String() != "", planned.String()) + ")"
			}
			return text
		}}
	}
	count := func(name string, of func(figures.Cell) int) column {
		return column{Name: name, of: func(c figures.Cell) string { return format.Count(uint64(of(c))) }}
	}
	return newTable("Where the threads ran, of all used runs", withRuns(s).Cells, unproved,
		count("runs", func(c figures.Cell) int { return c.Proof.Runs }),
		column{Name: "witness", Words: true, of: func(c figures.Cell) string { return c.Proof.Witness }},
		count("threads", func(c figures.Cell) int { return c.Proof.Threads }),
		count("ran elsewhere", func(c figures.Cell) int { return c.Proof.Elsewhere }),
		on("application", func(c figures.Cell) (a, b cpus) { return c.Proof.Application, c.Application }),
		on("client", func(c figures.Cell) (a, b cpus) { return c.Proof.Client, c.Client }),
		on("neighbours", func(c figures.Cell) (a, b cpus) { return c.Proof.Neighbours, c.Neighbours }),
		column{Name: "cpusets in force", Words: true, Long: true, of: func(c figures.Cell) string {
			return strings.Join(c.Proof.Cpusets, "; ")
		}})
}

// unproved says why a cell has no evidence, "" where it has some.
func unproved(c figures.Cell) string {
	if c.Used > 0 {
		return ""
	}
	return figures.Metric{}.Missing(c)
}

// rateTable shows what happened on the application's CPUs.
func rateTable(s *figures.Summary) table {
	rate := func(name string, of func(figures.Cell) float64) column {
		return column{Name: name, optional: true, of: func(c figures.Cell) string { return format.Digits(of(c)) }}
	}
	return newTable("What happened on the application's CPUs, per second", withRuns(s).Cells, unproved,
		rate("voluntary switches", func(c figures.Cell) float64 { return c.Proof.Voluntary }),
		rate("involuntary", func(c figures.Cell) float64 { return c.Proof.Involuntary }),
		column{Name: "switches of all tasks", of: func(c figures.Cell) string {
			return orNone(c.Proof.Switches > 0, format.Digits(c.Proof.Switches))
		}},
		rate("interrupts", func(c figures.Cell) float64 { return c.Proof.Interrupts }),
		rate("NET_RX softirqs", func(c figures.Cell) float64 { return c.Proof.NetRX }),
		column{Name: "steal", of: func(c figures.Cell) string { return format.Digits(c.Proof.StealPercent) + "%" }})
}

// sourceTable shows what took time on the application's CPUs at all.
func sourceTable(s *figures.Summary) table {
	micros := func(d time.Duration) string { return orNone(d > 0, format.Times().Plain(float64(d))) }
	t := table{
		Title: "What took time on the application's CPUs: the eight costliest of each cell, of all used runs",
		Columns: append(heads(3, "cell", "source", "kind", "ms", "count", "P99, µs", "longest, µs"),
			column{Name: "what to do", Words: true, Long: true}),
		Notes: []string{"The application's own tasks are no sources. Times do not overlap, but steal is within " +
			"the others. P99 is that of the worst run, and of the worst task where several have a name. " +
			"A kernel thread bound to a CPU cannot be moved; another program on a lane's CPUs makes a run void."}}
	for _, c := range s.Cells {
		for _, o := range c.Proof.Sources[:min(8, len(c.Proof.Sources))] {
			t.Rows = append(t.Rows, []string{c.Label(), o.Name, o.Kind, format.Digits(o.Total.Seconds() * 1e3),
				orNone(o.Count > 0, format.Count(o.Count)), micros(o.P99), micros(o.Longest), o.Remedy})
		}
	}
	return t
}

func orNone(known bool, text string) string {
	if known {
		return text
	}
	return format.None
}
