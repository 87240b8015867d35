package plan

import (
	"cmp"
	"math/bits"
	"slices"
)

// supplied finds memory for all lanes that are placed, and notes what each gets.
func (t *together) supplied() bool {
	var needs []need
	var who []int
	for i := range t.have {
		if p := &t.have[i]; p.ask.wantsMemory() {
			needs, who = append(needs, need{&p.ask, p.set, p.nodes}), append(who, i)
		}
	}
	if len(needs) == 0 {
		return true
	}
	for i := t.first; i < len(t.m.lanes); i++ {
		t.m.lanes[i].Memory, t.m.lanes[i].Hugepages = nil, nil
	}
	all, ok := t.m.supply(needs)
	if !ok {
		return false
	}
	for i, g := range all {
		t.have[who[i]].given = g
		l := &t.m.lanes[t.first+who[i]]
		l.Memory, l.Hugepages = g.memory, g.huge
	}
	return true
}

// withMemory calls use with a place for each set of nodes from which its memory could come, those that cost least first.
func (t *together) withMemory(p place, use func(place)) {
	if !p.ask.wantsMemory() {
		use(p)
		return
	}
	sets, ok := t.sets[p.nodes]
	if !ok {
		sets = t.memorySets(p.nodes)
		t.sets[p.nodes] = sets
	}
	for _, set := range sets {
		if p.set = set; t.m.survey(&p) {
			use(p)
		}
	}
}

// memorySets are the sets of nodes with memory, the best for CPUs on some nodes first. On a machine with many, only
// sets of up to two are looked at.
func (t *together) memorySets(cpus uint64) []uint64 {
	var with []int
	for n, at := range t.m.nodes {
		if at.hasMemory {
			with = append(with, n)
		}
	}
	var sets []uint64
	most := len(with)
	if most > 8 {
		most, t.unsure = 2, true
	}
	for k := 1; k <= most; k++ {
		subsets(len(with), k, func(chosen uint64) {
			set := uint64(0)
			for i, n := range with {
				if chosen&(1<<i) != 0 {
					set |= 1 << n
				}
			}
			sets = append(sets, set)
		})
	}
	slices.SortStableFunc(sets, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(bits.OnesCount64(a|cpus), bits.OnesCount64(b|cpus)),
			cmp.Compare(t.m.memoryDistance(cpus, a), t.m.memoryDistance(cpus, b)), cmp.Compare(bits.OnesCount64(b), bits.OnesCount64(a)))
	})
	return sets
}
