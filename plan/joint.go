package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/lane"
)

// jointSearch places several lanes by branch and bound over their places. The cost is always that of all
// lanes placed so far, so the order in which they are placed changes nothing but the time that the search
// takes.
type jointSearch struct {
	m             *machine
	lanes         []lane.Lane // in the order in which they are placed
	requested     []lane.Lane // in the order of the request
	placed        int         // how many lanes the machine had before
	blockBefore   int         // the largest free block before
	apartBefore   []bool      // by lane placed before: its preferred wish to be apart holds
	least         []Cost      // by depth: a lower bound of what the lanes from there on cost together
	steps         int         // left
	most          int         // steps at the start
	firstFound    bool        // end with the first placement that is found
	dropPreferred bool        // place lanes without their preferred wishes
	competes      bool        // several lanes want memory
	plain         bool        // no lane shares CPUs or wants to be apart: cores with as much free are alike

	have        []place
	best        []place
	cost        Cost
	found       bool
	incomplete  bool     // some places were not tried
	tooMuch     bool     // the host has fewer CPUs or less memory than the lanes want
	deepest     int      // the most lanes that were placed at once
	unplaced    *refused // the first lane that had no place, on the machine as it was then
	seen        map[string]Cost
	referenced  []bool // by lane: another one has a wish about it
	wantsMemory bool   // some lane wants memory
	// Buffers that are used again.
	scratch []byte
	cores   []uint64
	sets    map[nodeSet][]nodeSet
}

func newJointSearch(m *machine, lanes []lane.Lane, steps int) *jointSearch {
	t := &jointSearch{m: m, lanes: slices.Clone(lanes), requested: lanes, placed: len(m.lanes),
		blockBefore: m.largestBlock(), steps: steps, most: steps,
		seen: map[string]Cost{}, sets: map[nodeSet][]nodeSet{}}
	t.sort()
	m.claim(lanes)
	wanting := 0
	for _, l := range lanes {
		if l.Spec.Memory.Size > 0 || len(l.Spec.Memory.Hugepages) > 0 {
			wanting++
		}
	}
	t.competes, t.wantsMemory = wanting > 1, wanting > 0
	special := func(s lane.Spec) bool { return s.CPUs.Share > 1 || len(s.Apart.Lanes) > 0 }
	t.plain = !slices.ContainsFunc(lanes, func(l lane.Lane) bool { return special(l.Spec) }) &&
		!slices.ContainsFunc(m.lanes, func(l Lane) bool { return special(l.Spec) })
	for _, o := range m.lanes {
		t.apartBefore = append(t.apartBefore, o.Spec.Preferred["apart"] > 0 && m.isApart(o.Name, o.Spec, o.CPUs))
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

// findFirst makes the search end with the first placement. Lanes that are near to each other go first, then
// those with the fewest CPUs to choose from.
func (t *jointSearch) findFirst(steps int, dropPreferred bool) {
	t.firstFound, t.dropPreferred, t.steps = true, dropPreferred, steps
	clear(t.seen)
	clear(t.sets)
	choices := map[string]int{}
	for _, l := range t.lanes {
		choices[l.Metadata.Name] = choice(t.m, l)
	}
	unrelated := func(l lane.Lane) int {
		if l.Spec.Near.Lane != "" || slices.ContainsFunc(t.lanes, func(o lane.Lane) bool {
			return o.Spec.Near.Lane == l.Metadata.Name
		}) {
			return 0
		}
		return 1
	}
	t.sort(unrelated, t.depth, func(l lane.Lane) int { return choices[l.Metadata.Name] })
}

// depth is the length of the chain of lanes, each near to the next, that begins with a lane.
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

// cpusTaken estimates how many CPUs a lane takes, to place the largest first.
func cpusTaken(l lane.Lane) int {
	if l.Spec.CPUs.SMT == lane.Isolate {
		return 2 * l.Spec.CPUs.Count
	}
	return l.Spec.CPUs.Count
}

// memoryOf is the memory and hugepages that a lane wants, in bytes.
func memoryOf(l lane.Lane) uint64 {
	sum := uint64(l.Spec.Memory.Size)
	for _, bytes := range l.Spec.Memory.Hugepages {
		sum = plusCapped(sum, uint64(bytes))
	}
	return sum
}

// run searches. It returns the lane that has no place, or nil.
func (t *jointSearch) run() *refused {
	t.least = make([]Cost, len(t.lanes)+1)
	if len(t.lanes) == 1 {
		p, ok, err := bestPlace(t.m, t.lanes[0], relaxed{})
		if err != nil || !ok {
			return &refused{lane: t.lanes[0], reason: err, on: t.m, proven: true}
		}
		t.incomplete = p.improvable
		t.visit(0, &p)
		return t.refused()
	}
	for i := len(t.lanes) - 1; i >= 0; i-- {
		p, ok, err := bestPlace(t.m, t.lanes[i], relaxed{ignoreOthers: true})
		if err != nil || !ok {
			return &refused{lane: t.lanes[i], reason: err, on: t.m, proven: true}
		}
		least := p.cost
		least.BlockLost = 0
		if t.lanes[i].Spec.Near.Lane != "" {
			least.DeviceDistance = 0 // the other lane may come to lie elsewhere
		}
		if p.improvable {
			least = Cost{}
		}
		t.least[i] = t.least[i+1].plus(least)
	}
	if t.tooMuch = t.exceedsHost(); t.tooMuch {
		t.steps = 0 // one descent, to find the lane that does not fit
	}
	t.branch(0, Cost{})
	if !t.found && t.steps < 0 && !t.firstFound && !t.tooMuch { // any placement is better than none
		for _, dropPreferred := range []bool{false, true} {
			if !t.found {
				t.findFirst(t.most/4, dropPreferred)
				t.branch(0, Cost{})
			}
		}
		t.firstFound, t.steps = false, -1
	}
	return t.refused()
}

// refused is the lane that has no place; nil if all have one.
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
func (t *jointSearch) branch(depth int, cost Cost) {
	t.deepest = max(t.deepest, depth)
	if t.found && cost.Compare(t.cost) >= 0 {
		return
	}
	if depth == len(t.lanes) {
		if t.firstFound { // memory could come from more nodes than it does
			for i := range t.have {
				t.have[i].memory = t.m.nodesOfMemory(t.have[i].allocation)
				fixedCost(t.m, &t.have[i])
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
	first, ok, least := t.bestNext(l)
	if !ok {
		return
	}
	rest := least.plus(t.least[depth+1])
	if !t.couldBeat(cost, rest) {
		return
	}
	if first != nil {
		t.visit(depth, first)
	}
	eachPlace(t.m, l, t.dropPreferred, func(partial Cost) bool {
		t.steps--
		return !t.done() && t.couldBeat(cost, partial.plus(t.least[depth+1]))
	}, func(p place) bool {
		t.eachMemory(p, func(q place) {
			own, _, _ := besideCost(t.m, &q, -1)
			if t.steps--; !t.done() && t.couldBeat(cost, q.fixed.plus(own).plus(t.least[depth+1])) {
				t.visit(depth, &q)
			}
		})
		return !t.done()
	})
}

// bestNext is the best place for a lane if it were the last one: to be tried first, and a lower bound of its
// cost. False: there is no place. Where several lanes want memory, that of the others may still come from
// elsewhere, so neither the bound nor false can be concluded.
func (t *jointSearch) bestNext(l lane.Lane) (*place, bool, Cost) {
	var r relaxed
	if t.dropPreferred {
		r.wishes = slices.Sorted(maps.Keys(l.Spec.Preferred))
	}
	p, ok, _ := bestPlace(t.m, l, r)
	t.steps -= len(t.m.cores) * p.searches
	if !ok {
		if t.unplaced == nil {
			t.unplaced = &refused{lane: l, on: t.m.with(t.m.lanes)}
		}
		return nil, t.competes, Cost{}
	}
	least := p.cost
	least.BlockLost = 0
	if t.competes || p.improvable {
		least = Cost{}
	}
	return &p, true, least
}

// visitSteps are the steps that a descent to the next lane counts for; a place that is tried is one.
const visitSteps = 20

// visit puts a lane at a place and descends to the next one, if all wishes hold and there is memory for all.
func (t *jointSearch) visit(depth int, p *place) {
	t.m.put(laneAt(t.m, p))
	t.have = append(t.have, *p)
	var was []Lane
	if t.wantsMemory {
		was = slices.Clone(t.m.lanes[t.placed:])
	}
	t.steps -= visitSteps
	if cost, ok := t.price(); ok && t.allocate() && !t.m.free().IsEmpty() {
		t.branch(depth+1, cost)
	}
	copy(t.m.lanes[t.placed:], was)
	t.have = t.have[:len(t.have)-1]
	t.m.pop()
}

// price is the cost of the lanes placed so far. False: a required wish does not hold.
func (t *jointSearch) price() (Cost, bool) {
	var sum Cost
	for i := range t.have {
		own, _, ok := besideCost(t.m, &t.have[i], t.placed+i)
		if !ok {
			return sum, false
		}
		sum = sum.plus(t.have[i].fixed).plus(own)
	}
	for i := range t.m.lanes[:t.placed] {
		o := &t.m.lanes[i]
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
	sum.BlockLost = t.blockBefore - t.m.largestBlock()
	return sum, true
}

// staysApart says whether no new lane breaks the wish of a placed one to be apart.
func (t *jointSearch) staysApart(o *Lane) bool {
	for i := range t.have {
		p := &t.have[i]
		if slices.Contains(o.Spec.Apart.Lanes, p.name()) && t.m.overlapAt(p.cpus, o.CPUs, o.Spec.Apart.Level) {
			return false
		}
	}
	return true
}
