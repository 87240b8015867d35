package evidence

import (
	"math"
	"slices"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Machine is what the machine itself did to the used runs of a cell.
type Machine struct {
	// Frequency is how much that of a CPU of the application varies between the runs, of the one that varies
	// most: the coefficient of variation; NaN where none is known.
	Frequency float64
	Throttled int // runs in which a measured CPU was slowed down by its heat
	// IdleExit is what leaving an idle state took on average on the application's CPUs, in nanoseconds, as the
	// driver has it; 0 where they never slept.
	IdleExit float64
}

// MachineOf sums up the used runs of a cell.
func MachineOf(c results.Cell, used []results.Run) Machine {
	m := Machine{Frequency: math.NaN()}
	frequencies := map[int][]float64{}
	exits, took := uint64(0), results.Nanoseconds(0)
	for _, r := range used {
		for _, cpu := range r.Witness.CPUs {
			if !c.Application.Contains(cpu.ID) {
				continue
			}
			if exits, took = exits+cpu.IdleExits, took+cpu.IdleExit; cpu.Frequency > 0 {
				frequencies[cpu.ID] = append(frequencies[cpu.ID], float64(cpu.Frequency))
			}
		}
		if slices.ContainsFunc(r.Witness.CPUs, func(cpu results.CPU) bool {
			return cpu.Throttled > 0 && c.Application.Union(c.Client).Contains(cpu.ID)
		}) {
			m.Throttled++
		}
	}
	if len(frequencies) > 0 {
		m.Frequency = 0
	}
	for _, one := range frequencies {
		if v := stats.Variation(one); v > m.Frequency { // which NaN is not
			m.Frequency = v
		}
	}
	m.IdleExit = float64(took) / float64(max(exits, 1))
	return m
}
