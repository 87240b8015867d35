package report

import (
	"fmt"
	"strings"
	"time"

	"isolane.dev/isolane/report/evidence"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
)

// threadTable shows where the threads ran: on the planned CPUs, or on which others.
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
	return newTable("Where the threads ran, of all used runs", withRuns(s).Cells, figures.Cell.Unused,
		count("runs", func(c figures.Cell) int { return c.Evidence.Runs }),
		column{Name: "witness", Words: true, of: func(c figures.Cell) string { return c.Evidence.Witness }},
		count("threads", func(c figures.Cell) int { return c.Evidence.Threads }),
		count("ran elsewhere", func(c figures.Cell) int { return c.Evidence.Misplaced }),
		on("application", func(c figures.Cell) (a, b cpus) { return c.Evidence.Application, c.Application }),
		on("client", func(c figures.Cell) (a, b cpus) { return c.Evidence.Client, c.Client }),
		on("neighbours", func(c figures.Cell) (a, b cpus) { return c.Evidence.Neighbours, c.Neighbours }),
		column{Name: "cpusets in force", Words: true, Long: true, of: func(c figures.Cell) string {
			return strings.Join(c.Evidence.Cpusets, "; ")
		}})
}

// rateTable shows what happened on the application's CPUs.
func rateTable(s *figures.Summary) table {
	var columns []column
	for i, r := range (evidence.Evidence{}).Rates() {
		columns = append(columns, column{Name: r.Name, optional: r.Optional, of: func(c figures.Cell) string {
			of := c.Evidence.Rates()[i]
			return orNone(of.Optional || of.Value > 0, format.Digits(of.Value))
		}})
	}
	return newTable("What happened on the application's CPUs, per second", withRuns(s).Cells,
		figures.Cell.Unused, append(columns, column{Name: "steal", of: func(c figures.Cell) string {
			return format.Digits(c.Evidence.StealPercent) + "%"
		}})...)
}

// sourceTable shows everything that took time on the application's CPUs.
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
		for _, o := range c.Evidence.Sources[:min(8, len(c.Evidence.Sources))] {
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
