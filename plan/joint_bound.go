package plan

import (
	"slices"
)

// crowded says whether the lanes need more CPUs or memory than there are.
func (t *jointSearch) crowded() bool {
	need := 0
	for _, l := range t.lanes {
		if l.Spec.CPUs.Share <= 1 {
			need += l.Spec.CPUs.Count
		}
	}
	return need > 0 && need >= t.m.free().Len() || t.isShort() // one is housekeeping's
}

// over says whether the search has to end.
func (t *jointSearch) over() bool { return t.steps < 0 || t.any && t.found }

// couldBeat says whether what is placed, with the least that the others cost, may cost less than the best so
// far.
func (t *jointSearch) couldBeat(cost, rest Cost) bool {
	if !t.found {
		return true
	}
	cost = cost.plus(rest)
	return !t.any && cost.Compare(t.cost) < 0
}

// leastLoss is the least that the largest free block comes to lose when the lanes from a depth on are placed:
// what does not find room beside others has to come from whole cores.
func (t *jointSearch) leastLoss(depth int) int {
	m := t.m
	beside, whole := 0, m.wholes()
	for id, c := range m.at {
		if c >= 0 && m.owner[id] == free && !m.isWhole(c) {
			beside++
		}
	}
	need := 0
	for _, l := range t.lanes[depth:] {
		if l.Spec.CPUs.Share <= 1 {
			need += l.Spec.CPUs.Count
		}
	}
	total := 0
	for _, w := range whole {
		total += w
	}
	left := min(slices.Max(append(whole, 0)), total-max(0, need-beside))
	return t.before - max(0, left)
}

// isShort says whether the lanes want more memory than all nodes have together; what pools have, lanes may
// have as pages.
func (t *jointSearch) isShort() bool {
	want, have, some := uint64(0), uint64(0), false
	for _, l := range t.lanes {
		want, some = plusCapped(want, uint64(l.Spec.Memory.Size)), some || l.Spec.Memory.Size > 0
	}
	for n := range t.m.nodes {
		left, _ := t.m.freeMemory(n)
		have = plusCapped(have, left)
	}
	return some && plusCapped(want, t.m.keep) > have
}
