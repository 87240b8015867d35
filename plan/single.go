package plan

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
)

// bestPlace returns the place with the least cost for one lane; false where there is none. It is exact:
// nodes are tried in all combinations of the smallest number that does, and on each combination
// dynamic programming finds the CPUs.
func bestPlace(m *machine, l lane.Lane, r relaxed) (place, bool, error) {
	var best place
	found, searches := false, 0
	w := newWishes(m, l, r)
	sets, all := w.lightest()
	for _, set := range sets {
		if found && w.weight(set) > best.cost.BrokenWishes {
			break
		}
		ways, err := demandsOf(m, l, w.without(set))
		if err != nil {
			return place{searches: searches}, false, err
		}
		searches += len(ways)
		for _, a := range ways {
			if p, ok := bestWay(m, a, r.noHousekeeping, w.others); ok && (!found || p.compare(&best) < 0) {
				best, found = p, true
			}
		}
	}
	if best.searches = searches; found {
		best.improvable = !all && best.cost.BrokenWishes > 0
		allocateFor(m, &best)
	}
	return best, found, nil
}

// allocateFor records the memory that a place gets.
func allocateFor(m *machine, p *place) {
	if p.demand.wantsMemory() {
		if all, ok := m.allocate([]need{p.need()}); ok {
			p.allocation = all[0]
		}
	}
}

// bestFor is best for one demand.
func bestFor(m *machine, a demand) (place, bool) {
	p, ok := bestWay(m, a, false, nil)
	if ok {
		allocateFor(m, &p)
	}
	return p, ok
}

// bestWay is best for one demand, before memory is allocated. Where the best place would leave housekeeping
// no CPU, one of those that are free stays free: the one that costs least.
func bestWay(m *machine, a demand, noHousekeeping bool, soft []Lane) (place, bool) {
	p, ok := bestAnywhere(m, a, soft)
	free := m.free()
	if !ok || noHousekeeping || !free.IsSubsetOf(p.owned()) {
		return p, ok
	}
	var best place
	found := false
	banned := a.banned
	for id := range free.All() {
		a.banned = banned.Union(cpuset.Of(id))
		q, fits := bestAnywhere(m, a, soft)
		if fits && !free.IsSubsetOf(q.owned()) && (!found || q.compare(&best) < 0) {
			best, found = q, true
		}
	}
	return best, found
}

// bestAnywhere is best for one demand, also where that leaves housekeeping no CPU.
func bestAnywhere(m *machine, a demand, soft []Lane) (place, bool) {
	s := newSearch(m, a, soft)
	if !a.oneL3 {
		return s.run()
	}
	var best place
	found := false
	for cache := range m.l3s { // each L3 by itself
		s.limit(cache)
		if p, ok := s.run(); ok && (!found || p.compare(&best) < 0) {
			best, found = p, true
		}
	}
	return best, found
}

// search finds a place for one lane on one machine.
type search struct {
	m     *machine
	a     demand
	soft  []Lane // lanes that prefer to be apart from this one, and are
	cache int    // the only L3 to use, by its place; -1: all
	room  []int  // by node: CPUs that the lane could have
	block int    // the largest free block
	whole []int  // by node: CPUs of free whole cores
	takes []takes
	kinds []host.CPUKind
	table map[tableKey]domainTable
	count int
}

func newSearch(m *machine, a demand, soft []Lane) *search {
	s := &search{m: m, a: a, soft: soft, count: a.spec.CPUs.Count, whole: m.wholeByNode()}
	s.block = slices.Max(append(s.whole, 0))
	s.takes = make([]takes, len(m.cores))
	for c := range m.cores {
		s.takes[c] = s.choices(c)
	}
	s.kinds = s.kindsToTry()
	s.limit(-1)
	return s
}

// limit restricts the search to an L3; -1 is all.
func (s *search) limit(cache int) {
	s.cache, s.table = cache, map[tableKey]domainTable{}
	s.room = make([]int, len(s.m.nodes))
	for _, domain := range s.m.domains {
		if s.allows(domain) {
			for c := domain.from; c < domain.to; c++ {
				s.room[domain.node] += s.takes[c].most
			}
		}
	}
}

func (s *search) allows(c domain) bool {
	return (s.cache < 0 || s.cache == c.cache) && (s.a.near == 0 || s.a.near.has(c.node))
}

// run tries all combinations of the smallest number of nodes on which the lane fits.
func (s *search) run() (place, bool) {
	most := len(s.m.nodes)
	if s.a.oneNode {
		most = min(1, most)
	}
	for k := 1; k <= most; k++ {
		var best place
		found := false
		subsets(len(s.m.nodes), k, func(set nodeSet) {
			if p, ok := s.bestIn(set); ok && (!found || p.compare(&best) < 0) {
				best, found = p, true
			}
		})
		if found {
			return best, true
		}
		if k > 1 {
			continue
		}
		if _, ok := s.fill(1<<len(s.m.nodes)-1, anyKind, -1); !ok {
			break // it does not fit on all of them together
		}
	}
	return place{}, false
}

// bestIn is the best place with CPUs or memory on each node of a set and on no other.
func (s *search) bestIn(set nodeSet) (place, bool) {
	var best place
	found := false
	try := func(cpus, memory nodeSet) {
		for _, kind := range s.kinds {
			for _, counted := range s.blocks(cpus) {
				p, ok := s.fill(cpus, kind, counted)
				p.memory = memory
				if !ok || !price(s.m, &p, s.whole, s.block, s.soft) || memory > 0 && p.nodes != cpus {
					continue // with CPUs on fewer nodes, the best memory may be another
				}
				if !found || p.compare(&best) < 0 {
					best, found = p, true
				}
			}
		}
	}
	if !s.a.wantsMemory() {
		if s.hasRoom(set) {
			try(set, 0)
		}
		return best, found
	}
	for cpus := set; cpus > 0; cpus = (cpus - 1) & set { // nodes outside of cpus give memory only
		if s.hasRoom(cpus) {
			if memory, ok := s.memoryOn(set, cpus); ok {
				try(cpus, memory)
			}
		}
	}
	return best, found
}

func (s *search) hasRoom(set nodeSet) bool {
	room := 0
	for n := range set.all() {
		room += s.room[n]
	}
	return room >= s.count
}

// memoryOn chooses from a set of nodes those from which memory comes: all without CPUs of the lane, and of
// the others those with the least distance.
func (s *search) memoryOn(set, cpus nodeSet) (nodeSet, bool) {
	var best nodeSet
	found, least := false, 0
	for own := cpus; ; own = (own - 1) & cpus {
		nodes := set&^cpus | own
		d := s.m.memoryDistance(cpus, nodes)
		if !found || d < least || d == least && nodes.len() > best.len() {
			if _, ok := s.m.allocate([]need{s.a.need(nodes, cpus)}); ok {
				best, found, least = nodes, true, d
			}
		}
		if own == 0 {
			return best, found
		}
	}
}

// anyKind stands for all kinds of core.
const anyKind host.CPUKind = "any"

// kindsToTry are all kinds of core together, and each alone where there are several.
func (s *search) kindsToTry() []host.CPUKind {
	kinds := []host.CPUKind{anyKind}
	for c, k := range s.m.cores {
		if s.takes[c].most > 0 && !slices.Contains(kinds, k.kind) {
			kinds = append(kinds, k.kind)
		}
	}
	if len(kinds) == 2 {
		return kinds[:1] // there is just one
	}
	return kinds
}

// blocks are the nodes whose free whole cores may decide how much of the largest block is lost; -1 is none.
// A node decides only if no node outside of the set has a block as large.
func (s *search) blocks(set nodeSet) []int {
	outside := 0
	for n := range s.m.nodes {
		if !set.has(n) {
			outside = max(outside, s.whole[n])
		}
	}
	nodes := []int{-1}
	if outside < s.block {
		nodes = slices.AppendSeq(nodes, set.all())
	}
	return nodes
}

// takes are the CPUs of one core that a lane may have.
type takes struct {
	open []int // in the order in which they are taken
	most int   // how many of them the lane could use
}

// isOpen says whether the lane may have a CPU.
func (s *search) isOpen(id int) bool {
	if s.a.banned.Contains(id) || s.m.IsBoot(id) && !s.a.boot {
		return false
	}
	return s.m.Owner(id) == free ||
		s.a.share > 1 && s.m.Owner(id) == shared && s.m.canJoin(id, s.a.share)
}

// choices are the takes of a core: CPUs that boot prepared first, then shared ones, then the lowest.
func (s *search) choices(c int) takes {
	k := s.m.cores[c]
	if !fits(k.kind, s.a.kind) {
		return takes{}
	}
	var t takes
	for _, id := range k.cpus {
		if s.isOpen(id) {
			t.open = append(t.open, id)
		}
	}
	if s.a.smt != lane.Any && len(t.open) < len(k.cpus) || !s.chosen(&t) {
		return takes{}
	}
	if len(t.open) > 1 {
		slices.SortStableFunc(t.open, func(a, b int) int {
			// Shared is below free.
			return cmp.Or(cmp.Compare(s.m.Unprepared(a), s.m.Unprepared(b)), cmp.Compare(s.m.Owner(a), s.m.Owner(b)))
		})
	}
	t.most = len(t.open)
	if s.a.smt == lane.Isolate {
		t.most = min(t.most, 1)
	}
	return t
}

// chosen puts the CPUs that spec.cpus.list names in front, and removes the others unless they are to be idle.
// False: the lane can have no CPU of the core.
func (s *search) chosen(t *takes) bool {
	if s.a.list.IsEmpty() {
		return true
	}
	var named, others []int
	for _, id := range t.open {
		if s.a.list.Contains(id) {
			named = append(named, id)
		} else {
			others = append(others, id)
		}
	}
	switch s.a.smt {
	case lane.Isolate:
		t.open = append(named, others...)
		return len(named) == 1
	case lane.Pack:
		return len(others) == 0
	}
	t.open = named
	return len(named) > 0
}
