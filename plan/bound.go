package plan

import (
	"slices"
)

// crowded says whether the lanes need more CPUs than there are.
func (t *together) crowded() bool {
	need := 0
	for _, l := range t.lanes {
		if l.Spec.CPUs.Share <= 1 {
			need += l.Spec.CPUs.Count
		}
	}
	return need > 0 && need >= t.m.free().Len() // one is housekeeping's
}

// over says whether the search has to end.
func (t *together) over() bool { return t.steps < 0 || t.any && t.found }

// couldBeat says whether what is placed, with the least that the others cost, may cost less than the best so far.
func (t *together) couldBeat(cost, rest Cost) bool {
	if !t.found {
		return true
	}
	cost = cost.plus(rest)
	return !t.any && cost.Compare(t.cost) < 0
}

// leastLoss is the least that the largest free block comes to lose when the lanes from a depth on are placed: what does not
// find room beside others has to come from whole cores.
func (t *together) leastLoss(depth int) int {
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
