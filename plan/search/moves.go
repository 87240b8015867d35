package search

import (
	"maps"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/stock"
)

// LaneAt returns the lane at a place, without the parts that only an answer has.
func LaneAt(m *stock.Machine, p Place) plan.Lane {
	l := LaneOf(m, &p)
	l.MemoryNodes = memoryNodes(m, p)
	return l
}

// BestOn returns the best place of a lane on one node.
func BestOn(m *stock.Machine, l lane.Lane, n int) (Place, bool) {
	ways, err := demandsOf(m, l, Relaxed{})
	if err != nil {
		return Place{}, false
	}
	for _, w := range ways {
		if w.near == 0 || w.near.Has(n) {
			w.near = 1 << n
			if p, ok := bestFor(m, w); ok {
				return p, true
			}
		}
	}
	return Place{}, false
}

// CanBeOn reports whether a lane's wishes allow a node.
func CanBeOn(m *stock.Machine, l lane.Lane, n int) bool {
	ways, err := demandsOf(m, l, Relaxed{})
	return err == nil && slices.ContainsFunc(ways, func(w demand) bool { return w.near == 0 || w.near.Has(n) })
}

// BestOff returns the best place of a lane that avoids some CPUs, ignoring its wishes.
func BestOff(m *stock.Machine, l lane.Lane, cpus cpuset.Set) (Place, bool) {
	ways, err := demandsOf(m, l, Relaxed{Wishes: l.Spec.Wishes()})
	if err != nil {
		return Place{}, false
	}
	way := ways[0]
	way.banned = way.banned.Union(cpus)
	return bestFor(m, way)
}

// Exchange returns the place of a lane with as many of its CPUs in off as possible exchanged for free ones in
// onto. It ignores the wishes for nodes and caches. It returns false if no CPU can be exchanged.
func Exchange(m *stock.Machine, has plan.Lane, off, onto cpuset.Set) (Place, bool) {
	ways, err := demandsOf(m, has.Declaration(), Relaxed{Wishes: []string{"near", "numa", "l3"}})
	if err != nil {
		return Place{}, false
	}
	s := newSearch(m, ways[0], nil)
	var free []int
	for id := range onto.Difference(has.CPUs).All() {
		if c := m.CoreOf(id); c >= 0 && s.isOpen(id) && s.takes[c].most > 0 {
			free = append(free, id)
		}
	}
	from := has.CPUs.Intersection(off).Slice()
	k := min(len(from), len(free))
	if k == 0 {
		return Place{}, false
	}
	p := Place{demand: ways[0], Allocation: stock.Allocation{Memory: has.Memory, Huge: has.Hugepages},
		CPUs: has.CPUs.Difference(cpuset.Of(from[:k]...)).Union(cpuset.Of(free[:k]...))}
	FixedCost(m, &p)
	return p, true
}

// Choice returns how many CPUs a lane can choose from, ignoring preferred wishes: its own, and those of
// others to be apart from it.
func Choice(m *stock.Machine, l lane.Lane) int {
	most := 0
	holds, others := m.PreferredAparts(l.Metadata.Name)
	for _, o := range holds {
		others = append(others, o.Name)
	}
	ways, _ := demandsOf(m, l, Relaxed{Wishes: slices.Sorted(maps.Keys(l.Spec.Preferred)), Others: others})
	for _, w := range ways {
		sum := 0
		for _, room := range newSearch(m, w, nil).room {
			if sum += room; w.oneNode {
				sum = room
			}
			most = max(most, sum)
		}
	}
	return most
}
