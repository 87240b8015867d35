package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/quantity"
)

// heatTable is the matrix of all cells: figures with a tint that says how far they are from the
// baseline, and on which side.
type heatTable struct {
	Head []string
	Rows []heatRow
}

type heatRow struct {
	Name  string
	Note  string // runs
	Base  bool
	Cells []heat
}

// heat is one figure.
type heat struct {
	Main, Sub, Class string
}

func (s *Summary) heat() heatTable {
	t := heatTable{Head: []string{"throughput", "RTT P50", "RTT P99", "RTT P99.9", "RTT max"}}
	base := s.cell(s.Baseline)
	unused := s.unused()
	for _, c := range s.Cells {
		if slices.Contains(unused, c.Label()) {
			continue
		}
		row := heatRow{Name: c.Label(), Base: c.Baseline, Note: fmt.Sprintf("%s used", quantity.Count(c.Used, "run"))}
		if c.Void > 0 {
			row.Note += fmt.Sprintf(", %d void", c.Void)
		}
		f, rtt := c.Figures[Throughput], c.Figures[s.RTT]
		rates := none
		if len(f.Blocks) > 0 {
			rates = rate(f.Centre)
		}
		row.Cells = []heat{
			newHeat(f.Ratio.Estimate, around(f), rates, false, f.Ratio.Known()),
			newHeat(rtt.Ratio.Estimate, around(rtt), micros(rtt.RTT.Quantile(0.5)), true, rtt.Ratio.Known()),
		}
		for _, value := range []func(*Distribution) float64{
			func(d *Distribution) float64 { return d.Quantile(0.99) },
			func(d *Distribution) float64 { return d.Quantile(0.999) },
		} {
			own, ratio := value(rtt.RTT), math.NaN()
			if base != nil {
				ratio = own / value(base.Figures[s.RTT].RTT)
			}
			row.Cells = append(row.Cells, newHeat(ratio, "", micros(own), true, !math.IsNaN(ratio)))
		}
		longest := heat{Main: none} // not compared: a maximum is of a sample and a time
		if d := rtt.RTT; d.N() > 0 {
			longest = heat{Main: micros(d.Max()), Sub: fmt.Sprintf("of %s in %s", count(d.N()), seconds(d.Window))}
		}
		row.Cells = append(row.Cells, longest)
		for i := range row.Cells {
			if c.Baseline {
				row.Cells[i].Class = ""
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// around is what stands behind an estimate: its spread and the verdict.
func around(f Figure) string {
	text := spread(f.Ratio)
	if _, _, interval := f.Ratio.Spread(); !interval && text != none {
		text = "(" + text + ")"
	}
	if f.Verdict != "" {
		text += " " + string(f.Verdict)
	}
	return text
}

// newHeat prints the absolute figure large and its percentage below.
func newHeat(ratio float64, more, absolute string, lower, known bool) heat {
	h := heat{Main: absolute}
	if strings.HasPrefix(absolute, none) {
		h.Main = none
	}
	if !known {
		return h
	}
	h.Sub = percent(ratio)
	if ratio != 1 && more != "" && more != none {
		h.Sub += " " + more
	}
	better := math.Log2(ratio)
	if lower {
		better = -better
	}
	side := "g"
	if better < 0 {
		side = "b"
	}
	switch a := math.Abs(better); { // 2.0: four times
	case a >= 2:
		h.Class = side + "3"
	case a >= 0.585: // half as much again
		h.Class = side + "2"
	case a >= 0.138: // 10%
		h.Class = side + "1"
	}
	return h
}

// proofTables show where the measured threads ran, and what else their CPUs did.
func (s *Summary) proofTables() []table {
	where := table{Title: "Where the threads ran, of all used runs",
		Head: []string{"cell", "runs", "witness", "threads", "strayed", "application planned", "application seen",
			"client planned", "client seen", "neighbours planned", "neighbours seen", "cpusets in force"}}
	what := table{Title: "What happened on the application's CPUs, per second",
		Head: []string{"cell", "voluntary switches", "involuntary", "switches of all tasks", "interrupts",
			"NET_RX softirqs", "steal"}}
	who := table{Title: "Intruders on the lanes' CPUs: the five costliest of each cell, of all used runs",
		Head:  []string{"cell", "task", "kind", "ms", "longest, µs", "stays", "remedy"},
		Notes: []string{"A kernel thread bound to a CPU cannot be moved; a program in a lane makes a run void."}}
	for _, c := range s.Cells {
		p := c.Proof
		if p.Runs == 0 {
			where.Rows = append(where.Rows, []string{c.Label(), c.missing("")})
			continue
		}
		where.Rows = append(where.Rows, []string{c.Label(), fmt.Sprint(p.Runs), p.Source, fmt.Sprint(p.Threads),
			fmt.Sprint(p.Application.Strayed + p.Client.Strayed), cpus(p.Application.Planned), cpus(p.Application.Seen),
			cpus(p.Client.Planned), cpus(p.Client.Seen),
			cpus(c.Neighbours), cpus(p.Neighbours), strings.Join(p.Cpusets, "; ")})
		switches := none
		if p.Switches > 0 {
			switches = digits(p.Switches)
		}
		what.Rows = append(what.Rows, []string{c.Label(), digits(p.Voluntary), digits(p.Involuntary), switches,
			digits(p.Interrupts), digits(p.NetRX), digits(p.StealPercent) + "%"})
		for _, i := range p.Intruders[:min(5, len(p.Intruders))] {
			kind := "program"
			if i.Kernel {
				kind = "kernel thread"
			}
			who.Rows = append(who.Rows, []string{c.Label(), i.Comm, kind,
				digits(float64(i.Ran) / float64(time.Millisecond)), micro(float64(i.Worst)), count(i.Runs), i.Remedy})
		}
	}
	return slices.DeleteFunc([]table{where.gather(), what, s.sourceTable(), who}, func(t table) bool { return len(t.Rows) == 0 })
}

func cpus(s cpuset.Set) string {
	if s.IsEmpty() {
		return none
	}
	return s.String()
}
