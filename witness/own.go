package witness

import (
	"strings"

	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
)

// Owned is what belongs on the watched CPUs.
type Owned struct {
	// Cgroups are directories of the hierarchy that has the cpuset controller: the tasks in them, and below, are
	// the lanes' own work and no sources, but for what came into a container from outside.
	Cgroups []string
	// Interrupts are those of the lanes' own devices, and the CPU that each belongs on. They, their threads and
	// their network softirqs are sources that are marked as own.
	Interrupts map[int]int
}

// mark finds the sources that are the lanes' own. Softirqs of the network are, where own interrupts fire and
// those of no other device: the kernel does not tell who raised them.
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

func (o Owned) has(irq, cpu int) bool {
	on, ok := o.Interrupts[irq]
	return ok && on == cpu
}
