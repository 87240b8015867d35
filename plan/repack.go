package plan

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
)

// Repack is Solve that may move lanes: where a lane does not fit, or only by giving up more than it
// would have to on an empty machine. The moves of the answer are in an order in which each goes to
// CPUs that are free by then. Lanes that have lost CPUs are placed again. Where no moves are found that save something,
// the answer is that of Solve.
func Repack(h host.Host, placed Placement, lanes []lane.Lane) (Placement, error) {
	p, err := repack(h, placed, lanes)
	if err == nil {
		return p, nil
	}
	kept, lost, _ := placed.kept(h)
	return Placement{}, explained(err, h, kept, slices.Concat(askedAll(lost), lanes))
}

// kept parts the lanes that are placed into those that can stay and those that have lost CPUs.
func (p Placement) kept(h host.Host) (Placement, []Lane, error) {
	var gone *Mismatch
	err := p.check(h)
	if err == nil || !errors.As(err, &gone) || gone.Lost == nil {
		return p, nil, err
	}
	var lost []Lane
	for _, l := range p.Lanes {
		if slices.Contains(gone.Lost, l.Name) {
			lost = append(lost, l)
		}
	}
	p.Lanes = without(p.Lanes, gone.Lost...)
	return p, lost, nil
}

func askedAll(lanes []Lane) []lane.Lane {
	all := make([]lane.Lane, len(lanes))
	for i, l := range lanes {
		all[i] = asked(l)
	}
	return all
}

// repack is Repack that does not explain what it refuses.
func repack(h host.Host, placed Placement, lanes []lane.Lane) (Placement, error) {
	kept, lost, err := placed.kept(h)
	if err != nil {
		return Placement{}, err
	}
	plain, err := solve(h, kept, slices.Concat(askedAll(lost), lanes), Limit)
	var no *refused
	if err != nil && !errors.As(err, &no) {
		return Placement{}, err
	}
	m := newMachine(h, nil)
	fits := err == nil
	if fits {
		plain.moved(lost)
		if rest := plain.Cost; rest.minus(Cost{LanesMoved: rest.LanesMoved, BlockLost: rest.BlockLost}).Compare(m.ideal(slices.Concat(askedAll(lost), lanes))) <= 0 {
			return plain, nil
		}
	}
	a := arrangement{m: m, lanes: kept.Lanes}
	if !a.addAll(lost, lanes) || !a.onlyMoves(placed.Lanes) || fits && a.compare(placed, plain) >= 0 {
		return plain, err
	}
	p := Placement{APIVersion: APIVersion, Kind: Kind, Host: identity(h), Lanes: a.lanes, Moves: a.moves, Cost: a.cost(placed, a.lanes, len(a.moves))}
	on := m.with(a.lanes)
	p.Housekeeping = on.housekeeping()
	// One lane at a time, moved by a search that does not look at everything: the least is what each, also of those that
	// were there, costs on the machine alone, and where that is reached nothing is better.
	bound := m.ideal(askedAll(a.lanes)).minus(m.total(kept.Lanes))
	bound.BlockLost = min(0, p.Cost.BlockLost)
	if p.Optimal = bound.Compare(p.Cost) >= 0; !p.Optimal {
		p.Bound = &bound
	}
	return p, nil
}

// ideal is what lanes cost at least, each on the machine alone.
func (m *machine) ideal(lanes []lane.Lane) Cost {
	var sum Cost
	for _, l := range lanes {
		if p, ok, err := m.best(l, relaxed{}); ok && err == nil && !p.unsure {
			p.cost.BlockLost = 0
			sum = sum.plus(p.cost)
		}
	}
	return sum
}

// moved notes the moves of lanes that had lost CPUs.
func (p *Placement) moved(lost []Lane) {
	for _, had := range lost {
		at := slices.IndexFunc(p.Lanes, func(l Lane) bool { return l.Name == had.Name })
		p.Moves = append(p.Moves, move(had, p.Lanes[at], goneReason))
		p.Cost.LanesMoved++
	}
}

const goneReason = "some of its CPUs are gone"

// addAll places lanes, the largest first, after those that have lost CPUs. False: one does not fit, or what came out breaks
// a rule.
func (a *arrangement) addAll(lost []Lane, lanes []lane.Lane) bool {
	for _, l := range lost {
		if !a.add(asked(l), l.Owned()) {
			return false
		}
	}
	order := slices.Clone(lanes)
	slices.SortFunc(order, func(a, b lane.Lane) int {
		return cmp.Or(cmp.Compare(b.Spec.CPUs.Count, a.Spec.CPUs.Count), strings.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	for _, l := range order {
		if !a.add(l, cpuset.Set{}) {
			return false
		}
	}
	return a.holds()
}

// onlyMoves sees that only lanes that are placed move: where one of this request had to make room for another, the others
// move at once to where they came to be.
func (a *arrangement) onlyMoves(placed []Lane) bool {
	isPlaced := func(name string) bool {
		return slices.ContainsFunc(placed, func(l Lane) bool { return l.Name == name })
	}
	if !slices.ContainsFunc(a.moves, func(m Move) bool { return !isPlaced(m.Lane) }) {
		return true
	}
	targets := map[string]Lane{}
	for _, l := range placed {
		if to := a.lane(l.Name); to.Owned() != l.Owned() {
			targets[l.Name] = to
		}
	}
	before := arrangement{m: a.m, lanes: placed}
	_, moves, ok := before.sequence(targets, "new lanes")
	a.moves = moves
	return ok
}

// holds says whether the rules hold for all lanes where they are now.
func (a *arrangement) holds() bool {
	on := a.m.with(a.lanes)
	for i, l := range a.lanes {
		p, err := on.placeOf(l)
		if err != nil || !on.survey(&p) {
			return false
		}
		if _, v := on.beside(&p, i); v.fails {
			return false
		}
	}
	return !on.free().IsEmpty()
}

// cost is what lanes cost more where they are now than what was placed before.
func (a *arrangement) cost(placed Placement, now []Lane, moves int) Cost {
	sum := a.m.total(now).minus(a.m.total(placed.Lanes))
	sum.LanesMoved = moves
	return sum
}

// total is what lanes cost where they are; a lane that cannot be there costs nothing.
func (m *machine) total(lanes []Lane) Cost {
	on := m.with(lanes)
	sum := Cost{BlockLost: m.block() - on.block()}
	for i, l := range lanes {
		if !l.Owned().IsSubsetOf(m.h.Usable()) {
			continue
		}
		p, err := on.placeOf(l)
		if err != nil {
			continue
		}
		on.survey(&p)
		own, _ := on.beside(&p, i)
		sum = sum.plus(p.fixed).plus(own)
	}
	return sum
}

// compare says whether the arrangement is better than a plan without moves: first by wishes and nodes, for whose sake lanes
// are moved, then by all that it costs.
func (a *arrangement) compare(placed, plain Placement) int {
	with := a.cost(placed, a.lanes, len(a.moves))
	without := a.cost(placed, plain.Lanes, len(plain.Moves))
	return with.Compare(without)
}

// arrangement is who is where while lanes are moved.
type arrangement struct {
	m     *machine // for what does not change; who has what on it is not used
	lanes []Lane
	moves []Move
}

// asked is the declaration of a lane that is placed.
func asked(l Lane) lane.Lane {
	return lane.Lane{APIVersion: lane.APIVersion, Kind: lane.Kind, Metadata: lane.Metadata{Name: l.Name}, Spec: l.Spec}
}

// with is the machine with other lanes on it.
func (m *machine) with(lanes []Lane) *machine {
	o := *m
	o.owner, o.room, o.lanes = make([]int, len(m.owner)), make([]int, len(m.room)), nil
	for i := range o.owner {
		o.owner[i] = free
	}
	for _, l := range lanes {
		o.put(l)
	}
	return &o
}

// without are the lanes but for some.
func without(lanes []Lane, names ...string) []Lane {
	return slices.DeleteFunc(slices.Clone(lanes), func(l Lane) bool { return slices.Contains(names, l.Name) })
}

// add places a lane, and moves others if that saves something that costs more. A lane that had other
// CPUs before has moved itself.
func (a *arrangement) add(l lane.Lane, from cpuset.Set) bool {
	on := a.m.with(a.lanes)
	alone, ok, err := a.m.with(nil).best(l, relaxed{})
	if err != nil || !ok {
		return false
	}
	ideal := alone.cost
	ideal.BlockLost = 0
	now, fits, err := on.best(l, relaxed{})
	if err != nil {
		return false
	}
	now.cost.BlockLost = 0
	best, found := room{own: now.cost, cost: now.cost}, fits
	if !fits || ideal.Compare(now.cost) < 0 {
		for _, p := range []func(lane.Lane, Cost) (room, bool){a.fewMoves, a.newNodes} {
			if other, ok := p(l, ideal); ok && (!found || other.compare(best) < 0) {
				best, found = other, true
			}
		}
	}
	if !found {
		return false
	}
	if best.lanes != nil {
		a.lanes, a.moves = best.lanes, append(a.moves, best.moves...)
		on = a.m.with(a.lanes)
		if now, fits, err = on.best(l, relaxed{}); err != nil || !fits {
			return false
		}
	}
	made := on.describe(now)
	if !from.IsEmpty() {
		a.moves = append(a.moves, move(Lane{Name: made.Name, CPUs: from, Spec: l.Spec}, made, goneReason))
	}
	on.put(made)
	made.Reasons = append(made.Reasons, on.lateReasons(&now, len(on.lanes)-1)...)
	a.lanes = append(a.lanes, made)
	return true
}

// room is a way to make room: the lanes after the moves, and what they and the new lane cost more than
// now.
type room struct {
	lanes []Lane
	moves []Move
	own   Cost // of the new lane
	cost  Cost // of all
}

// compare orders plans: first by the wishes and nodes of the new lane, for whose sake it is done.
func (p room) compare(q room) int {
	return cmp.Or(cmp.Compare(p.own.BrokenWishes, q.own.BrokenWishes), cmp.Compare(p.own.NUMACrossings, q.own.NUMACrossings),
		p.cost.Compare(q.cost))
}

func move(from, to Lane, reason string) Move {
	v := Move{Lane: to.Name, From: from.Owned(), To: to.Owned(), Reason: reason}
	for _, h := range to.Memory {
		if !from.MemoryNodes.Contains(h.Node) {
			v.MemoryBytes = plusCapped(v.MemoryBytes, h.Bytes)
		}
	}
	for _, h := range to.Hugepages {
		if !from.MemoryNodes.Contains(h.Node) {
			v.MemoryBytes = plusCapped(v.MemoryBytes, timesCapped(h.Pages, h.PageBytes))
		}
	}
	return v
}

// isFixed says whether a lane has to stay: another one is near to it.
func (a *arrangement) isFixed(name string) bool {
	return slices.ContainsFunc(a.lanes, func(o Lane) bool { return o.Spec.Near.Lane == name })
}

// fewMoves takes one, two or three lanes away, places the new lane and then these again, the largest
// first. It stops at the first number of moves that reaches the ideal.
func (a *arrangement) fewMoves(l lane.Lane, ideal Cost) (room, bool) {
	var movable []int
	for i, has := range a.lanes {
		if !a.isFixed(has.Name) {
			movable = append(movable, i)
		}
	}
	slices.SortStableFunc(movable, func(x, y int) int { return cmp.Compare(a.lanes[x].CPUs.Len(), a.lanes[y].CPUs.Len()) })
	var best room
	found := false
	tries := 400
	for size := 1; size <= min(3, len(movable)); size++ {
		choosing(len(movable), size, func(chosen []int) bool {
			var names []string
			for _, c := range chosen {
				names = append(names, a.lanes[movable[c]].Name)
			}
			if p, ok := a.moveThese(l, names); ok && (!found || p.compare(best) < 0) {
				best, found = p, true
			}
			tries--
			return tries > 0
		})
		reached := best.cost
		reached.LanesMoved, reached.BlockLost = 0, 0
		if found && reached.Compare(ideal) <= 0 {
			break
		}
	}
	return best, found
}

// choosing calls use with all choices of k of n numbers, until use returns false.
func choosing(n, k int, use func([]int) bool) bool {
	chosen := make([]int, k)
	var from func(at, least int) bool
	from = func(at, least int) bool {
		if at == k {
			return use(chosen)
		}
		for i := least; i < n; i++ {
			chosen[at] = i
			if !from(at+1, i+1) {
				return false
			}
		}
		return true
	}
	return from(0, 0)
}

// moveThese works out a plan that moves just these lanes.
func (a *arrangement) moveThese(l lane.Lane, names []string) (room, bool) {
	on := a.m.with(without(a.lanes, names...))
	first, ok, err := on.best(l, relaxed{})
	if err != nil || !ok {
		return room{}, false
	}
	p := room{own: first.cost, cost: first.cost}
	p.cost.BlockLost = 0
	on.put(on.describe(first))
	targets := map[string]Lane{}
	gone := slices.DeleteFunc(slices.Clone(a.lanes), func(h Lane) bool { return !slices.Contains(names, h.Name) })
	slices.SortStableFunc(gone, func(x, y Lane) int { return cmp.Compare(y.CPUs.Len(), x.CPUs.Len()) })
	for _, has := range gone {
		next, fits, err := on.best(asked(has), relaxed{})
		if err != nil || !fits {
			return room{}, false
		}
		p.cost = p.cost.plus(next.cost).minus(a.costOf(has))
		p.cost.BlockLost = 0
		targets[has.Name] = on.describe(next)
		on.put(targets[has.Name])
	}
	for name, to := range targets { // a lane that comes to where it was has not moved
		if a.lane(name).Owned() == to.Owned() {
			delete(targets, name)
		}
	}
	p.lanes, p.moves, ok = a.sequence(targets, l.Metadata.Name)
	p.cost.LanesMoved += len(p.moves)
	return p, ok
}

func (a *arrangement) lane(name string) Lane {
	return a.lanes[slices.IndexFunc(a.lanes, func(l Lane) bool { return l.Name == name })]
}

// costOf is what a lane costs where it is.
func (a *arrangement) costOf(has Lane) Cost {
	m := a.m.with(without(a.lanes, has.Name))
	p, err := m.placeOf(has)
	if err != nil {
		return Cost{}
	}
	m.survey(&p)
	own, _ := m.beside(&p, -1)
	return p.fixed.plus(own)
}

// sequence orders moves to targets so that each finds its CPUs free. Where lanes wait for each other
// in a circle, one steps aside to any place that is free meanwhile.
func (a *arrangement) sequence(targets map[string]Lane, reason string) ([]Lane, []Move, bool) {
	lanes := slices.Clone(a.lanes)
	var moves []Move
	why := "makes room for " + reason
	at := func(name string) int { return slices.IndexFunc(lanes, func(l Lane) bool { return l.Name == name }) }
	do := func(name string, to Lane, why string) {
		i := at(name)
		moves = append(moves, move(lanes[i], to, why))
		lanes[i] = to
	}
	waiting, stepped := sortedKeys(targets), map[string]bool{}
	for len(waiting) > 0 {
		before := len(waiting)
		waiting = slices.DeleteFunc(waiting, func(name string) bool {
			for _, o := range lanes {
				if o.Name != name && overlap(o, targets[name]) {
					return false
				}
			}
			do(name, targets[name], why)
			return true
		})
		if len(waiting) < before {
			continue
		}
		aside := false
		for _, name := range waiting {
			if stepped[name] {
				continue
			}
			if to, ok := a.stepAside(lanes, lanes[at(name)], waiting, targets); ok {
				do(name, to, "steps aside while others move")
				stepped[name], aside = true, true
				break
			}
		}
		if !aside {
			return nil, nil, false
		}
	}
	return lanes, moves, true
}

// overlap says whether two lanes cannot be there at once.
func overlap(a, b Lane) bool {
	return a.Owned().Intersects(b.Owned()) && (a.Spec.CPUs.Share <= 1 || b.Spec.CPUs.Share <= 1)
}

// stepAside finds a place for a lane outside of its own and of where the others want to go; failing
// that, outside of its own.
func (a *arrangement) stepAside(lanes []Lane, has Lane, waiting []string, targets map[string]Lane) (Lane, bool) {
	m := a.m.with(without(lanes, has.Name))
	wanted := has.Owned()
	for _, name := range waiting {
		wanted = wanted.Union(targets[name].Owned())
	}
	l := asked(has)
	for _, banned := range []cpuset.Set{wanted, has.Owned()} {
		ways, err := m.asks(l, relaxed{wishes: l.Spec.Wishes()})
		if err != nil {
			return Lane{}, false
		}
		way := ways[0]
		way.banned = way.banned.Union(banned)
		if p, ok := m.bestFor(way); ok {
			return m.describe(p), true
		}
	}
	return Lane{}, false
}

// newNodes makes room on a node: by a search for few moves from node to node, else by first-fit-
// decreasing, with lanes where they are as far as they fit or all anew.
func (a *arrangement) newNodes(l lane.Lane, _ Cost) (room, bool) {
	if steps, node, ok := a.shuffle(l); ok {
		w := walk{a: a, lanes: slices.Clone(a.lanes), why: "makes room for " + l.Metadata.Name}
		if !slices.ContainsFunc(steps, func(s step) bool { return !w.to(s.lane, s.node) }) {
			if p, ok := w.end(l, node); ok {
				return p, true
			}
		}
	}
	for _, stay := range []bool{true, false} {
		if target, ok := a.packNodes(l, stay); ok {
			if p, ok := a.toNodes(l, target); ok {
				return p, true
			}
		}
	}
	return room{}, false
}

// packNodes gives each lane a node, the largest first: with stay its own while there is room, else the
// first that has.
func (a *arrangement) packNodes(l lane.Lane, stay bool) (map[string]int, bool) {
	empty := a.m.with(nil)
	room := make([]int, len(a.m.nodes))
	for id, c := range a.m.at {
		if c >= 0 && c != a.m.boot {
			room[a.m.nodeOf(id)]++
		}
	}
	type item struct {
		lane lane.Lane
		has  Lane
		size int
	}
	items := []item{{lane: l, size: l.Spec.CPUs.Count}}
	for _, has := range a.lanes {
		items = append(items, item{asked(has), has, has.Owned().Len()})
	}
	slices.SortStableFunc(items, func(x, y item) int { return cmp.Compare(y.size, x.size) })
	target := map[string]int{}
	for _, it := range items {
		order := make([]int, 0, len(room)+1)
		if at := a.m.places(it.has.CPUs); stay && len(at) == 1 {
			order = append(order, at[0])
		}
		for n := range room {
			order = append(order, n)
		}
		i := slices.IndexFunc(order, func(n int) bool { return room[n] >= it.size && empty.canBeOn(it.lane, n) })
		if i < 0 {
			return nil, false
		}
		target[it.lane.Metadata.Name] = order[i]
		room[order[i]] -= it.size
	}
	return target, true
}

// canBeOn says whether a lane's wishes allow a node.
func (m *machine) canBeOn(l lane.Lane, n int) bool {
	ways, err := m.asks(l, relaxed{})
	return err == nil && slices.ContainsFunc(ways, func(w ask) bool { return w.near == nil || slices.Contains(w.near, n) })
}

// walk is lanes on their way to other nodes.
type walk struct {
	a     *arrangement
	lanes []Lane
	moves []Move
	why   string
}

func (w *walk) do(i int, to Lane, why string) {
	w.moves = append(w.moves, move(w.lanes[i], to, why))
	w.lanes[i] = to
}

// to moves a lane to a node, if it fits there now.
func (w *walk) to(i, node int) bool {
	to, ok := w.a.onNode(w.lanes, asked(w.lanes[i]), node)
	if ok {
		w.do(i, to, w.why)
	}
	return ok
}

// end places the new lane, and adds up what all this costs more than now.
func (w *walk) end(l lane.Lane, node int) (room, bool) {
	last, ok := w.a.onNode(w.lanes, l, node)
	if !ok {
		return room{}, false
	}
	after := arrangement{m: w.a.m, lanes: append(slices.Clone(w.lanes), last)}
	own := after.costOf(last)
	p := room{lanes: w.lanes, moves: w.moves, own: own, cost: own}
	for i, had := range w.a.lanes {
		if w.lanes[i].Owned() != had.Owned() {
			p.cost = p.cost.plus(after.costOf(w.lanes[i])).minus(w.a.costOf(had))
		}
	}
	p.cost.LanesMoved += len(w.moves)
	return p, true
}

// toNodes moves lanes to their nodes: those that fit at once first; when none does, one goes part of the
// way; and when no CPU is free where one wants to go, another that has to leave makes room there first.
func (a *arrangement) toNodes(l lane.Lane, target map[string]int) (room, bool) {
	w := walk{a: a, lanes: slices.Clone(a.lanes), why: "makes room for " + l.Metadata.Name}
	var waiting []int
	for i, has := range a.lanes {
		if at := a.m.places(has.CPUs); (len(at) != 1 || at[0] != target[has.Name]) && !a.isFixed(has.Name) {
			waiting = append(waiting, i)
		}
	}
	slices.SortStableFunc(waiting, func(x, y int) int { return cmp.Compare(a.lanes[y].CPUs.Len(), a.lanes[x].CPUs.Len()) })
	wants := func(i int) int { return target[w.lanes[i].Name] }
	for rounds := 4 * len(a.lanes); len(waiting) > 0; rounds-- {
		before := len(waiting)
		waiting = slices.DeleteFunc(waiting, func(i int) bool { return w.to(i, wants(i)) })
		if len(waiting) < before {
			continue
		}
		partly := slices.ContainsFunc(waiting, func(i int) bool { return w.shift(i, -1, wants(i)) })
		if !partly && !slices.ContainsFunc(waiting, func(i int) bool {
			return slices.ContainsFunc(waiting, func(j int) bool { return wants(j) != wants(i) && w.shift(j, wants(i), -1) })
		}) || rounds == 0 {
			return room{}, false
		}
	}
	return w.end(l, target[l.Metadata.Name])
}

// shift moves as many of a lane's CPUs as there are free ones: off a node to any other, or from anywhere
// else to a node; -1 is any. Lanes that want whole cores are left alone.
func (w *walk) shift(i, off, to int) bool {
	has := w.lanes[i]
	if s := has.Spec.CPUs; s.Share > 1 || s.SMT == lane.Isolate || s.SMT == lane.Pack {
		return false
	}
	m := w.a.m.with(without(w.lanes, has.Name))
	ways, err := m.asks(asked(has), relaxed{wishes: []string{"near", "numa", "l3"}})
	if err != nil {
		return false
	}
	s := m.newSearch(ways[0], nil)
	var from, free []int
	for id, c := range m.at {
		switch n := m.nodeOf(id); {
		case c < 0:
		case has.CPUs.Contains(id) && (n == off || off < 0 && n != to):
			from = append(from, id)
		case !has.CPUs.Contains(id) && s.isOpen(id) && s.takes[c].most > 0 && (n == to || to < 0 && n != off):
			free = append(free, id)
		}
	}
	k := min(len(from), len(free))
	if k == 0 {
		return false
	}
	p := place{ask: ways[0], given: given{has.Memory, has.Hugepages},
		cpus: has.CPUs.Difference(cpuset.Of(from[:k]...)).Union(cpuset.Of(free[:k]...))}
	m.survey(&p)
	w.do(i, m.describe(p), "goes part of the way while others move")
	return true
}

// onNode places a lane on one node; lanes has its old place, which does not count.
func (a *arrangement) onNode(lanes []Lane, l lane.Lane, n int) (Lane, bool) {
	m := a.m.with(without(lanes, l.Metadata.Name))
	ways, err := m.asks(l, relaxed{})
	if err != nil {
		return Lane{}, false
	}
	for _, w := range ways {
		if w.near != nil && !slices.Contains(w.near, n) {
			continue
		}
		w.near = []int{n}
		if p, ok := m.bestFor(w); ok {
			return m.describe(p), true
		}
	}
	return Lane{}, false
}
