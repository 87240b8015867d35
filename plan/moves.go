package plan

import (
	"maps"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
)

// bareLane is a place as a lane, without the parts that only the answer has.
func bareLane(m *machine, p place) Lane {
	l := laneAt(m, &p)
	l.MemoryNodes = memoryNodes(m, p)
	return l
}

// bestOn is best for a lane on one node.
func bestOn(m *machine, l lane.Lane, n int) (place, bool) {
	ways, err := demandsOf(m, l, relaxed{})
	if err != nil {
		return place{}, false
	}
	for _, w := range ways {
		if w.near == 0 || w.near.has(n) {
			w.near = 1 << n
			if p, ok := bestFor(m, w); ok {
				return p, true
			}
		}
	}
	return place{}, false
}

// canBeOn says whether a lane's wishes allow a node.
func canBeOn(m *machine, l lane.Lane, n int) bool {
	ways, err := demandsOf(m, l, relaxed{})
	return err == nil && slices.ContainsFunc(ways, func(w demand) bool { return w.near == 0 || w.near.has(n) })
}

// bestOff is the best place for a lane off some CPUs, whatever its wishes.
func bestOff(m *machine, l lane.Lane, cpus cpuset.Set) (place, bool) {
	ways, err := demandsOf(m, l, relaxed{wishes: l.Spec.Wishes()})
	if err != nil {
		return place{}, false
	}
	way := ways[0]
	way.banned = way.banned.Union(cpus)
	return bestFor(m, way)
}

// exchange is the place of a lane with as many of its CPUs in one set exchanged for free ones in another as
// can be; with the wishes for nodes and caches given up. False: there are none.
func exchange(m *machine, has Lane, off, onto cpuset.Set) (place, bool) {
	ways, err := demandsOf(m, has.declaration(), relaxed{wishes: []string{"near", "numa", "l3"}})
	if err != nil {
		return place{}, false
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
		return place{}, false
	}
	p := place{demand: ways[0], allocation: allocation{memory: has.Memory, huge: has.Hugepages},
		cpus: has.CPUs.Difference(cpuset.Of(from[:k]...)).Union(cpuset.Of(free[:k]...))}
	fixedCost(m, &p)
	return p, true
}

// choice is how many CPUs a lane has to choose from without its preferred wishes.
func choice(m *machine, l lane.Lane) int {
	most := 0
	ways, _ := demandsOf(m, l, relaxed{wishes: slices.Sorted(maps.Keys(l.Spec.Preferred))})
	for _, w := range ways {
		sum := 0
		for _, room := range newSearch(m, w, nil).room {
			sum += room
		}
		most = max(most, sum)
	}
	return most
}
