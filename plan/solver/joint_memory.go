package solver

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/plan/search"
	"isolane.dev/isolane/plan/stock"
	"isolane.dev/isolane/quantity"
)

// allocate finds memory for all lanes placed so far, and records what each gets.
func (t *jointSearch) allocate() bool {
	var needs []stock.Need
	var who []int
	for i := range t.have {
		if p := &t.have[i]; p.WantsMemory() {
			needs, who = append(needs, p.Need()), append(who, i)
		}
	}
	if len(needs) == 0 {
		return true
	}
	for i := t.placed; i < len(t.m.Lanes); i++ {
		t.m.Lanes[i].Memory, t.m.Lanes[i].Hugepages = nil, nil
	}
	all, ok := t.m.Allocate(needs)
	if !ok {
		return false
	}
	for i, g := range all {
		t.have[who[i]].Allocation = g
		l := &t.m.Lanes[t.placed+who[i]]
		l.Memory, l.Hugepages = g.Memory, g.Huge
	}
	return true
}

// eachMemory calls use for each set of nodes from which the memory of a place could come, the cheapest first.
func (t *jointSearch) eachMemory(p search.Place, use func(search.Place)) {
	if !p.WantsMemory() {
		use(p)
		return
	}
	sets, ok := t.sets[p.Nodes]
	if !ok {
		sets = t.memorySets(p.Nodes)
		t.sets[p.Nodes] = sets
	}
	for _, set := range sets {
		if p.Memory = set; search.FixedCost(t.m, &p) {
			use(p)
		}
	}
}

// memorySets returns the sets of nodes with memory, the cheapest for CPUs on the given nodes first. On a
// machine with more than eight such nodes, it tries only sets of up to two.
func (t *jointSearch) memorySets(cpus stock.NodeSet) []stock.NodeSet {
	var with stock.NodeSet
	ample := t.ample()
	for n, at := range t.m.Nodes {
		if at.HasMemory {
			with |= 1 << n
		}
	}
	var sets []stock.NodeSet
	if t.firstFound { // the cost of memory does not count: all nodes, or for `numa: one` a single one
		sets = append(sets, with)
		for n := range with.All() {
			sets = append(sets, 1<<n)
		}
		return sets
	}
	add := func(set stock.NodeSet) {
		if set.Len() == 1 || set&ample == 0 {
			sets = append(sets, set)
		}
	}
	if t.incomplete = t.incomplete || with.Len() > 8; with.Len() <= 8 {
		for set := with; set > 0; set = (set - 1) & with {
			add(set)
		}
	} else {
		for a := range with.All() {
			for b := range (with >> a << a).All() {
				add(1<<a | 1<<b)
			}
		}
	}
	slices.SortFunc(sets, func(a, b stock.NodeSet) int {
		return cmp.Or(cmp.Compare((a|cpus).Len(), (b|cpus).Len()),
			cmp.Compare(t.m.MemoryDistance(cpus, a), t.m.MemoryDistance(cpus, b)),
			cmp.Compare(b.Len(), a.Len()), cmp.Compare(a, b))
	})
	for i, set := range sets {
		if set&ample != 0 {
			return sets[:i+1] // enough, also for all other lanes: no later set can be better
		}
	}
	return sets
}

// ample returns the nodes that alone have enough memory for all lanes of the request, pools not counted.
func (t *jointSearch) ample() stock.NodeSet {
	need, page := uint64(0), uint64(1)
	sizes := map[uint64]bool{}
	for _, l := range t.lanes {
		need = stock.PlusCapped(need, uint64(l.Spec.Memory.Size))
		for name, bytes := range l.Spec.Memory.Hugepages {
			size, _ := quantity.ParseBytes(name) // parsed before
			need, page, sizes[uint64(size)] = stock.PlusCapped(need, uint64(bytes)), max(page, uint64(size)), true
		}
	}
	placed := t.m.Lanes
	t.m.Lanes = placed[:t.placed]
	defer func() { t.m.Lanes = placed }()
	ample := stock.NodeSet(0)
	for n := range t.m.Nodes {
		left, pool := t.m.FreeMemory(n)
		knows := true
		for size := range sizes {
			_, ok := pool[size]
			knows = knows && ok
		}
		if knows && left >= stock.PlusCapped(need, page) {
			ample |= 1 << n
		}
	}
	if t.m.AllFreeMemory() < stock.PlusCapped(need, t.m.HousekeepingBytes) {
		return 0
	}
	return ample
}
