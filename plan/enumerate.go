package plan

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
)

// enumeration goes through the cores of a machine and takes CPUs of each in all ways, but for those that
// differ only in which of several equal cores they take.
type enumeration struct {
	*search
	ways  [][][]int // by core: what may be taken of it, the most first and nothing last
	same  []bool    // by core: it makes no difference whether this one or the one before is taken
	after []int     // by core: how many CPUs it and those behind it can give
	took  []int     // by core: the place in ways
	hope  func(partial Cost) bool
	use   func(place) bool
}

// every calls use with all places of a lane until use returns false; hope says of what a part of a place
// costs at least whether it is worth going on. Preferred wishes limit nothing: they are in the price.
func (m *machine) every(l lane.Lane, loose bool, hope func(Cost) bool, use func(place) bool) {
	soft := sortedKeys(l.Spec.Preferred)
	whole, lost := m.preferredAparts(l.Metadata.Name)
	for _, o := range whole {
		lost = append(lost, o.Name)
	}
	rest := slices.DeleteFunc(slices.Clone(soft), func(w string) bool { return w == "smt" })
	rounds := [][]string{rest, soft} // with whole cores, and without
	if loose || len(rest) == len(soft) {
		rounds = rounds[1:]
	}
	for _, dropped := range rounds {
		ways, err := m.asks(l, relaxed{wishes: dropped, others: lost, allDevices: true})
		if err != nil {
			return
		}
		for _, a := range ways {
			if !m.newEnumeration(a, hope, use).from(0, 0, Cost{}, footprint{}) {
				return
			}
		}
	}
}

func (m *machine) newEnumeration(a ask, hope func(Cost) bool, use func(place) bool) *enumeration {
	n := len(m.cores)
	e := &enumeration{search: m.newSearch(a, nil), ways: make([][][]int, n), same: make([]bool, n),
		after: make([]int, n+1), took: make([]int, n), hope: hope, use: use}
	for c := n - 1; c >= 0; c-- {
		e.after[c] = e.after[c+1]
		if e.allows(m.domains[m.cores[c].domain]) {
			e.ways[c] = e.waysOf(c)
			e.after[c] += e.takes[c].most
		} else {
			e.ways[c] = [][]int{nil}
		}
		e.took[c] = len(e.ways[c]) - 1
	}
	for c := 1; c < n; c++ {
		e.same[c] = e.isTwin(c-1, c)
	}
	return e
}

// waysOf are the ways to take CPUs of a core. Of CPUs that are alike, the first are taken.
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

// isAlike says whether it makes no difference which of two CPUs of a core is taken. Those in the choices of a
// core stand beside each other if they are.
func (e *enumeration) isAlike(a, b int) bool {
	m := e.m
	if m.owner[a] != m.owner[b] || m.unprepared[a] != m.unprepared[b] || m.reserved[a] != m.reserved[b] {
		return false
	}
	return m.owner[a] == free
}

// isTwin says whether it makes no difference which of two cores of a domain is taken.
func (e *enumeration) isTwin(a, b int) bool {
	m, x, y := e.m, e.m.cores[a], e.m.cores[b]
	if x.domain != y.domain || x.kind != y.kind || len(x.cpus) != len(y.cpus) ||
		!m.isWhole(a) || !m.isWhole(b) ||
		len(e.takes[a].open) != len(e.takes[b].open) {
		return false
	}
	for i := range x.cpus {
		if m.unprepared[x.cpus[i]] != m.unprepared[y.cpus[i]] || m.reserved[x.cpus[i]] != m.reserved[y.cpus[i]] {
			return false
		}
	}
	return true
}

// footprint is where the CPUs that were taken so far lie.
type footprint struct {
	nodes  nodeSet
	caches int
	last   int // the L3 that was counted last, plus one
}

// from continues at a core, with so many CPUs taken; false to stop.
func (e *enumeration) from(c, have int, cost Cost, at footprint) bool {
	if have == e.count {
		return e.offer()
	}
	if have+e.after[c] < e.count {
		return true
	}
	within := e.m.domains[e.m.cores[c].domain]
	for i, way := range e.ways[c] {
		if have+len(way) > e.count || e.same[c] && i < e.took[c-1] { // of equal cores, the first ones give the most
			continue
		}
		next, to := cost, at
		if len(way) > 0 {
			next, to = e.reach(cost, at, c, way, within)
			if e.a.oneL3 && next.L3Crossings > 0 || e.a.oneNode && next.NUMACrossings > 0 || !e.hope(next) {
				continue
			}
		}
		e.took[c] = i
		if !e.from(c+1, have+len(way), next, to) {
			return false
		}
	}
	e.took[c] = len(e.ways[c]) - 1
	return true
}

// reach adds what the CPUs of one more core cost for sure.
func (e *enumeration) reach(cost Cost, at footprint, c int, way []int, in domain) (Cost, footprint) {
	at.nodes |= 1 << in.node
	if at.last != in.cache+1 {
		at.last, at.caches = in.cache+1, at.caches+1
	}
	cost.NUMACrossings = at.nodes.len() - 1
	if cost.L3Crossings = at.caches - 1; len(e.m.domains) > e.m.l3s { // an L3 above several nodes may come again
		cost.L3Crossings = 0
	}
	for _, id := range way {
		cost.UnpreparedCPUs += e.m.unprepared[id]
	}
	if e.a.smt == lane.Any && e.sharesCore(c, way) {
		cost.SharedCores++
	}
	if e.a.fast && e.m.cores[c].kind != host.Performance {
		cost.EfficiencyCPUs += len(way)
	}
	return cost, at
}

// offer hands out a place.
func (e *enumeration) offer() bool {
	p := place{ask: e.a}
	var cpus, idle []int
	for c, i := range e.took {
		if way := e.ways[c][i]; len(way) > 0 {
			if cpus = append(cpus, way...); e.a.smt == lane.Isolate {
				idle = append(idle, e.takes[c].open[1:]...)
			}
		}
	}
	p.cpus, p.idle = cpuset.Of(cpus...), cpuset.Of(idle...)
	return !e.m.fixedCost(&p) || e.use(p)
}
