// Package evidence sums up, over the runs of a cell, what the witness saw: where the measured threads were,
// what else their CPUs did, and what the longest samples met.
package evidence

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/results"
)

// Evidence says where the measured threads were in the used runs of a cell, and what else their CPUs did.
type Evidence struct {
	Runs      int
	Witness   string // bpf or procfs, or both
	Threads   int    // of all runs, those that ran
	Misplaced int    // those of them that ran on other CPUs than planned
	// Where they were seen.
	Application, Client, Neighbours cpuset.Set
	Cpusets                         []string // in force, with the plan if that differs
	// On the application's CPUs, per second.
	Voluntary, Involuntary float64 // switches of the application's threads
	Switches               float64 // of all tasks; counted by bpf only
	Interrupts, NetRX      float64
	StealPercent           float64
	Sources                []Source // the costliest first
}

// Source is what took time from the application's CPUs under one name, over all used runs. 0 means unknown.
type Source struct {
	Kind, Name          string
	Count               uint64
	Total, P99, Longest time.Duration
	Remedy              string
}

// Rate is how often something happened on the application's CPUs, per second.
type Rate struct {
	Name     string
	Value    float64
	Optional bool // not worth a column if it is 0 in all cells; else 0 means unknown
}

// Rates returns what is counted, in display order.
func (e Evidence) Rates() []Rate {
	return []Rate{
		{"voluntary switches", e.Voluntary, true},
		{"involuntary", e.Involuntary, true},
		{"switches of all tasks", e.Switches, false},
		{"interrupts", e.Interrupts, true},
		{"NET_RX softirqs", e.NetRX, true},
	}
}

// Of sums up the used runs of a cell.
func Of(c results.Cell, used []results.Run) Evidence {
	e := Evidence{Runs: len(used)}
	var window time.Duration
	var sources []string
	for _, r := range used {
		w := r.Witness
		window += time.Duration(w.Window)
		if !slices.Contains(sources, w.Source) {
			sources = append(sources, w.Source)
		}
		e.Neighbours = e.Neighbours.Union(w.Neighbours.Seen)
		e.addThreads(w.Threads)
		e.addCpusets(w.Cpusets)
		e.addCPUs(w.CPUs, c.Application)
		e.addSources(w.Sources, c.Application)
	}
	e.Witness = strings.Join(sources, ", ")
	slices.Sort(e.Cpusets)
	slices.SortFunc(e.Sources, func(a, b Source) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	if s := window.Seconds(); s > 0 {
		for _, rate := range []*float64{&e.Voluntary, &e.Involuntary, &e.Switches, &e.Interrupts, &e.NetRX} {
			*rate /= s
		}
		e.StealPercent *= 100 / s / float64(max(1, c.Application.Len()))
	}
	return e
}

func (e *Evidence) addThreads(threads []results.Thread) {
	for _, t := range threads {
		if t.Seen.IsEmpty() {
			continue // it slept all the time
		}
		e.Threads++
		side := &e.Client
		if t.Role == results.Application {
			side = &e.Application
			e.Voluntary += float64(t.Voluntary)
			e.Involuntary += float64(t.Involuntary)
		}
		*side = side.Union(t.Seen)
		if !t.Seen.IsSubsetOf(t.Planned) {
			e.Misplaced++
		}
	}
}

func (e *Evidence) addCpusets(sets []results.Cpuset) {
	for _, c := range sets {
		text := fmt.Sprintf("%s %s", path.Base(c.Path), c.InForce)
		if c.InForce != c.Planned {
			text += fmt.Sprintf(" (planned %s)", c.Planned)
		}
		if !slices.Contains(e.Cpusets, text) {
			e.Cpusets = append(e.Cpusets, text)
		}
	}
}

func (e *Evidence) addCPUs(cpus []results.CPU, application cpuset.Set) {
	for _, c := range cpus {
		if !application.Contains(c.ID) {
			continue
		}
		e.Switches += float64(c.ContextSwitches)
		e.Interrupts += float64(c.Interrupts)
		e.NetRX += float64(c.Softirqs["NET_RX"])
		e.StealPercent += time.Duration(c.Steal).Seconds()
	}
}

// addSources adds sources by kind and name, leaving out the part of the name that only numbers them.
func (e *Evidence) addSources(all []results.Source, application cpuset.Set) {
	for _, i := range all {
		if !application.Contains(i.CPU) {
			continue
		}
		k := slices.IndexFunc(e.Sources, func(o Source) bool { return o.Kind == i.Kind && o.Name == i.Name })
		if k < 0 {
			k, e.Sources = len(e.Sources), append(e.Sources, Source{Kind: i.Kind, Name: i.Name, Remedy: i.Remedy})
		}
		o := &e.Sources[k]
		o.Count += known(i.Count)
		o.Total += time.Duration(known(i.Total))
		o.P99 = max(o.P99, time.Duration(known(i.P99)))
		o.Longest = max(o.Longest, time.Duration(known(i.Longest)))
	}
}

// known returns a value, 0 if the witness does not know it.
func known[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}
