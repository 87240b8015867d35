package solver

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/search"
	"isolane.dev/isolane/plan/stock"
)

// jointSearch places several lanes by branch and bound over their places. The cost is always that of all
// lanes placed so far, so the order in which lanes are placed affects only the time that the search takes.
type jointSearch struct {
	m             *stock.Machine
	lanes         []lane.Lane // in the order in which they are placed
	requested     []lane.Lane // in the order of the request
	placed        int         // how many lanes the machine had before
	blockBefore   int         // the largest free block before
	apartBefore   []bool      // by lane placed before: its preferred wish to be apart holds
	least         []plan.Cost // by depth: a lower bound of the joint cost of the lanes from there on
	steps         int         // left
	most          int         // steps at the start
	firstFound    bool        // end with the first placement found
	dropPreferred bool        // place lanes ignoring their preferred wishes
	competes      bool        // several lanes want memory
	plain         bool        // no lane shares CPUs or wants to be apart: cores with as much free are equal

	have        []search.Place
	best        []search.Place
	cost        plan.Cost
	found       bool
	incomplete  bool     // some places were not tried
	tooMuch     bool     // the host has fewer CPUs or less memory than the lanes want
	deepest     int      // the most lanes that were placed at the same time
	unplaced    *refused // the first lane without a place, on the machine as it was then
	seen        map[string]plan.Cost
	referenced  []bool // by lane: another one has a wish about it
	wantsMemory bool   // some lane wants memory
	// Buffers that are reused.
	scratch []byte
	cores   []uint64
	sets    map[stock.NodeSet][]stock.NodeSet
}

func newJointSearch(m *stock.Machine, lanes []lane.Lane, steps int) *jointSearch {
	t := &jointSearch{m: m, lanes: slices.Clone(lanes), requested: lanes, placed: len(m.Lanes),
		blockBefore: m.LargestBlock(), steps: steps, most: steps,
		seen: map[string]plan.Cost{}, sets: map[stock.NodeSet][]stock.NodeSet{}}
	t.sort()
	m.Claim(lanes)
	wanting := 0
	for _, l := range lanes {
		if wantsMemory(l) {
			wanting++
		}
	}
	t.competes, t.wantsMemory = wanting > 1, wanting > 0
	special := func(s lane.Spec) bool { return s.CPUs.Share > 1 || len(s.Apart.Lanes) > 0 }
	t.plain = !slices.ContainsFunc(lanes, func(l lane.Lane) bool { return special(l.Spec) }) &&
		!slices.ContainsFunc(m.Lanes, func(l plan.Lane) bool { return special(l.Spec) })
	for _, o := range m.Lanes {
		t.apartBefore = append(t.apartBefore, o.Spec.Preferred["apart"] > 0 && m.IsApart(o.Name, o.Spec, o.CPUs))
	}
	return t
}

// sort orders the lanes by keys, then by depth, then the largest first.
func (t *jointSearch) sort(keys ...func(lane.Lane) int) {
	slices.SortFunc(t.lanes, func(a, b lane.Lane) int {
		for _, key := range append(keys, t.depth, func(l lane.Lane) int { return -cpusTaken(l) }) {
			if n := cmp.Compare(key(a), key(b)); n != 0 {
				return n
			}
		}
		return cmp.Or(cmp.Compare(memoryOf(b), memoryOf(a)), strings.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	t.referenced = nil
	for _, l := range t.lanes {
		t.referenced = append(t.referenced, t.isReferenced(l.Metadata.Name))
	}
}

// findFirst makes the search end with the first placement.
func (t *jointSearch) findFirst(steps int, dropPreferred bool) {
	t.firstFound, t.dropPreferred, t.steps = true, dropPreferred, steps
	clear(t.seen)
	clear(t.sets)
}

// fewestChoicesFirst makes the search begin with the lanes that have the fewest CPUs to choose from. Lanes
// that are near to each other follow each other, the smallest first, so that a place without room for the
// others shows early. After them come lanes with wishes to be apart.
func (t *jointSearch) fewestChoicesFirst() {
	type rank struct{ choices, group int }
	ranks := map[string]rank{}
	for _, l := range t.lanes {
		group := len(t.lanes)
		if len(l.Spec.Apart.Lanes) == 0 && !t.isReferenced(l.Metadata.Name) {
			group++
		}
		ranks[l.Metadata.Name] = rank{search.Choice(t.m, l), group}
	}
	for range t.lanes { // the longest possible chain
		for i, l := range t.lanes {
			if near, ok := ranks[l.Spec.Near.Lane]; ok {
				own := ranks[l.Metadata.Name]
				both := rank{min(own.choices, near.choices), min(own.group, near.group, i)}
				ranks[l.Metadata.Name], ranks[l.Spec.Near.Lane] = both, both
			}
		}
	}
	t.sort(func(l lane.Lane) int { return ranks[l.Metadata.Name].choices },
		func(l lane.Lane) int { return ranks[l.Metadata.Name].group }, t.depth, cpusTaken)
}

// depth returns the length of the chain of lanes, each near to the next, that begins with a lane.
func (t *jointSearch) depth(l lane.Lane) int {
	depth, name := 0, l.Spec.Near.Lane
	for range t.lanes { // a circle ends here
		at := slices.IndexFunc(t.lanes, func(l lane.Lane) bool { return l.Metadata.Name == name })
		if name == "" || at < 0 {
			break
		}
		depth, name = depth+1, t.lanes[at].Spec.Near.Lane
	}
	return depth
}

// cpusTaken estimates how many CPUs a lane takes, so that the largest is placed first.
func cpusTaken(l lane.Lane) int {
	if l.Spec.CPUs.SMT == lane.Isolate {
		return 2 * l.Spec.CPUs.Count
	}
	return l.Spec.CPUs.Count
}

// wantsMemory reports whether memory or hugepages are set aside for a lane.
func wantsMemory(l lane.Lane) bool { return l.Spec.Memory.Size > 0 || len(l.Spec.Memory.Hugepages) > 0 }

// memoryOf returns the memory and hugepages that a lane wants, in bytes.
func memoryOf(l lane.Lane) uint64 {
	sum := uint64(l.Spec.Memory.Size)
	for _, bytes := range l.Spec.Memory.Hugepages {
		sum = stock.PlusCapped(sum, uint64(bytes))
	}
	return sum
}

// run searches. It returns the lane that has no place, or nil.
func (t *jointSearch) run() *refused {
	defer t.m.Expect(nil)
	t.least = make([]plan.Cost, len(t.lanes)+1)
	if len(t.lanes) == 1 {
		p, ok, err := search.Best(t.m, t.lanes[0], search.Relaxed{})
		if err != nil || !ok {
			return &refused{lane: t.lanes[0], reason: err, on: t.m, proven: true}
		}
		t.incomplete = p.Improvable
		t.visit(0, &p)
		return t.refused()
	}
	for i := len(t.lanes) - 1; i >= 0; i-- {
		t.m.Expect(slices.Concat(t.lanes[:i], t.lanes[i+1:]))
		p, ok, err := search.Best(t.m, t.lanes[i], search.Relaxed{IgnoreOthers: true})
		if err != nil || !ok {
			return &refused{lane: t.lanes[i], reason: err, on: t.m, proven: true}
		}
		least := p.Cost
		least.BlockLost = 0
		if t.lanes[i].Spec.Near.Lane != "" {
			least.DeviceDistance = 0 // the other lane may be placed elsewhere
		}
		if p.Improvable {
			least = plan.Cost{}
		}
		t.least[i] = t.least[i+1].Plus(least)
	}
	if t.tooMuch = t.exceedsHost(); t.tooMuch {
		t.steps = 0 // one descent, to find the lane that does not fit
	}
	t.branch(0, plan.Cost{})
	if !t.found && t.steps < 0 && !t.firstFound && !t.tooMuch { // any placement is better than none
		for _, dropPreferred := range []bool{false, true} {
			for _, order := range []func(){t.fewestChoicesFirst, func() { t.sort() }} {
				if !t.found {
					order()
					t.findFirst(t.most/4, dropPreferred)
					t.branch(0, plan.Cost{})
				}
			}
		}
		t.firstFound, t.steps = false, -1
	}
	return t.refused()
}

// refused returns the lane that has no place; nil if all have one.
func (t *jointSearch) refused() *refused {
	if t.found {
		return nil
	}
	r := t.unplaced
	if r == nil {
		r = &refused{lane: t.lanes[min(t.deepest, len(t.lanes)-1)]}
	}
	r.proven = t.tooMuch || t.steps >= 0 && !t.incomplete
	return r
}

// branch places the lanes from a depth on in all ways that may cost less than the best so far.
func (t *jointSearch) branch(depth int, cost plan.Cost) {
	t.deepest = max(t.deepest, depth)
	if t.found && cost.Compare(t.cost) >= 0 {
		return
	}
	if depth == len(t.lanes) {
		if t.firstFound { // the memory could come from more nodes
			for i := range t.have {
				t.have[i].Memory = t.m.NodesOfMemory(t.have[i].Allocation)
				search.FixedCost(t.m, &t.have[i])
			}
			cost, _ = t.price()
		}
		t.best, t.cost, t.found = slices.Clone(t.have), cost, true
		return
	}
	if key := t.key(depth); t.hasSeen(key, cost) {
		return
	}
	cost.BlockLost = max(cost.BlockLost, t.leastLoss(depth))
	if !t.couldBeat(cost, t.least[depth]) {
		return
	}
	l := t.lanes[depth]
	t.m.Expect(t.lanes[depth+1:])
	first, ok, least := t.bestNext(l)
	if !ok {
		return
	}
	rest := least.Plus(t.least[depth+1])
	if !t.couldBeat(cost, rest) {
		return
	}
	if first != nil {
		t.visit(depth, first)
	}
	search.EachPlace(t.m, l, t.dropPreferred, func(partial plan.Cost) bool {
		t.steps--
		return !t.done() && t.couldBeat(cost, partial.Plus(t.least[depth+1]))
	}, func(p search.Place) bool {
		t.eachMemory(p, func(q search.Place) {
			own, _, _ := search.BesideCost(t.m, &q, -1)
			if t.steps--; !t.done() && t.couldBeat(cost, q.Fixed.Plus(own).Plus(t.least[depth+1])) {
				t.visit(depth, &q)
			}
		})
		return !t.done()
	})
}

// bestNext returns the best place of a lane if it were the last one, which is tried first, and a lower bound
// of its cost. It returns false if there is no place. If several lanes want memory, the memory of others may
// still come from elsewhere; so then the bound, and false, are those of the lane without memory.
func (t *jointSearch) bestNext(l lane.Lane) (*search.Place, bool, plan.Cost) {
	var r search.Relaxed
	if t.dropPreferred {
		r.Wishes = slices.Sorted(maps.Keys(l.Spec.Preferred))
	}
	p, ok, _ := search.Best(t.m, l, r)
	t.steps -= len(t.m.Cores) * p.Searches
	first, bound := &p, p
	if !ok {
		t.hasNoPlace(l)
		first = nil
	}
	if t.competes && wantsMemory(l) {
		if ok && !t.found {
			return first, true, plan.Cost{} // there is nothing to beat
		}
		l.Spec.Memory = lane.Memory{}
		bound, ok, _ = search.Best(t.m, l, r)
		t.steps -= len(t.m.Cores) * bound.Searches
	}
	if bound.Improvable {
		return first, ok, plan.Cost{}
	}
	bound.Cost.BlockLost = 0
	return first, ok, bound.Cost
}

// hasNoPlace records the first lane that has no place.
func (t *jointSearch) hasNoPlace(l lane.Lane) {
	if t.unplaced == nil {
		t.unplaced = &refused{lane: l, on: t.m.With(t.m.Lanes)}
	}
}

// visitSteps is the number of steps that a descent to the next lane counts for. Trying a place is one step.
const visitSteps = 20

// visit puts a lane at a place and descends to the next one, if all wishes hold and there is memory for all.
func (t *jointSearch) visit(depth int, p *search.Place) {
	t.m.Put(search.LaneOf(t.m, p))
	t.have = append(t.have, *p)
	var was []plan.Lane
	if t.wantsMemory {
		was = slices.Clone(t.m.Lanes[t.placed:])
	}
	t.steps -= visitSteps
	defer t.m.Expect(t.lanes[depth+1:]) // again, for the other places of this lane
	if cost, ok := t.price(); ok && t.allocate() && t.hasRoom(depth+1) && t.partnersFit(depth+1) {
		t.branch(depth+1, cost)
	}
	copy(t.m.Lanes[t.placed:], was)
	t.have = t.have[:len(t.have)-1]
	t.m.Pop()
}

// partnersFit reports whether lanes from a depth on that are tied by a wish to the lane placed last still
// have enough CPUs to choose from, wherever their memory comes from.
func (t *jointSearch) partnersFit(depth int) bool {
	last := &t.have[depth-1]
	for _, l := range t.lanes[depth:] {
		if (hasWishAbout(&l.Spec, last.Name()) || hasWishAbout(last.Spec(), l.Metadata.Name)) &&
			search.Choice(t.m, l) < l.Spec.CPUs.Count {
			t.hasNoPlace(l)
			return false
		}
	}
	return true
}

// price returns the cost of the lanes placed so far. It returns false if a required wish does not hold.
func (t *jointSearch) price() (plan.Cost, bool) {
	var sum plan.Cost
	for i := range t.have {
		own, _, ok := search.BesideCost(t.m, &t.have[i], t.placed+i)
		if !ok {
			return sum, false
		}
		sum = sum.Plus(t.have[i].Fixed).Plus(own)
	}
	for i := range t.m.Lanes[:t.placed] {
		o := &t.m.Lanes[i]
		if len(o.Spec.Apart.Lanes) == 0 || t.staysApart(o) {
			continue
		}
		if o.Spec.Preferred["apart"] == 0 {
			return sum, false
		}
		if t.apartBefore[i] {
			sum.BrokenWishes += o.Spec.Preferred["apart"]
		}
	}
	sum.BlockLost = t.blockBefore - t.m.LargestBlock()
	return sum, true
}

// staysApart reports whether no new lane breaks the wish of a placed one to be apart.
func (t *jointSearch) staysApart(o *plan.Lane) bool {
	for i := range t.have {
		p := &t.have[i]
		if slices.Contains(o.Spec.Apart.Lanes, p.Name()) && t.m.OverlapAt(p.CPUs, o.CPUs, o.Spec.Apart.Level) {
			return false
		}
	}
	return true
}
