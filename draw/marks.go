package draw

import (
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
)

// mark is what is drawn at a CPU.
type mark struct {
	sign  string // the name of a lane, if it is short
	name  string // for the key
	lanes []int  // their indices; several may share a CPU
	idle  bool
}

const (
	idleSign  = "idle"
	outside   = "-" // CPUs that this process may not use
	byKernel  = "i"
	shortName = 12 // the longest name of a lane that is written at each of its CPUs
)

// marks returns the marks of all online CPUs, and the key in its order. Names of lanes longer than short are
// replaced by letters.
func marks(h host.Host, p plan.Placement, short int) (of map[int]mark, key []mark) {
	of = map[int]mark{}
	set := func(cpus cpuset.Set, m mark) {
		if cpus.IsEmpty() {
			return
		}
		for id := range cpus.All() {
			of[id] = m
		}
		key = append(key, m)
	}
	online, usable := h.Online(), h.Usable()
	var isolated cpuset.Set
	if h.Kernel.Isolated != nil {
		isolated = h.Kernel.Isolated.Intersection(online).Difference(p.CPUs())
	}
	for i, l := range p.Lanes {
		sign := l.Name
		if len([]rune(sign)) > short || sign == idleSign || sign == byKernel || sign == outside {
			sign = letters(i)
		}
		m := mark{sign: sign, name: "lane " + l.Name + ": " + cpuList(l.CPUs), lanes: []int{i}}
		if !l.Idle.IsEmpty() {
			m.name += ", and " + l.Idle.String() + " kept idle"
		}
		key = append(key, m)
		for id := range l.CPUs.All() {
			m := m
			if with, shared := of[id]; shared {
				m.sign, m.lanes = with.sign+"+"+m.sign, append(slices.Clone(with.lanes), i)
			}
			of[id] = m
		}
		for id := range l.Idle.All() {
			of[id] = mark{sign: idleSign, lanes: []int{i}, idle: true}
		}
	}
	if len(p.Lanes) > 0 || !isolated.IsEmpty() {
		set(usable.Difference(p.CPUs()).Difference(isolated), mark{name: "housekeeping"})
	}
	unusable := online.Difference(usable).Difference(p.CPUs())
	set(unusable, mark{sign: outside, name: "not allowed by the cpuset or affinity in force"})
	set(isolated, mark{sign: byKernel, name: "isolated by the kernel"})
	return of, key
}

func cpuList(cpus cpuset.Set) string {
	if cpus.Len() == 1 {
		return "CPU " + cpus.String()
	}
	return "CPUs " + cpus.String()
}

// letters counts A, B … Z, AA, AB …
func letters(i int) string {
	text := ""
	for i++; i > 0; i = (i - 1) / 26 {
		text = string(rune('A'+(i-1)%26)) + text
	}
	return text
}
