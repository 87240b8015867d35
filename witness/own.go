package witness

import (
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
)

// Owned is what belongs on the watched CPUs.
type Owned struct {
	// Cgroups are directories in the hierarchy with the cpuset controller. The tasks in them, and below, are the
	// lanes' own work and no sources, except for what entered a container from outside.
	Cgroups []string
	// CPUs says, for each of these, where its tasks belong; nil: on all watched CPUs.
	CPUs []cpuset.Set
	// Interrupts are the interrupts of the lanes' own devices, and the CPU that each belongs on. They, their
	// threads and their network softirqs are sources marked as own.
	Interrupts map[int]int
}

// mark finds the sources that are the lanes' own. A network softirq is own if own interrupts fire on its CPU
// and no other device's do: the kernel does not say who raised it.
func (o Owned) mark(all []Source) {
	if len(o.Interrupts) == 0 {
		return
	}
	fires, foreign := map[int]bool{}, map[int]bool{}
	for i, s := range all {
		switch s.Kind {
		case results.Interrupt:
			if s.IRQ == nil { // of the CPU itself, such as thermal events
				continue
			}
			if o.has(*s.IRQ, s.CPU) {
				all[i].Own, fires[s.CPU] = true, true
			} else {
				foreign[s.CPU] = true
			}
		case results.KernelThread:
			if irq, ok := task.Interrupt(s.Name); ok && o.has(irq, s.CPU) {
				all[i].Own = true
			}
		}
	}
	for i, s := range all {
		if s.Kind == results.Softirq && strings.HasPrefix(s.Name, "NET_") && fires[s.CPU] && !foreign[s.CPU] {
			all[i].Own = true
		}
	}
}

// belongs reports whether tasks of a cgroup belong on a CPU.
func (o Owned) belongs(group, cpu int) bool { return o.CPUs == nil || o.CPUs[group].Contains(cpu) }

// places returns a bit for each cgroup. If there are more cgroups than bits, the last ones share one.
func (o Owned) places() []uint64 {
	all := make([]uint64, len(o.Cgroups))
	for group := range all {
		all[group] = 1 << min(group, 63)
	}
	return all
}

// placesOf returns the bits of the cgroups whose tasks belong on a CPU.
func (o Owned) placesOf(cpu int) (bits uint64) {
	for group, bit := range o.places() {
		if o.belongs(group, cpu) {
			bits |= bit
		}
	}
	return bits
}

func (o Owned) has(irq, cpu int) bool {
	on, ok := o.Interrupts[irq]
	return ok && on == cpu
}
