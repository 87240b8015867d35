package solver

import (
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/stock"
)

// exceedsHost reports whether the lanes need more CPUs or memory than are free.
func (t *jointSearch) exceedsHost() bool { return t.exceedsCPUs(0) || t.exceedsMemory() }

// exceedsCPUs reports whether the lanes from a depth on want more CPUs than are free. It counts idle siblings
// and shared CPUs at their minimum.
func (t *jointSearch) exceedsCPUs(depth int) bool {
	m, need, isolated, shared := t.m, 0, 0, 0
	free := m.Free()
	left := free.Len() - 1 // housekeeping needs one
	if !slices.ContainsFunc(t.lanes[depth:], func(l lane.Lane) bool { return l.Spec.CPUs.Boot }) {
		free = free.Difference(m.BootCore())
	}
	for _, l := range t.lanes[depth:] {
		_, soft := l.Spec.Preferred["smt"]
		switch s := l.Spec.CPUs; {
		case s.Share > 1:
			shared = max(shared, s.Count)
		case s.SMT == lane.Isolate && !soft:
			isolated += s.Count
		default:
			need += s.Count
		}
	}
	var whole []int // by core that is wholly free: its CPUs
	joined := 0     // CPUs that are shared already
	for _, c := range m.Cores {
		if cpuset.Of(c.CPUs...).IsSubsetOf(free) {
			whole = append(whole, len(c.CPUs))
		}
		for _, id := range c.CPUs {
			if m.Owner(id) == stock.Several {
				joined++
			}
		}
	}
	if isolated > len(whole) {
		return true
	}
	slices.Sort(whole)
	for _, n := range whole[:isolated] {
		need += n
	}
	need += max(0, shared-joined)
	return need > 0 && need > min(free.Len(), left)
}

// exclusiveCPUs returns how many CPUs the lanes from a depth on want for themselves.
func (t *jointSearch) exclusiveCPUs(depth int) int {
	sum := 0
	for _, l := range t.lanes[depth:] {
		if l.Spec.CPUs.Share <= 1 {
			sum += l.Spec.CPUs.Count
		}
	}
	return sum
}

// hasRoom reports whether the free CPUs may be enough for the lanes from a depth on. It is not used to find
// the first lane that has no place, which a refusal explains.
func (t *jointSearch) hasRoom(depth int) bool {
	return !t.m.Free().IsEmpty() && (t.unplaced == nil || !t.exceedsCPUs(depth))
}

// done reports whether the search has to end.
func (t *jointSearch) done() bool { return t.steps < 0 || t.firstFound && t.found }

// couldBeat reports whether the cost so far, plus a lower bound of the rest, may be less than the best cost
// found.
func (t *jointSearch) couldBeat(cost, rest plan.Cost) bool {
	if !t.found {
		return true
	}
	cost = cost.Plus(rest)
	return !t.firstFound && cost.Compare(t.cost) < 0
}

// leastLoss returns a lower bound of what the largest free block loses when the lanes from a depth on are
// placed: CPUs that do not fit beside other lanes come from whole cores.
func (t *jointSearch) leastLoss(depth int) int {
	m := t.m
	beside, whole := m.FreeBeside(), m.WholeByNode()
	total := 0
	for _, w := range whole {
		total += w
	}
	left := min(slices.Max(append(whole, 0)), total-max(0, t.exclusiveCPUs(depth)-beside))
	return t.blockBefore - max(0, left)
}

// exceedsMemory reports whether the lanes want more memory than all nodes have together. Hugepages do not
// count, because they may come from pools.
func (t *jointSearch) exceedsMemory() bool {
	want := uint64(0)
	for _, l := range t.lanes {
		want = stock.PlusCapped(want, uint64(l.Spec.Memory.Size))
	}
	return want > 0 && stock.PlusCapped(want, t.m.HousekeepingBytes) > t.m.AllFreeMemory()
}
