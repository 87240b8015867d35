package plan

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/quantity"
)

// allocate finds memory for all lanes placed so far, and records what each gets.
func (t *jointSearch) allocate() bool {
	var needs []need
	var who []int
	for i := range t.have {
		if p := &t.have[i]; p.wantsMemory() {
			needs, who = append(needs, p.need()), append(who, i)
		}
	}
	if len(needs) == 0 {
		return true
	}
	for i := t.placed; i < len(t.m.lanes); i++ {
		t.m.lanes[i].Memory, t.m.lanes[i].Hugepages = nil, nil
	}
	all, ok := t.m.allocate(needs)
	if !ok {
		return false
	}
	for i, g := range all {
		t.have[who[i]].allocation = g
		l := &t.m.lanes[t.placed+who[i]]
		l.Memory, l.Hugepages = g.memory, g.huge
	}
	return true
}

// eachMemory calls use for each set of nodes from which the memory of a place could come, the cheapest first.
func (t *jointSearch) eachMemory(p place, use func(place)) {
	if !p.wantsMemory() {
		use(p)
		return
	}
	sets, ok := t.sets[p.nodes]
	if !ok {
		sets = t.memorySets(p.nodes)
		t.sets[p.nodes] = sets
	}
	for _, set := range sets {
		if p.memory = set; fixedCost(t.m, &p) {
			use(p)
		}
	}
}

// memorySets are the sets of nodes with memory, the cheapest for CPUs on some nodes first. On a machine with
// more than eight such nodes, only sets of up to two are tried.
func (t *jointSearch) memorySets(cpus nodeSet) []nodeSet {
	var with nodeSet
	ample := t.ample()
	for n, at := range t.m.nodes {
		if at.hasMemory {
			with |= 1 << n
		}
	}
	var sets []nodeSet
	if t.firstFound { // what memory costs does not count: from all nodes, or for `numa: one` from one
		sets = append(sets, with)
		for n := range with.all() {
			sets = append(sets, 1<<n)
		}
		return sets
	}
	add := func(set nodeSet) {
		if set.len() == 1 || set&ample == 0 {
			sets = append(sets, set)
		}
	}
	if t.incomplete = t.incomplete || with.len() > 8; with.len() <= 8 {
		for set := with; set > 0; set = (set - 1) & with {
			add(set)
		}
	} else {
		for a := range with.all() {
			for b := range (with >> a << a).all() {
				add(1<<a | 1<<b)
			}
		}
	}
	slices.SortFunc(sets, func(a, b nodeSet) int {
		return cmp.Or(cmp.Compare((a|cpus).len(), (b|cpus).len()),
			cmp.Compare(t.m.memoryDistance(cpus, a), t.m.memoryDistance(cpus, b)),
			cmp.Compare(b.len(), a.len()), cmp.Compare(a, b))
	})
	for i, set := range sets {
		if set&ample != 0 {
			return sets[:i+1] // there is enough, also for all other lanes: no later set can be better
		}
	}
	return sets
}

// ample are the nodes that alone have memory for all lanes of the request, without their pools.
func (t *jointSearch) ample() nodeSet {
	need, page := uint64(0), uint64(1)
	sizes := map[uint64]bool{}
	for _, l := range t.lanes {
		need = plusCapped(need, uint64(l.Spec.Memory.Size))
		for name, bytes := range l.Spec.Memory.Hugepages {
			size, _ := quantity.ParseBytes(name) // it was parsed before
			need, page, sizes[uint64(size)] = plusCapped(need, uint64(bytes)), max(page, uint64(size)), true
		}
	}
	placed := t.m.lanes
	t.m.lanes = placed[:t.placed]
	defer func() { t.m.lanes = placed }()
	ample := nodeSet(0)
	for n := range t.m.nodes {
		left, pool := t.m.freeMemory(n)
		knows := true
		for size := range sizes {
			_, ok := pool[size]
			knows = knows && ok
		}
		if knows && left >= plusCapped(need, page) {
			ample |= 1 << n
		}
	}
	if t.m.allFreeMemory() < plusCapped(need, t.m.housekeepingBytes) {
		return 0
	}
	return ample
}
