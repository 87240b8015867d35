package plan

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"isolane.dev/isolane/lane"
)

// together is the search for several lanes: branch and bound over their places. All that a placement costs is
// worked out for all its lanes, so the order in which they are placed changes nothing but the time that it takes.
type together struct {
	m      *machine
	lanes  []lane.Lane // in the order in which they are placed: those that others want to be near to first, then the largest
	given  []lane.Lane // in the order in which they were asked for
	first  int         // of the machine's lanes that is one of these
	before int         // the largest free block
	whole  []bool      // by lane placed before: its preferred wish to be apart holds so far
	alone  []Cost      // of each lane from a depth on: the least that they cost together
	steps  int         // that may still be taken
	any    bool        // the first placement that is found will do
	memory bool        // several lanes want memory
	plain  bool        // no lane shares CPUs or wants to be apart: cores of a cell that have as much left are alike

	have   []place
	best   []place
	cost   Cost
	found  bool
	unsure bool // some places were not looked at
	deep   int  // how many lanes could be placed at most
	stuck  *stuck
	seen   map[string]Cost
	sets   map[uint64][]uint64
}

// stuck is the first lane that had no place, and what was there by then.
type stuck struct {
	lane lane.Lane
	on   *machine
}

func newTogether(m *machine, lanes []lane.Lane, steps int) *together {
	t := &together{m: m, lanes: slices.Clone(lanes), given: lanes, first: len(m.lanes), before: m.block(), steps: steps,
		seen: map[string]Cost{}, sets: map[uint64][]uint64{}}
	slices.SortFunc(t.lanes, func(a, b lane.Lane) int {
		return cmp.Or(cmp.Compare(t.depth(a), t.depth(b)), cmp.Compare(demand(b), demand(a)), strings.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	wanting := 0
	for _, l := range lanes {
		if l.Spec.Memory.Size > 0 || len(l.Spec.Memory.Hugepages) > 0 {
			wanting++
		}
	}
	t.memory = wanting > 1
	special := func(s lane.Spec) bool { return s.CPUs.Share > 1 || len(s.Apart.Lanes) > 0 }
	t.plain = !slices.ContainsFunc(lanes, func(l lane.Lane) bool { return special(l.Spec) }) &&
		!slices.ContainsFunc(m.lanes, func(l Lane) bool { return special(l.Spec) })
	for _, o := range m.lanes {
		t.whole = append(t.whole, o.Spec.Preferred["apart"] > 0 && m.isApart(o.Name, o.Spec, o.CPUs))
	}
	return t
}

// depth is how many lanes of this request a lane has to wait for.
func (t *together) depth(l lane.Lane) int {
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

// run returns a lane that cannot be placed even alone, or what makes it impossible.
func (t *together) run() (*lane.Lane, error) {
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
	if t.crowded() {
		t.steps = 0 // as far as it goes, to say which lane does not fit
	}
	t.branch(0, Cost{})
	return nil, nil
}

// crowded says whether the lanes need more CPUs than there are.
func (t *together) crowded() bool {
	need := 0
	for _, l := range t.lanes {
		if l.Spec.CPUs.Share <= 1 {
			need += l.Spec.CPUs.Count
		}
	}
	return need > 0 && need >= t.m.free().Len() // one is housekeeping's
}

// branch places the lanes from a depth on, in all ways that could be better than the best so far.
func (t *together) branch(depth int, cost Cost) {
	t.deep = max(t.deep, depth)
	if t.found && cost.Compare(t.cost) >= 0 {
		return
	}
	if depth == len(t.lanes) {
		t.best, t.cost, t.found = slices.Clone(t.have), cost, true
		return
	}
	if key := t.key(depth); t.hasSeen(key, cost) || !t.couldBeat(cost, t.alone[depth]) {
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
	t.m.every(l, func(partial Cost) bool {
		t.steps--
		return !t.over() && t.couldBeat(cost, partial.plus(t.alone[depth+1]))
	}, func(p place) bool {
		t.withMemory(p, func(q place) {
			own, _ := t.m.beside(&q, -1)
			if t.steps--; !t.over() && t.couldBeat(cost, q.fixed.plus(own).plus(t.alone[depth+1])) {
				t.visit(depth, &q)
			}
		})
		return !t.over()
	})
}

// over says whether the search has to end.
func (t *together) over() bool { return t.steps < 0 || t.any && t.found }

// couldBeat says whether what is placed, with the least that the others cost, may cost less than the best so far.
func (t *together) couldBeat(cost, rest Cost) bool {
	if !t.found {
		return true
	}
	cost = cost.plus(rest)
	return !t.any && cost.Compare(t.cost) < 0
}

// ahead looks where a lane would go if it were the last: the place to try first, and the least that it costs. False: there is
// no place for it any more.
func (t *together) ahead(l lane.Lane) (*place, bool, Cost) {
	p, ok, _ := t.m.best(l, relaxed{})
	least, fits := p.cost, ok
	if t.memory { // what others have of memory may come from elsewhere
		all := t.m.lanes
		t.m.lanes = slices.Clone(all)
		for i := t.first; i < len(all); i++ {
			t.m.lanes[i].Memory, t.m.lanes[i].Hugepages = nil, nil
		}
		var q place
		q, fits, _ = t.m.best(l, relaxed{})
		least = q.cost
		t.m.lanes = all
		p.unsure = p.unsure || q.unsure
	}
	if !fits && t.stuck == nil {
		t.stuck = &stuck{l, t.m.with(t.m.lanes)}
	}
	least.BlockLost = 0
	if p.unsure {
		least = Cost{}
	}
	t.steps -= len(t.m.cores)
	if !ok {
		return nil, fits, least
	}
	return &p, fits, least
}

// visit puts a lane at a place and goes on with the others, if all wishes hold and there is memory for all.
func (t *together) visit(depth int, p *place) {
	t.m.put(t.m.lane(p))
	t.have = append(t.have, *p)
	was := slices.Clone(t.m.lanes[t.first:])
	if cost, ok := t.price(); ok && t.supplied() && !t.m.free().IsEmpty() {
		t.branch(depth+1, cost)
	}
	copy(t.m.lanes[t.first:], was)
	t.have = t.have[:len(t.have)-1]
	t.m.pop()
}

// supplied finds memory for all lanes that are placed, and notes what each gets.
func (t *together) supplied() bool {
	var needs []need
	var who []int
	for i := range t.have {
		if p := &t.have[i]; p.ask.wantsMemory() {
			needs, who = append(needs, need{&p.ask, p.set, p.nodes}), append(who, i)
		}
	}
	if len(needs) == 0 {
		return true
	}
	for i := t.first; i < len(t.m.lanes); i++ {
		t.m.lanes[i].Memory, t.m.lanes[i].Hugepages = nil, nil
	}
	all, ok := t.m.supply(needs)
	if !ok {
		return false
	}
	for i, g := range all {
		t.have[who[i]].given = g
		l := &t.m.lanes[t.first+who[i]]
		l.Memory, l.Hugepages = g.memory, g.huge
	}
	return true
}

// price is what the lanes that are placed cost. False: a wish that must hold does not.
func (t *together) price() (Cost, bool) {
	var sum Cost
	for i := range t.have {
		own, v := t.m.beside(&t.have[i], t.first+i)
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
func (t *together) isAsBefore(o *Lane) bool {
	for i := range t.have {
		if p := &t.have[i]; slices.Contains(o.Spec.Apart.Lanes, p.ask.name) && t.m.touch(p.cpus, o.CPUs, o.Spec.Apart.Level) {
			return false
		}
	}
	return true
}

// withMemory calls use with a place for each set of nodes from which its memory could come, those that cost least first.
func (t *together) withMemory(p place, use func(place)) {
	if !p.ask.wantsMemory() {
		use(p)
		return
	}
	sets, ok := t.sets[p.nodes]
	if !ok {
		sets = t.memorySets(p.nodes)
		t.sets[p.nodes] = sets
	}
	for _, set := range sets {
		if p.set = set; t.m.survey(&p) {
			use(p)
		}
	}
}

// memorySets are the sets of nodes with memory, the best for CPUs on some nodes first. On a machine with many, only
// sets of up to two are looked at.
func (t *together) memorySets(cpus uint64) []uint64 {
	var with []int
	for n, at := range t.m.nodes {
		if at.hasMemory {
			with = append(with, n)
		}
	}
	var sets []uint64
	most := len(with)
	if most > 8 {
		most, t.unsure = 2, true
	}
	for k := 1; k <= most; k++ {
		subsets(len(with), k, func(chosen uint64) {
			set := uint64(0)
			for i, n := range with {
				if chosen&(1<<i) != 0 {
					set |= 1 << n
				}
			}
			sets = append(sets, set)
		})
	}
	slices.SortStableFunc(sets, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(bits.OnesCount64(a|cpus), bits.OnesCount64(b|cpus)),
			cmp.Compare(t.m.memoryDistance(cpus, a), t.m.memoryDistance(cpus, b)))
	})
	return sets
}

// hasSeen says whether the search was in the same situation before at no higher cost, and notes it otherwise.
func (t *together) hasSeen(key string, cost Cost) bool {
	if was, ok := t.seen[key]; ok && was.Compare(cost) <= 0 {
		return true
	}
	t.seen[key] = cost
	return false
}

// key tells situations apart that leave different things to the lanes that are still to be placed: what is free of each core
// of a cell, and where the lanes are that others have wishes about, or that want memory or devices.
func (t *together) key(depth int) string {
	m := t.m
	var b strings.Builder
	fmt.Fprint(&b, depth)
	for _, cell := range m.cells {
		var cores []string
		for c := cell.from; c < cell.to; c++ {
			cores = append(cores, t.coreKey(c))
		}
		if t.plain {
			slices.Sort(cores)
		}
		fmt.Fprint(&b, cores)
	}
	for i := range t.have {
		p := &t.have[i]
		if t.isNamed(p.ask.name) || p.ask.spec.Near.Lane != "" || len(p.ask.spec.Apart.Lanes) > 0 || p.ask.share > 1 {
			fmt.Fprint(&b, p.ask.name, p.cpus)
		}
		if p.ask.wantsMemory() {
			fmt.Fprint(&b, " ", p.set)
		}
		if p.ask.vfs > 0 {
			fmt.Fprint(&b, " ", p.ask.device)
		}
	}
	return b.String()
}

// coreKey is what a core has left, and how many of the lanes on it share it with nobody so far.
func (t *together) coreKey(c int) string {
	m := t.m
	key := []byte{byte(len(m.cores[c].kind))}
	alone := -1
	for _, id := range m.cores[c].cpus {
		state := byte('0')
		switch o := m.owner[id]; {
		case o == free:
			state = byte('a' + m.lacks[id])
			if m.ours[id] {
				state -= 'a' - 'A'
			}
		case o == shared:
			state = '1'
		case o >= t.first && (alone == -1 || alone == o):
			alone = o
		default:
			alone = -2
		}
		key = append(key, state)
	}
	if alone >= 0 {
		key = append(key, '!')
	}
	if c == m.boot {
		key = append(key, 'B')
	}
	slices.Sort(key[1:])
	return string(key)
}

// isNamed says whether a lane has a wish about another one.
func (t *together) isNamed(name string) bool {
	names := func(s lane.Spec) bool { return s.Near.Lane == name || slices.Contains(s.Apart.Lanes, name) }
	return slices.ContainsFunc(t.lanes, func(l lane.Lane) bool { return names(l.Spec) }) ||
		slices.ContainsFunc(t.m.lanes[:t.first], func(l Lane) bool { return names(l.Spec) })
}
