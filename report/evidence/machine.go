package evidence

import (
	"math"
	"slices"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Machine is what the machine itself did to the used runs of a cell.
type Machine struct {
	// Frequency is the coefficient of variation, between the runs, of the frequency of the application's CPU
	// that varies most; NaN if unknown.
	Frequency float64
	Throttled int // runs in which a measured CPU was slowed down by its heat
	// IdleExit is the mean time to leave an idle state on the application's CPUs, in nanoseconds, as the driver
	// states it; 0 if they never slept.
	IdleExit float64
	// Others are, by run, the part of the application's CPUs that other programs took: neither the application's
	// nor, as far as is known, its neighbours'. The largest is last. It is empty if unknown.
	Others []float64
}

// MachineOf sums up the used runs of a cell.
func MachineOf(c results.Cell, used []results.Run) Machine {
	m := Machine{Frequency: math.NaN()}
	frequencies := map[int][]float64{}
	exits, took := uint64(0), results.Nanoseconds(0)
	for _, r := range used {
		if share, known := others(c, r.Witness); known {
			m.Others = append(m.Others, share)
		}
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
		if v := stats.Variation(one); v > m.Frequency { // NaN is not greater
			m.Frequency = v
		}
	}
	m.IdleExit = float64(took) / float64(max(exits, 1))
	slices.Sort(m.Others)
	return m
}

// others returns which part of the application's CPUs other programs took. It assumes that all that the
// neighbours took was on these CPUs.
func others(c results.Cell, w results.Witness) (share float64, known bool) {
	took := -w.Neighbours.CPUTime
	for _, s := range w.Sources {
		if s.Kind != results.Task || !c.Application.Contains(s.CPU) {
			continue
		}
		if s.Total == nil {
			return 0, false
		}
		took += *s.Total
	}
	if w.Window == 0 || c.Application.IsEmpty() {
		return 0, false
	}
	return float64(max(took, 0)) / float64(w.Window) / float64(c.Application.Len()), true
}
