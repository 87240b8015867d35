// Package search finds the place of one lane on a machine that costs least. Best does so by dynamic
// programming over cores, L3 caches and nodes; EachPlace goes through all places that may be worth trying.
// The package prices places, and gives the reasons for one.
package search

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/stock"
)

// Best returns the place with the least cost for one lane; false if there is none. It tries all combinations
// of the smallest number of nodes that suffices, and on each finds the CPUs by dynamic programming, so it is
// exact. Only for places with memory it stops being exact after mostTries, and says so.
func Best(m *stock.Machine, l lane.Lane, r Relaxed) (Place, bool, error) {
	var best Place
	found, cut, searches := false, false, 0
	w := newWishes(m, l, r)
	sets, all := w.lightest()
	for _, set := range sets {
		if found && w.weight(set) > best.Cost.BrokenWishes {
			break
		}
		ways, err := demandsOf(m, l, w.without(set))
		if err != nil {
			return Place{Searches: searches}, false, err
		}
		searches += len(ways)
		for _, a := range ways {
			p, ok := bestWay(m, a, r.NoHousekeeping, w.others)
			if ok && (!found || p.compare(&best) < 0) {
				best, found = p, true
			}
			cut = cut || p.Improvable
		}
	}
	if best.Searches = searches; found {
		best.Improvable = cut || !all && best.Cost.BrokenWishes > 0
		allocateFor(m, &best)
	}
	return best, found, nil
}

// allocateFor records the memory that a place gets.
func allocateFor(m *stock.Machine, p *Place) {
	if p.demand.wantsMemory() {
		if all, ok := m.Allocate([]stock.Need{p.Need()}); ok {
			p.Allocation = all[0]
		}
	}
}

// bestFor returns the best place for one demand.
func bestFor(m *stock.Machine, a demand) (Place, bool) {
	p, ok := bestWay(m, a, false, nil)
	if ok {
		allocateFor(m, &p)
	}
	return p, ok
}

// bestWay returns the best place for one demand before memory is allocated. If that place would leave
// housekeeping no CPU, one free CPU stays free: the one that costs least.
func bestWay(m *stock.Machine, a demand, noHousekeeping bool, soft []plan.Lane) (Place, bool) {
	p, ok := bestAnywhere(m, a, soft)
	free := m.Free()
	if !ok || noHousekeeping || !free.IsSubsetOf(p.owned()) {
		return p, ok
	}
	var best Place
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

// bestAnywhere returns the best place for one demand, even if that leaves housekeeping no CPU.
func bestAnywhere(m *stock.Machine, a demand, soft []plan.Lane) (Place, bool) {
	s := newSearch(m, a, soft)
	if !a.oneL3 {
		return s.run()
	}
	var best Place
	found := false
	for cache := range m.L3s { // each L3 by itself
		s.limit(cache)
		if p, ok := s.run(); ok && (!found || p.compare(&best) < 0) {
			best, found = p, true
		}
	}
	best.Improvable = s.over || s.tries > mostTries
	return best, found
}

// search finds a place for one lane on one machine.
type search struct {
	m     *stock.Machine
	a     demand
	soft  []plan.Lane // lanes that prefer to be apart from this one, and are so far
	cache int         // the only L3 to use, by index; -1: all
	room  []int       // by node: CPUs that the lane could have
	block int         // the largest free block
	whole []int       // by node: CPUs of free whole cores
	takes []takes
	kinds []host.CPUKind
	table map[tableKey]domainTable
	count int
	tries int  // combinations of nodes for memory
	over  bool // too many were needed, in this L3 or another
}

// mostTries is the number of tries after which the best place so far is taken, if CPUs or memory may come
// from very many combinations of nodes. Machines with up to 16 nodes have fewer combinations for CPUs, those
// with up to 8 for memory.
const mostTries = 1 << 16

func newSearch(m *stock.Machine, a demand, soft []plan.Lane) *search {
	s := &search{m: m, a: a, soft: soft, count: a.spec.CPUs.Count, whole: m.WholeByNode()}
	s.block = slices.Max(append(s.whole, 0))
	s.takes = make([]takes, len(m.Cores))
	for c := range m.Cores {
		s.takes[c] = s.choices(c)
	}
	s.kinds = s.kindsToTry()
	s.limit(-1)
	return s
}

// limit restricts the search to an L3; -1 is all.
func (s *search) limit(cache int) {
	s.over = s.over || s.tries > mostTries
	s.cache, s.table, s.tries = cache, map[tableKey]domainTable{}, 0
	s.room = make([]int, len(s.m.Nodes))
	for _, domain := range s.m.Domains {
		if s.allows(domain) {
			for c := domain.From; c < domain.To; c++ {
				s.room[domain.Node] += s.takes[c].most
			}
		}
	}
}

func (s *search) allows(c stock.Domain) bool {
	return (s.cache < 0 || s.cache == c.Cache) && (s.a.near == 0 || s.a.near.Has(c.Node))
}

// run tries all combinations of the smallest number of nodes on which the lane fits.
func (s *search) run() (Place, bool) {
	nodes := s.useful()
	most := len(nodes)
	if s.a.oneNode {
		most = min(1, most)
	}
	if _, ok := s.fill(1<<len(s.m.Nodes)-1, anyKind, -1); !ok {
		return Place{}, false // so none of them can
	}
	for k := s.fewest(); k <= most; k++ {
		var best Place
		found := false
		stock.Subsets(len(nodes), k, func(which stock.NodeSet) {
			if found && s.tries > mostTries {
				return
			}
			set := stock.NodeSet(0)
			for i := range which.All() {
				set |= 1 << nodes[i]
			}
			if p, ok := s.bestIn(set); ok && (!found || p.compare(&best) < 0) {
				best, found = p, true
			}
		})
		if found {
			best.Improvable = s.tries > mostTries
			return best, true
		}
	}
	return Place{}, false
}

// bestIn returns the best place with CPUs or memory on each node of a set, and on no other.
func (s *search) bestIn(set stock.NodeSet) (Place, bool) {
	var best Place
	found := false
	try := func(cpus, memory stock.NodeSet) {
		for _, kind := range s.kinds {
			for _, counted := range s.blocks(cpus) {
				p, ok := s.fill(cpus, kind, counted)
				p.Memory = memory
				if !ok || !price(s.m, &p, s.whole, s.block, s.soft) || memory > 0 && p.Nodes != cpus {
					continue // with CPUs on fewer nodes, other memory may be the best
				}
				if memory == 0 && (p.Nodes|s.m.FarMemory(p.Nodes))&^set != 0 {
					continue // its memory is on a node of another set, and is tried with that
				}
				if !found || p.compare(&best) < 0 {
					best, found = p, true
				}
			}
		}
	}
	if !s.a.wantsMemory() {
		s.tries++
		with := func(cpus stock.NodeSet) {
			if cpus > 0 && cpus|s.m.FarMemory(cpus) == set && s.hasRoom(cpus) {
				try(cpus, 0)
			}
		}
		with(set)
		for n := range set.All() { // far memory is on one node
			with(set &^ (1 << n))
		}
		return best, found
	}
	if _, ok := s.m.Allocate([]stock.Need{s.a.need(set, set)}); !ok {
		return best, false // so no part of it has the memory either
	}
	for cpus := set; cpus > 0; cpus = (cpus - 1) & set { // nodes outside of cpus give only memory
		if found && s.tries > mostTries {
			break
		}
		if s.hasRoom(cpus) {
			if memory, ok := s.memoryOn(set, cpus); ok {
				try(cpus, memory)
			}
		}
	}
	return best, found
}

func (s *search) hasRoom(set stock.NodeSet) bool {
	room := 0
	for n := range set.All() {
		room += s.room[n]
	}
	return room >= s.count
}

// memoryOn chooses the nodes of a set that memory comes from: all that have no CPUs of the lane, and of the
// others those with the least distance.
func (s *search) memoryOn(set, cpus stock.NodeSet) (stock.NodeSet, bool) {
	var best stock.NodeSet
	found, least := false, 0
	for own := cpus; ; own = (own - 1) & cpus {
		s.tries++
		nodes := set&^cpus | own
		d := s.m.MemoryDistance(cpus, nodes)
		if !found || d < least || d == least && nodes.Len() > best.Len() {
			if _, ok := s.m.Allocate([]stock.Need{s.a.need(nodes, cpus)}); ok {
				best, found, least = nodes, true, d
			}
		}
		if own == 0 || found && s.tries > mostTries {
			return best, found
		}
	}
}

// anyKind stands for all kinds of core.
const anyKind host.CPUKind = "any"

// kindsToTry returns all kinds together and, if there are several, each alone.
func (s *search) kindsToTry() []host.CPUKind {
	kinds := []host.CPUKind{anyKind}
	for c, k := range s.m.Cores {
		if s.takes[c].most > 0 && !slices.Contains(kinds, k.Kind) {
			kinds = append(kinds, k.Kind)
		}
	}
	if len(kinds) == 2 {
		return kinds[:1] // there is just one
	}
	return kinds
}

// blocks returns the nodes whose free whole cores may decide how much of the largest block is lost; -1 for
// none. A node decides only if no node outside of the set has a block as large.
func (s *search) blocks(set stock.NodeSet) []int {
	outside := 0
	for n := range s.m.Nodes {
		if !set.Has(n) {
			outside = max(outside, s.whole[n])
		}
	}
	nodes := []int{-1}
	if outside < s.block {
		nodes = slices.AppendSeq(nodes, set.All())
	}
	return nodes
}

// takes are the CPUs of one core that a lane may have.
type takes struct {
	open []int // in the order in which they are taken
	kept []int // the same, but CPUs that housekeeping would get come first among equally prepared ones; or nil
	most int   // how many of them the lane could use
}

// isOpen reports whether the lane may have a CPU.
func (s *search) isOpen(id int) bool {
	if s.a.banned.Contains(id) || s.m.IsBoot(id) && !s.a.boot {
		return false
	}
	return s.m.Owner(id) == stock.Nobody ||
		s.a.share > 1 && s.m.Owner(id) == stock.Several && s.m.CanJoin(id, s.a.share)
}

// choices returns the takes of a core: CPUs that boot prepared first, then shared ones, then the lowest.
func (s *search) choices(c int) takes {
	k := s.m.Cores[c]
	if !fits(k.Kind, s.a.kind) {
		return takes{}
	}
	var t takes
	for _, id := range k.CPUs {
		if s.isOpen(id) {
			t.open = append(t.open, id)
		}
	}
	if s.a.smt != lane.Any && len(t.open) < len(k.CPUs) || !s.chosen(&t) {
		return takes{}
	}
	if len(t.open) > 1 {
		slices.SortStableFunc(t.open, func(a, b int) int {
			// Several sorts before Nobody.
			return cmp.Or(boolInt(s.a.list.Contains(b))-boolInt(s.a.list.Contains(a)),
				cmp.Compare(s.m.Unprepared(a), s.m.Unprepared(b)), cmp.Compare(s.m.Owner(a), s.m.Owner(b)))
		})
	}
	t.most = len(t.open)
	if s.a.smt == lane.Isolate {
		t.most = min(t.most, 1)
	}
	if s.a.share > 1 && s.a.smt == lane.Any && len(t.open) > 1 {
		t.kept = slices.Clone(t.open)
		joins := func(id int) int {
			if s.m.IsOthers(id, s.a.share, -1) {
				return 0
			}
			return 1
		}
		slices.SortStableFunc(t.kept, func(a, b int) int {
			return cmp.Or(cmp.Compare(s.m.Unprepared(a), s.m.Unprepared(b)), cmp.Compare(joins(a), joins(b)))
		})
	}
	return t
}

// taken returns the n CPUs that the lane takes of a core: the first of open, unless with the first of kept
// nobody else has a thread of the core. Then the core is not shared, and costs less.
func (s *search) taken(c, n int) []int {
	t := &s.takes[c]
	if t.kept == nil || !s.sharesCore(c, t.open[:n]) || s.sharesCore(c, t.kept[:n]) {
		return t.open[:n]
	}
	return t.kept[:n]
}

// chosen removes the CPUs that spec.cpus.list does not name, except those to be idle beside a named one. It
// returns false if the lane can have no CPU of the core.
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
		return len(named) == 1
	case lane.Pack:
		return len(others) == 0
	}
	t.open = named
	return len(named) > 0
}
