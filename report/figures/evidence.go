package figures

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

// proof is the witness's evidence over the used runs of a cell: where the measured threads were,
// and what else their CPUs did.
type proof struct {
	Runs      int
	Witness   string // bpf or procfs, or both
	Threads   int    // of all runs, those that ran
	Elsewhere int    // those of them that ran on other CPUs than planned
	// Where they were seen.
	Application, Client, Neighbours cpuset.Set
	Cpusets                         []string // in force, with the plan where that differs
	// On the application's CPUs, per second.
	Voluntary, Involuntary float64 // switches of the application's threads
	Switches               float64 // of all tasks; counted by bpf only
	Interrupts, NetRX      float64
	StealPercent           float64
	Sources                []Source // the costliest first
}

// Source is what took time from the application's CPUs under one name, over all used runs. What is 0
// is not known.
type Source struct {
	Kind, Name          string
	Count               uint64
	Total, P99, Longest time.Duration
	Remedy              string
}

func newProof(c results.Cell, used []results.Run) proof {
	p := proof{Runs: len(used)}
	var window time.Duration
	var sources []string
	for _, r := range used {
		w := r.Witness
		window += time.Duration(w.Window)
		if !slices.Contains(sources, w.Source) {
			sources = append(sources, w.Source)
		}
		p.Neighbours = p.Neighbours.Union(w.Neighbours.Seen)
		p.addThreads(w.Threads)
		p.addCpusets(w.Cpusets)
		p.addCPUs(w.CPUs, c.Application)
		p.addSources(w.Sources, c.Application)
	}
	p.Witness = strings.Join(sources, ", ")
	slices.Sort(p.Cpusets)
	slices.SortFunc(p.Sources, func(a, b Source) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	if s := window.Seconds(); s > 0 {
		for _, rate := range []*float64{&p.Voluntary, &p.Involuntary, &p.Switches, &p.Interrupts, &p.NetRX} {
			*rate /= s
		}
		p.StealPercent *= 100 / s / float64(max(1, c.Application.Len()))
	}
	return p
}

func (p *proof) addThreads(threads []results.Thread) {
	for _, t := range threads {
		if t.Seen.IsEmpty() {
			continue // it slept all the time
		}
		p.Threads++
		side := &p.Client
		if t.Role == "application" {
			side = &p.Application
			p.Voluntary += float64(t.Voluntary)
			p.Involuntary += float64(t.Involuntary)
		}
		*side = side.Union(t.Seen)
		if !t.Seen.IsSubsetOf(t.Planned) {
			p.Elsewhere++
		}
	}
}

func (p *proof) addCpusets(sets []results.Cpuset) {
	for _, c := range sets {
		text := fmt.Sprintf("%s %s", path.Base(c.Path), c.InForce)
		if c.InForce != c.Planned {
			text += fmt.Sprintf(" (planned %s)", c.Planned)
		}
		if !slices.Contains(p.Cpusets, text) {
			p.Cpusets = append(p.Cpusets, text)
		}
	}
}

func (p *proof) addCPUs(cpus []results.CPU, application cpuset.Set) {
	for _, c := range cpus {
		if !application.Contains(c.ID) {
			continue
		}
		p.Switches += float64(c.ContextSwitches)
		p.Interrupts += float64(c.Interrupts)
		p.NetRX += float64(c.Softirqs["NET_RX"])
		p.StealPercent += time.Duration(c.Steal).Seconds()
	}
}

// addSources sums by kind and name, without the part of it that says which of several.
func (p *proof) addSources(all []results.Source, application cpuset.Set) {
	for _, i := range all {
		if !application.Contains(i.CPU) {
			continue
		}
		k := slices.IndexFunc(p.Sources, func(o Source) bool { return o.Kind == i.Kind && o.Name == i.Name })
		if k < 0 {
			k = len(p.Sources)
			p.Sources = append(p.Sources, Source{Kind: i.Kind, Name: i.Name, Remedy: i.Remedy})
		}
		o := &p.Sources[k]
		if i.Count != nil {
			o.Count += *i.Count
		}
		if i.Total != nil {
			o.Total += time.Duration(*i.Total)
		}
		if i.P99 != nil {
			o.P99 = max(o.P99, time.Duration(*i.P99))
		}
		if i.Longest != nil {
			o.Longest = max(o.Longest, time.Duration(*i.Longest))
		}
	}
}
