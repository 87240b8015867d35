package plan

import (
	"cmp"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
)

// jointSearch is the search for several lanes: branch and bound over their places. All that a placement costs
// is worked out for all its lanes, so the order in which they are placed changes nothing but the time that it
// takes.
type jointSearch struct {
	m      *machine
	lanes  []lane.Lane // in the order in which they are placed
	given  []lane.Lane // in the order in which they were asked for
	first  int         // of the machine's lanes that is one of these
	before int         // the largest free block
	whole  []bool      // by lane placed before: its preferred wish to be apart holds so far
	alone  []Cost      // of each lane from a depth on: the least that they cost together
	steps  int         // that may still be taken
	most   int         // steps in all
	any    bool        // the first placement that is found will do
	loose  bool        // preferred wishes are let go at once
	memory bool        // several lanes want memory
	plain  bool        // no lane shares CPUs or wants to be apart: cores with as much left are alike

	have   []place
	best   []place
	cost   Cost
	found  bool
	unsure bool // some places were not looked at
	full   bool // there are not enough CPUs
	deep   int  // how many lanes could be placed at most
	stuck  *stuck
	seen   map[string]Cost
	named  []bool // by lane: another one has a wish about it
	wanted bool   // some lane wants memory
	// Room for what is needed again and again.
	scratch []byte
	cores   []uint64
	sets    map[nodeSet][]nodeSet
}

// stuck is the first lane that had no place, and what was there by then.
type stuck struct {
	lane lane.Lane
	on   *machine
}

func newJointSearch(m *machine, lanes []lane.Lane, steps int) *jointSearch {
	t := &jointSearch{m: m, lanes: slices.Clone(lanes), given: lanes, first: len(m.lanes), before: m.block(),
		steps: steps, most: steps, seen: map[string]Cost{}, sets: map[nodeSet][]nodeSet{}}
	t.sort()
	m.claim(lanes)
	wanting := 0
	for _, l := range lanes {
		if l.Spec.Memory.Size > 0 || len(l.Spec.Memory.Hugepages) > 0 {
			wanting++
		}
	}
	t.memory, t.wanted = wanting > 1, wanting > 0
	special := func(s lane.Spec) bool { return s.CPUs.Share > 1 || len(s.Apart.Lanes) > 0 }
	t.plain = !slices.ContainsFunc(lanes, func(l lane.Lane) bool { return special(l.Spec) }) &&
		!slices.ContainsFunc(m.lanes, func(l Lane) bool { return special(l.Spec) })
	for _, o := range m.lanes {
		t.whole = append(t.whole, o.Spec.Preferred["apart"] > 0 && m.isApart(o.Name, o.Spec, o.CPUs))
	}
	return t
}

// claim notes which CPUs lanes name.
func (m *machine) claim(lanes []lane.Lane) {
	m.claims = map[string]cpuset.Set{}
	for _, l := range lanes {
		claimed := l.Spec.CPUs.List
		for id := range claimed.All() {
			if l.Spec.CPUs.SMT == lane.Isolate && id < len(m.at) && m.at[id] >= 0 {
				claimed = claimed.Union(cpuset.Of(m.cores[m.at[id]].cpus...))
			}
		}
		if !claimed.IsEmpty() {
			m.claims[l.Metadata.Name] = claimed
		}
	}
}

// claimed are the CPUs that other lanes of the request name than this one, and these lanes.
func (m *machine) claimed(name string) (cpuset.Set, []string) {
	var all cpuset.Set
	var by []string
	for _, other := range sortedKeys(m.claims) {
		if other != name {
			all, by = all.Union(m.claims[other]), append(by, other)
		}
	}
	return all, by
}

// sort puts the lanes into order: by the keys, then those that others want to be near to first, then the
// largest.
func (t *jointSearch) sort(keys ...func(lane.Lane) int) {
	slices.SortFunc(t.lanes, func(a, b lane.Lane) int {
		for _, key := range append(keys, t.depth, func(l lane.Lane) int { return -demand(l) }) {
			if n := cmp.Compare(key(a), key(b)); n != 0 {
				return n
			}
		}
		return cmp.Or(cmp.Compare(memoryOf(b), memoryOf(a)), strings.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	t.named = nil
	for _, l := range t.lanes {
		t.named = append(t.named, t.isNamed(l.Metadata.Name))
	}
}

// anyWay makes the search end with the first placement, with loose without the wishes that are preferred.
// Lanes that are near to each other go first, then those with the fewest CPUs to choose from.
func (t *jointSearch) anyWay(steps int, loose bool) {
	t.any, t.loose, t.steps = true, loose, steps
	clear(t.seen)
	clear(t.sets)
	choice := map[string]int{}
	for _, l := range t.lanes {
		ways, _ := t.m.asks(l, relaxed{wishes: sortedKeys(l.Spec.Preferred)})
		for _, w := range ways {
			sum := 0
			for _, room := range t.m.newSearch(w, nil).room {
				sum += room
			}
			choice[l.Metadata.Name] = max(choice[l.Metadata.Name], sum)
		}
	}
	isLoose := func(l lane.Lane) int {
		return boolInt(l.Spec.Near.Lane == "" && !slices.ContainsFunc(t.lanes, func(o lane.Lane) bool {
			return o.Spec.Near.Lane == l.Metadata.Name
		}))
	}
	t.sort(isLoose, t.depth, func(l lane.Lane) int { return choice[l.Metadata.Name] })
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// depth is how many lanes of this request a lane has to wait for.
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

// demand is how much a lane takes, as far as it decides who goes first.
func demand(l lane.Lane) int {
	if l.Spec.CPUs.SMT == lane.Isolate {
		return 2 * l.Spec.CPUs.Count
	}
	return l.Spec.CPUs.Count
}

// memoryOf is all that a lane wants to have set aside, in bytes.
func memoryOf(l lane.Lane) uint64 {
	sum := uint64(l.Spec.Memory.Size)
	for _, bytes := range l.Spec.Memory.Hugepages {
		sum = plusCapped(sum, uint64(bytes))
	}
	return sum
}

// run returns a lane that cannot be placed even alone, or what makes it impossible.
func (t *jointSearch) run() (*lane.Lane, error) {
	t.alone = make([]Cost, len(t.lanes)+1)
	if len(t.lanes) == 1 {
		p, ok, err := t.m.best(t.lanes[0], relaxed{})
		if err != nil || !ok {
			return &t.lanes[0], err
		}
		t.unsure = p.unsure
		t.visit(0, &p)
		return nil, nil
	}
	for i := len(t.lanes) - 1; i >= 0; i-- {
		p, ok, err := t.m.best(t.lanes[i], relaxed{alone: true})
		if err != nil || !ok {
			return &t.lanes[i], err
		}
		least := p.cost
		least.BlockLost = 0
		if t.lanes[i].Spec.Near.Lane != "" {
			least.DeviceDistance = 0 // the other lane may come to lie elsewhere
		}
		if p.unsure {
			least = Cost{}
		}
		t.alone[i] = t.alone[i+1].plus(least)
	}
	if t.full = t.crowded(); t.full {
		t.steps = 0 // as far as it goes, to say which lane does not fit
	}
	t.branch(0, Cost{})
	if !t.found && t.steps < 0 && !t.any && !t.full { // any placement is better than none
		for _, loose := range []bool{false, true} {
			if !t.found {
				t.anyWay(t.most/4, loose)
				t.branch(0, Cost{})
			}
		}
		t.any, t.steps = false, -1
	}
	return nil, nil
}

// branch places the lanes from a depth on, in all ways that could be better than the best so far.
func (t *jointSearch) branch(depth int, cost Cost) {
	t.deep = max(t.deep, depth)
	if t.found && cost.Compare(t.cost) >= 0 {
		return
	}
	if depth == len(t.lanes) {
		if t.any { // memory could come from more nodes than it does
			for i := range t.have {
				t.have[i].set = t.m.nodesOfMemory(t.have[i].given)
				t.m.fixedCost(&t.have[i])
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
	if !t.couldBeat(cost, t.alone[depth]) {
		return
	}
	l := t.lanes[depth]
	first, ok, least := t.ahead(l)
	if !ok {
		return
	}
	rest := least.plus(t.alone[depth+1])
	if !t.couldBeat(cost, rest) {
		return
	}
	if first != nil {
		t.visit(depth, first)
	}
	t.m.every(l, t.loose, func(partial Cost) bool {
		t.steps--
		return !t.over() && t.couldBeat(cost, partial.plus(t.alone[depth+1]))
	}, func(p place) bool {
		t.withMemory(p, func(q place) {
			own, _ := t.m.besideCost(&q, -1)
			if t.steps--; !t.over() && t.couldBeat(cost, q.fixed.plus(own).plus(t.alone[depth+1])) {
				t.visit(depth, &q)
			}
		})
		return !t.over()
	})
}

// ahead looks where a lane would go if it were the last: the place to try first, and the least that it costs.
// False: there is no place for it any more. Where several lanes want memory, what others have of it may still
// come from elsewhere, so this says nothing.
func (t *jointSearch) ahead(l lane.Lane) (*place, bool, Cost) {
	tries := t.m.tries
	var r relaxed
	if t.loose {
		r.wishes = sortedKeys(l.Spec.Preferred)
	}
	p, ok, _ := t.m.best(l, r)
	t.steps -= len(t.m.cores) * (t.m.tries - tries)
	if !ok {
		if t.stuck == nil {
			t.stuck = &stuck{l, t.m.with(t.m.lanes)}
		}
		return nil, t.memory, Cost{}
	}
	least := p.cost
	least.BlockLost = 0
	if t.memory || p.unsure {
		least = Cost{}
	}
	return &p, true, least
}

// visitSteps is what going on with another lane counts for, beside looking at one place.
const visitSteps = 20

// visit puts a lane at a place and goes on with the others, if all wishes hold and there is memory for all.
func (t *jointSearch) visit(depth int, p *place) {
	t.m.put(t.m.lane(p))
	t.have = append(t.have, *p)
	var was []Lane
	if t.wanted {
		was = slices.Clone(t.m.lanes[t.first:])
	}
	t.steps -= visitSteps
	if cost, ok := t.price(); ok && t.allocated() && !t.m.free().IsEmpty() {
		t.branch(depth+1, cost)
	}
	copy(t.m.lanes[t.first:], was)
	t.have = t.have[:len(t.have)-1]
	t.m.pop()
}

// price is what the lanes that are placed cost. False: a wish that must hold does not.
func (t *jointSearch) price() (Cost, bool) {
	var sum Cost
	for i := range t.have {
		own, v := t.m.besideCost(&t.have[i], t.first+i)
		if v.fails {
			return sum, false
		}
		sum = sum.plus(t.have[i].fixed).plus(own)
	}
	for i := range t.m.lanes[:t.first] {
		o := &t.m.lanes[i]
		if len(o.Spec.Apart.Lanes) == 0 || t.isAsBefore(o) {
			continue
		}
		if o.Spec.Preferred["apart"] == 0 {
			return sum, false
		}
		if t.whole[i] {
			sum.BrokenWishes += o.Spec.Preferred["apart"]
		}
	}
	sum.BlockLost = t.before - t.m.block()
	return sum, true
}

// isAsBefore says whether no new lane is where a lane that was there would not have it.
func (t *jointSearch) isAsBefore(o *Lane) bool {
	for i := range t.have {
		p := &t.have[i]
		if slices.Contains(o.Spec.Apart.Lanes, p.ask.name) && t.m.touch(p.cpus, o.CPUs, o.Spec.Apart.Level) {
			return false
		}
	}
	return true
}
