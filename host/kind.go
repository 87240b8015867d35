package host

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"isolane.dev/isolane/cpuset"
)

// kinds tells performance cores from efficiency cores. Its sources, the most reliable first: the PMUs of x86,
// which list their CPUs; the part numbers of ARM (MIDR_EL1); the capacity that the scheduler uses
// (Documentation/scheduler/sched-capacity.rst); the highest performance of CPPC; the highest frequency. If
// CPUs differ in none of them they are uniform. But if their cores have different numbers of threads, the
// kind is not known.
func (r *reader) kinds(cpus []CPU) {
	capacity, cppc, hertz := map[int]uint64{}, map[int]uint64{}, map[int]uint64{}
	for i := range cpus {
		c := &cpus[i]
		dir := fmt.Sprintf("%s/cpu%d/", cpuDir, c.ID)
		if c.Capacity = r.number(dir + "cpu_capacity"); c.Capacity != nil {
			capacity[c.ID] = *c.Capacity
		}
		if khz := r.number(dir + "cpufreq/cpuinfo_max_freq"); khz != nil && *khz < 1<<40 {
			hertz[c.ID] = *khz * 1000
			c.MaxHertz = new(hertz[c.ID])
		}
		if n := r.number(dir + "acpi_cppc/highest_perf"); n != nil {
			cppc[c.ID] = *n
		}
	}
	if r.kindsByPMU(cpus) || r.kindsByPart(cpus) {
		return
	}
	for _, measure := range []map[int]uint64{capacity, cppc, hertz} {
		if tiers := tiersOf(measure); len(tiers) > 1 {
			setKinds(cpus, tiers)
			return
		}
	}
	if sameThreads(cpus) {
		for i := range cpus {
			cpus[i].Kind = Uniform
		}
	}
}

// setKinds gives the CPUs of the highest tier the kind performance, and those of the lowest the kind
// efficiency. CPUs in between get neither.
func setKinds(cpus []CPU, tiers []cpuset.Set) {
	for i := range cpus {
		switch id := cpus[i].ID; {
		case tiers[len(tiers)-1].Contains(id):
			cpus[i].Kind = Performance
		case tiers[0].Contains(id):
			cpus[i].Kind = Efficiency
		}
	}
}

// tiersOf groups CPUs by a measure, the lowest first. Values that differ by at most a tenth are one tier,
// because the best cores of a package may have some hundred megahertz more than the others.
func tiersOf(measure map[int]uint64) []cpuset.Set {
	var tiers []cpuset.Set
	var last uint64
	values := slices.Sorted(maps.Values(measure))
	for _, value := range slices.Compact(values) {
		if len(tiers) == 0 || value-last > value/10 {
			tiers = append(tiers, cpuset.Set{})
		}
		last = value
		for id, v := range measure {
			if v == value {
				tiers[len(tiers)-1] = tiers[len(tiers)-1].Union(cpuset.Of(id))
			}
		}
	}
	return tiers
}

// kindsByPMU uses the PMUs cpu_core, cpu_atom and cpu_lowpower (Documentation/admin-guide/perf/
// and arch/x86/events/intel/core.c).
func (r *reader) kindsByPMU(cpus []CPU) bool {
	performance := r.list("sys/devices/cpu_core/cpus")
	atom, low := r.list("sys/devices/cpu_atom/cpus"), r.list("sys/devices/cpu_lowpower/cpus")
	if performance == nil && atom == nil && low == nil {
		return false
	}
	p, e := orZero(performance), orZero(atom).Union(orZero(low))
	if both := p.Intersection(e); !both.IsEmpty() {
		r.warn("/sys/devices: CPU %s is in cpu_core and in cpu_atom", both)
		p, e = p.Difference(both), e.Difference(both)
	}
	setKinds(cpus, []cpuset.Set{e, p})
	return true
}

// kindsByPart uses the implementer and part number in ARM's main identification register, in the order of the
// capacities of the parts. It returns false if the parts do not differ.
func (r *reader) kindsByPart(cpus []CPU) bool {
	const part = 0xff00fff0 // implementer and part: not variant and revision
	byPart, most := map[uint64]cpuset.Set{}, map[uint64]uint64{}
	for _, c := range cpus {
		midr := r.hexadecimal(fmt.Sprintf("%s/cpu%d/regs/identification/midr_el1", cpuDir, c.ID))
		if midr == nil {
			continue
		}
		key := *midr & part
		byPart[key] = byPart[key].Union(cpuset.Of(c.ID))
		for _, measure := range []*uint64{c.Capacity, c.MaxHertz} {
			if measure != nil {
				most[key] = max(most[key], *measure)
				break
			}
		}
	}
	if len(byPart) < 2 {
		return false
	}
	parts := slices.SortedFunc(maps.Keys(byPart), func(a, b uint64) int { return cmp.Compare(most[a], most[b]) })
	for i := 1; i < len(parts); i++ {
		if most[parts[i]] == most[parts[i-1]] {
			return true // the parts differ, but nothing says which is faster: not known
		}
	}
	tiers := make([]cpuset.Set, 0, len(parts))
	for _, p := range parts {
		tiers = append(tiers, byPart[p])
	}
	setKinds(cpus, tiers)
	return true
}

// sameThreads reports whether all cores have the same number of threads, or offline CPUs may hide some.
func sameThreads(cpus []CPU) bool {
	threads := map[int]int{}
	for _, c := range cpus {
		if !c.Online {
			return true
		}
		if c.Core != nil {
			threads[*c.Core]++
		}
	}
	sizes := map[int]bool{}
	for _, n := range threads {
		sizes[n] = true
	}
	return len(sizes) < 2
}
