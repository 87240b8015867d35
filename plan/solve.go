package plan

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
)

// Limit is how many partial placements Solve looks at for lanes that are placed together, before it
// answers with the best it has found. It is a number and not a time, so that the answer is the same on
// every machine.
const Limit = 20000

// Solve adds lanes to what is placed on h already: all of them or none. What is placed stays where
// it is. CPUs that boot isolated come first: where all the lanes fit there, with no more crossings, they get no others. The error is a *Refusal where a lane does not fit, and a *Mismatch where what is placed is
// not for this machine, or not any more.
func Solve(h host.Host, placed Placement, lanes []lane.Lane) (Placement, error) {
	return solve(h, placed, lanes, Limit)
}

func solve(h host.Host, placed Placement, lanes []lane.Lane, limit int) (Placement, error) {
	if err := placed.check(h); err != nil {
		return Placement{}, err
	}
	for _, l := range lanes {
		if slices.ContainsFunc(placed.Lanes, func(p Lane) bool { return p.Name == l.Metadata.Name }) {
			return Placement{}, &Refusal{Lane: l.Metadata.Name, Blocking: []string{"a lane of that name is placed already"}}
		}
		if err := knowsOthers(l, placed, lanes); err != nil {
			return Placement{}, err
		}
	}
	m := newMachine(h, placed.Lanes)
	t := &together{m: m, lanes: lanes, before: m.block(), left: limit}
	if err := t.run(); err != nil {
		return Placement{}, err
	}
	if isolated := m.isolated.Intersection(h.Usable()); !isolated.IsEmpty() {
		m.kept = h.Usable().Difference(isolated)
		on := &together{m: m, lanes: lanes, before: m.block(), left: limit}
		if on.run() == nil && on.cost.crossings().Compare(t.cost.crossings()) <= 0 {
			return on.placement(placed), nil
		}
		m.kept = cpuset.Set{}
	}
	return t.placement(placed), nil
}

// knowsOthers says whether the lanes that a lane names are there or are placed with it.
func knowsOthers(l lane.Lane, placed Placement, lanes []lane.Lane) error {
	for _, name := range append(slices.Clone(l.Spec.Apart.Lanes), l.Spec.Near.Lane) {
		if name != "" && !slices.ContainsFunc(placed.Lanes, func(p Lane) bool { return p.Name == name }) &&
			!slices.ContainsFunc(lanes, func(o lane.Lane) bool { return o.Metadata.Name == name }) {
			return &Refusal{Lane: l.Metadata.Name, Blocking: []string{"spec.near, spec.apart: there is no lane " + name}}
		}
	}
	return nil
}

// together is the search for several lanes: branch and bound over their places.
type together struct {
	m       *machine
	lanes   []lane.Lane
	order   []int // in which they are placed: those that others want to be near to first, then the largest
	alone   []Cost
	before  int // the largest free block
	left    int // partial placements that may still be looked at
	best    []place
	cost    Cost
	found   bool
	refusal error
}

func (t *together) run() error {
	t.order = make([]int, len(t.lanes))
	t.alone = make([]Cost, len(t.lanes))
	for i, l := range t.lanes {
		t.order[i] = i
		p, ok, err := t.m.best(l, relaxed{})
		if err != nil || !ok {
			return t.m.refuse(l, err)
		}
		t.alone[i] = p.cost
		t.alone[i].BlockLost = 0
		if l.Spec.Near.Lane != "" {
			t.alone[i].DeviceDistance = 0 // the other may come to lie elsewhere
		}
	}
	slices.SortStableFunc(t.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(t.depth(a), t.depth(b)), cmp.Compare(t.demand(b), t.demand(a)))
	})
	t.branch(0, nil, Cost{})
	if !t.found {
		if t.refusal == nil {
			t.refusal = &Refusal{Lane: t.lanes[t.order[len(t.order)-1]].Metadata.Name, Blocking: []string{"no way was found to place all lanes together"}}
		}
		return t.refusal
	}
	return nil
}

// depth is how many lanes of this request a lane has to wait for.
func (t *together) depth(i int) int {
	depth, name := 0, t.lanes[i].Spec.Near.Lane
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
func (t *together) demand(i int) int {
	c := t.lanes[i].Spec.CPUs
	if c.SMT == lane.Isolate {
		return 2 * c.Count
	}
	return c.Count
}

// bound is the least that the lanes from a depth on can cost.
func (t *together) bound(depth int) Cost {
	var sum Cost
	for _, i := range t.order[depth:] {
		sum = sum.plus(t.alone[i])
	}
	return sum
}

// branch places the lanes from a depth on, in all ways that could be better than the best so far.
func (t *together) branch(depth int, have []place, cost Cost) {
	cost.BlockLost = t.before - t.m.block()
	if t.found && cost.plus(t.bound(depth)).Compare(t.cost) >= 0 {
		return
	}
	if depth == len(t.order) {
		t.best, t.cost, t.found = slices.Clone(have), cost, true
		return
	}
	l := t.lanes[t.order[depth]]
	first, ok, err := t.m.best(l, relaxed{})
	if err != nil || !ok {
		if depth > 0 && t.refusal == nil {
			t.refusal = t.m.refuse(l, err)
		}
		return
	}
	visit := func(p place) bool {
		if t.left--; t.left < 0 && t.found || t.left < -Limit {
			return false
		}
		t.m.put(Lane{Name: l.Metadata.Name, CPUs: p.cpus, Idle: p.idle, Memory: p.memory, Hugepages: p.huge,
			Devices: t.m.devices(p), Spec: l.Spec})
		t.branch(depth+1, append(have, p), cost.plus(p.cost))
		t.m.pop()
		return true
	}
	if !visit(first) || len(t.lanes) == 1 {
		return // the best place of a single lane is the answer
	}
	t.m.every(l, func(p place) bool {
		partial := cost.plus(p.cost)
		partial.BlockLost = 0
		if t.found && partial.plus(t.bound(depth+1)).Compare(t.cost) >= 0 {
			t.left--
			return t.left >= 0
		}
		return visit(p)
	})
}

// placement writes the answer down.
func (t *together) placement(placed Placement) Placement {
	p := Placement{APIVersion: APIVersion, Kind: Kind, Host: identity(t.m.h), Cost: t.cost, Optimal: true,
		Lanes: slices.Clone(placed.Lanes)}
	if len(t.lanes) > 1 && t.left < 0 {
		if bound := t.bound(0); bound.Compare(t.cost) < 0 {
			p.Optimal, p.Bound = false, &bound
		}
	}
	made := make([]Lane, len(t.lanes))
	for depth, i := range t.order {
		l := t.m.describe(t.best[depth])
		t.m.put(l)
		made[i] = l
	}
	p.Lanes = append(p.Lanes, made...) // in the order in which they were asked for
	p.Housekeeping = t.m.housekeeping()
	return p
}

// every calls use with all places of a lane, but for those that differ only in which of several equal
// cores they take, until use returns false.
func (m *machine) every(l lane.Lane, use func(place) bool) {
	for _, dropped := range droppable(l.Spec, nil) {
		ways, err := m.asks(l, relaxed{wishes: dropped})
		if err != nil {
			return
		}
		for _, a := range ways {
			s := m.newSearch(a, func(cell) bool { return true })
			e := enumeration{search: s, use: use, taken: make([]int8, len(m.cores))}
			if !e.from(0, 0) {
				return
			}
		}
	}
}

// enumeration goes through the cores of a machine and takes 0, 1 … CPUs of each.
type enumeration struct {
	*search
	use   func(place) bool
	taken []int8
}

// from continues at a core, with so many CPUs taken; false to stop.
func (e *enumeration) from(c, have int) bool {
	if have == e.count {
		return e.offer()
	}
	if c == len(e.m.cores) {
		return true
	}
	most := min(e.most(c), e.count-have)
	if !e.allows(e.m.cells[e.m.cores[c].cell].node) {
		most = 0
	}
	for n := most; n >= 0; n-- {
		whole := e.a.smt != lane.Pack || n == 0 || n == len(e.m.cores[c].cpus)
		// Of equal cores, the first ones give the most.
		if twin := c - 1; !whole || twin >= 0 && n > int(e.taken[twin]) && e.equal(twin, c) {
			continue
		}
		e.taken[c] = int8(n) // no core has more than 8 threads
		if !e.from(c+1, have+n) {
			return false
		}
		e.taken[c] = 0
	}
	return true
}

// equal says whether it makes no difference which of two cores of a cell is taken.
func (e *enumeration) equal(a, b int) bool {
	x, y := e.m.cores[a], e.m.cores[b]
	return x.cell == y.cell && x.kind == y.kind && len(x.cpus) == len(y.cpus) && e.most(a) == e.most(b) &&
		e.isShared(a) == e.isShared(b) && e.m.isWhole(a) && e.m.isWhole(b)
}

// offer hands out a place, if there is memory for it.
func (e *enumeration) offer() bool {
	p := place{}
	var cpuNodes uint64
	for n, at := range e.m.nodes {
		for cell := at.from; cell < at.to; cell++ {
			c := e.m.cells[cell]
			e.take(&p, cell, e.taken[c.from:c.to])
			for _, took := range e.taken[c.from:c.to] {
				if took > 0 {
					cpuNodes |= 1 << n
				}
			}
		}
	}
	if e.a.oneL3 && len(slices.Compact(slices.Sorted(slices.Values(e.m.l3s(p.cpus))))) > 1 {
		return true
	}
	if !e.leavesHousekeeping(p) {
		return true
	}
	k, most := count(cpuNodes), len(e.m.nodes)
	if e.a.oneNode {
		most = 1
	}
	for nodes := k; nodes <= most; nodes++ { // as few more for memory as do
		done, going := false, true
		subsets(len(e.m.nodes), nodes, func(set uint64) {
			if set&cpuNodes != cpuNodes || done {
				return
			}
			if memory, huge, ok := e.setAside(set, cpuNodes); ok {
				p.memory, p.huge, done = memory, huge, true
				e.price(&p, nodes)
				going = e.use(p)
			}
		})
		if done {
			return going
		}
	}
	return true
}

func count(set uint64) int {
	n := 0
	for ; set > 0; set &= set - 1 {
		n++
	}
	return n
}

// Mismatch is why a placement does not fit a machine.
type Mismatch struct {
	Reason string
	Lost   []string // lanes of which CPUs are gone; none: it is another machine
}

// Error is the reason.
func (m *Mismatch) Error() string { return m.Reason }

func identity(h host.Host) Machine {
	m := Machine{Hostname: h.Hostname}
	var ids []int
	for _, c := range h.CPUs {
		ids = append(ids, c.ID)
	}
	m.CPUs = cpuset.Of(ids...)
	return m
}

// refuse says why a lane does not fit; err is what makes it impossible, if something alone does.
func (m *machine) refuse(l lane.Lane, err error) error {
	if err != nil {
		return &Refusal{APIVersion: APIVersion, Kind: KindOfRefusal, Lane: l.Metadata.Name, Blocking: []string{err.Error()}}
	}
	return m.explain(l)
}
