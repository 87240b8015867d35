package search

import (
	"cmp"
	"maps"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/stock"
)

// enumeration goes through all ways to take CPUs of a machine's cores. It skips ways that differ only in
// which of several equal cores they take.
type enumeration struct {
	*search
	ways   [][][]int // by core: the sets of CPUs to take, the largest first and the empty one last
	same   []bool    // by core: it is equal to the one before
	after  []int     // by core: how many CPUs it and the later ones have for the lane
	picked []int     // by core: the index in ways
	worth  func(partial plan.Cost) bool
	found  func(Place) bool
}

// EachPlace calls found with every place of a lane until found returns false. worth decides, from a lower
// bound of the cost of a partial place, whether to complete the place. Preferred wishes limit nothing: the
// price includes them.
func EachPlace(m *stock.Machine, l lane.Lane, dropPreferred bool,
	worth func(plan.Cost) bool, found func(Place) bool,
) {
	soft := slices.Sorted(maps.Keys(l.Spec.Preferred))
	whole, others := m.PreferredAparts(l.Metadata.Name)
	for _, o := range whole {
		others = append(others, o.Name)
	}
	rest := slices.DeleteFunc(slices.Clone(soft), func(w string) bool { return w == "smt" })
	rounds := [][]string{rest, soft} // with whole cores, and without
	if dropPreferred || len(rest) == len(soft) {
		rounds = rounds[1:]
	}
	for _, dropped := range rounds {
		ways, err := demandsOf(m, l, Relaxed{Wishes: dropped, Others: others, allDevices: true})
		if err != nil {
			return
		}
		for _, a := range ways {
			if !newEnumeration(m, a, worth, found).walk(0, 0, plan.Cost{}, footprint{}) {
				return
			}
		}
	}
}

func newEnumeration(m *stock.Machine, a demand, worth func(plan.Cost) bool,
	found func(Place) bool,
) *enumeration {
	n := len(m.Cores)
	e := &enumeration{search: newSearch(m, a, nil), ways: make([][][]int, n), same: make([]bool, n),
		after: make([]int, n+1), picked: make([]int, n), worth: worth, found: found}
	for c := n - 1; c >= 0; c-- {
		e.after[c] = e.after[c+1]
		if e.allows(m.Domains[m.Cores[c].Domain]) {
			e.ways[c] = e.waysOf(c)
			e.after[c] += e.takes[c].most
		} else {
			e.ways[c] = [][]int{nil}
		}
		e.picked[c] = len(e.ways[c]) - 1
	}
	for c := 1; c < n; c++ {
		e.same[c] = e.isTwin(c-1, c)
	}
	return e
}

// waysOf returns the sets of CPUs to take of a core. Of equal CPUs it takes the first ones.
func (e *enumeration) waysOf(c int) [][]int {
	open := e.takes[c].open
	ways := [][]int{}
	switch {
	case e.a.smt == lane.Isolate && e.takes[c].most > 0:
		ways = append(ways, open[:1])
	case e.a.smt == lane.Pack && e.takes[c].most > 0:
		ways = append(ways, open)
	case e.a.smt == lane.Any:
		for set := 1; set < 1<<len(open); set++ {
			var way []int
			for i, id := range open {
				switch {
				case set&(1<<i) != 0:
					way = append(way, id)
				case i+1 < len(open) && set&(1<<(i+1)) != 0 && e.isAlike(id, open[i+1]):
					way = append(way, -1) // the one before would do as well
				}
			}
			if !slices.Contains(way, -1) {
				ways = append(ways, way)
			}
		}
	}
	slices.SortStableFunc(ways, func(a, b []int) int { return cmp.Compare(len(b), len(a)) })
	return append(ways, nil)
}

// isAlike reports whether two CPUs of a core are equal for the lane. Equal CPUs are next to each other in the
// takes of a core.
func (e *enumeration) isAlike(a, b int) bool {
	return e.m.Owner(a) == stock.Nobody && e.m.Owner(b) == stock.Nobody && e.m.PreparedAlike(a, b)
}

// isTwin reports whether two cores of a domain are equal for the lane.
func (e *enumeration) isTwin(a, b int) bool {
	m, x, y := e.m, e.m.Cores[a], e.m.Cores[b]
	if x.Domain != y.Domain || x.Kind != y.Kind || len(x.CPUs) != len(y.CPUs) ||
		!m.IsWhole(a) || !m.IsWhole(b) || len(e.takes[a].open) != len(e.takes[b].open) {
		return false
	}
	return slices.EqualFunc(x.CPUs, y.CPUs, m.PreparedAlike)
}

// footprint is where the CPUs taken so far are.
type footprint struct {
	nodes  stock.NodeSet
	caches int
	last   int // the L3 counted last, plus one
}

// walk continues at core c with have CPUs taken. It returns false to stop.
func (e *enumeration) walk(c, have int, cost plan.Cost, at footprint) bool {
	if have == e.count {
		return e.emit()
	}
	if have+e.after[c] < e.count {
		return true
	}
	within := e.m.Domains[e.m.Cores[c].Domain]
	for i, way := range e.ways[c] {
		// Of equal cores, the first ones give the most.
		if have+len(way) > e.count || e.same[c] && i < e.picked[c-1] {
			continue
		}
		next, to := cost, at
		if len(way) > 0 {
			next, to = e.extend(cost, at, c, way, within)
			if e.a.oneL3 && next.L3Crossings > 0 || e.a.oneNode && next.NUMACrossings > 0 || !e.worth(next) {
				continue
			}
		}
		e.picked[c] = i
		if !e.walk(c+1, have+len(way), next, to) {
			return false
		}
	}
	e.picked[c] = len(e.ways[c]) - 1
	return true
}

// extend adds the CPUs of one more core to the lower bound.
func (e *enumeration) extend(cost plan.Cost, at footprint, c int, way []int,
	in stock.Domain,
) (plan.Cost, footprint) {
	at.nodes |= 1 << in.Node
	if at.last != in.Cache+1 {
		at.last, at.caches = in.Cache+1, at.caches+1
	}
	cost.NUMACrossings = at.nodes.Len() - 1
	if cost.L3Crossings = at.caches - 1; len(e.m.Domains) > e.m.L3s { // an L3 above several nodes may come again
		cost.L3Crossings = 0
	}
	for _, id := range way {
		cost.UnpreparedCPUs += e.m.Unprepared(id)
	}
	if e.a.smt == lane.Any && e.sharesCore(c, way) {
		cost.SharedCores++
	}
	if e.a.fast && e.m.Cores[c].Kind != host.Performance {
		cost.EfficiencyCPUs += len(way)
	}
	return cost, at
}

// emit calls found with a place. It returns false to stop.
func (e *enumeration) emit() bool {
	p := Place{demand: e.a}
	var cpus, idle []int
	for c, i := range e.picked {
		if way := e.ways[c][i]; len(way) > 0 {
			if cpus = append(cpus, way...); e.a.smt == lane.Isolate {
				idle = append(idle, e.takes[c].open[1:]...)
			}
		}
	}
	p.CPUs, p.idle = cpuset.Of(cpus...), cpuset.Of(idle...)
	return !FixedCost(e.m, &p) || e.found(p)
}
