package plan

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
)

// Repack is Solve that may move lanes: where a lane does not fit, or only by giving up more than it
// would have to on an empty machine. The moves of the answer are in an order in which each goes to
// CPUs that are free by then. Lanes that have lost CPUs are placed again. Where no moves are found that save
// something, the answer is that of Solve.
func Repack(h host.Host, placed Placement, lanes []lane.Lane) (Placement, error) {
	p, err := repack(h, placed, lanes)
	if err == nil {
		return p, nil
	}
	kept, lost, _ := placed.kept(h)
	return Placement{}, explained(err, h, kept, slices.Concat(declarations(lost), lanes))
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

// repacking is the search for moves. Its machine is empty: who has what is put on copies of it.
type repacking struct {
	m      *machine
	before []Lane // where lanes were, those that have lost CPUs too
	why    string // the reason for moves
}

// arrangement is where lanes could be, and what that costs in all.
type arrangement struct {
	lanes []Lane
	moves []Move
	own   Cost // of the lane that was added last
	cost  Cost
}

// repack is Repack that does not explain what it refuses.
func repack(h host.Host, placed Placement, lanes []lane.Lane) (Placement, error) {
	kept, lost, err := placed.kept(h)
	if err != nil {
		return Placement{}, err
	}
	wanted := slices.Concat(declarations(lost), lanes)
	plain, err := solve(h, kept, wanted, Limit)
	var no *refused
	if err != nil && !errors.As(err, &no) {
		return Placement{}, err
	}
	r := repacking{m: newMachine(h, nil), before: placed.Lanes, why: "makes room for " + few(names(wanted))}
	if err == nil {
		plain.countMoves(lost)
		if plain.Cost.withoutMoves().Compare(r.m.ideal(wanted)) <= 0 {
			return plain, nil
		}
	}
	order := append(declarations(lost), slices.SortedFunc(slices.Values(lanes), largestFirst)...)
	now, ok := r.addAll(arrangement{lanes: kept.Lanes}, order)
	if !ok || err == nil && (len(now.moves) == 0 || now.cost.Compare(r.cost(plain.Lanes, plain.Moves)) >= 0) {
		return plain, err
	}
	return r.placement(now, kept.Lanes, wanted), nil
}

// placement writes the answer down.
func (r *repacking) placement(now arrangement, kept []Lane, wanted []lane.Lane) Placement {
	order := slices.Concat(names(declarations(kept)), names(wanted))
	slices.SortFunc(now.lanes, func(a, b Lane) int {
		return cmp.Compare(slices.Index(order, a.Name), slices.Index(order, b.Name))
	})
	for i, l := range now.lanes {
		was, ok := find(r.before, l.Name)
		if !ok || was.Owned() != l.Owned() || !slices.Equal(was.Hugepages, l.Hugepages) {
			now.lanes[i] = r.described(now.lanes, l)
		}
	}
	p := Placement{APIVersion: APIVersion, Kind: Kind, Host: identity(r.m.h), Lanes: now.lanes, Moves: now.moves,
		Cost: now.cost.minus(r.m.total(r.before)), Housekeeping: r.m.with(now.lanes).housekeeping()}
	// The search does not look at everything. What each lane costs at least, also of those that were there, it
	// costs on the machine alone: where that is reached, nothing is better.
	bound := r.m.ideal(declarations(now.lanes)).minus(r.m.total(kept))
	bound.BlockLost = min(0, p.Cost.BlockLost)
	if p.Optimal = bound.Compare(p.Cost) >= 0; !p.Optimal {
		p.Bound = &bound
	}
	return p
}

// described adds to a lane what depends on all others being where they are in the end.
func (r *repacking) described(lanes []Lane, l Lane) Lane {
	on := r.m.with(without(lanes, l.Name))
	p, err := on.placeOf(l)
	if err != nil {
		return l
	}
	on.fixedCost(&p)
	l = on.describe(p)
	on.put(l)
	l.Reasons = append(l.Reasons, on.finalReasons(&p, len(on.lanes)-1)...)
	return l
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

// total is what lanes cost where they are; a lane that cannot be there costs nothing.
func (m *machine) total(lanes []Lane) Cost {
	on := m.with(lanes)
	sum := Cost{BlockLost: m.block() - on.block()}
	for i, l := range lanes {
		if !l.Owned().IsSubsetOf(m.h.Usable()) {
			continue
		}
		if p, err := on.placeOf(l); err == nil {
			on.fixedCost(&p)
			own, _ := on.besideCost(&p, i)
			sum = sum.plus(p.fixed).plus(own)
		}
	}
	return sum
}

// cost is what lanes and moves cost in all.
func (r *repacking) cost(lanes []Lane, moves []Move) Cost {
	sum := r.m.total(lanes)
	sum.LanesMoved = len(moves)
	return sum
}

// countMoves adds the moves of lanes that had lost CPUs.
func (p *Placement) countMoves(lost []Lane) {
	for _, had := range lost {
		to, _ := find(p.Lanes, had.Name)
		p.Moves = append(p.Moves, move(had, to, goneReason))
		p.Cost.LanesMoved++
	}
}

// addAll adds lanes one after the other. False: one does not fit, or what came out breaks a rule.
func (r *repacking) addAll(now arrangement, wanted []lane.Lane) (arrangement, bool) {
	for _, l := range wanted {
		next, ok := r.add(now, l)
		if !ok {
			return now, false
		}
		if had, ok := find(r.before, l.Metadata.Name); ok {
			made, _ := find(next.lanes, had.Name)
			next.moves = append(next.moves, move(had, made, goneReason))
		}
		now = next
	}
	if slices.ContainsFunc(now.moves, func(m Move) bool { _, ok := find(r.before, m.Lane); return !ok }) {
		// A lane of the request made room for another one: those that were there go at once to where they came to
		// be.
		t := r.routeTo(r.before, now.lanes)
		if !t.run() {
			return now, false
		}
		now.moves = t.moves
	}
	now.cost = r.cost(now.lanes, now.moves)
	return now, r.holds(now.lanes)
}

// holds says whether the rules hold for lanes where they are.
func (r *repacking) holds(lanes []Lane) bool {
	on := r.m.with(lanes)
	for i, l := range lanes {
		p, err := on.placeOf(l)
		if err != nil || !on.fixedCost(&p) {
			return false
		}
		if _, v := on.besideCost(&p, i); v.fails {
			return false
		}
	}
	return !on.free().IsEmpty() && on.hasStock()
}

// add places one more lane: where it costs least, if that is no more than on an empty machine; else with one,
// two or three others taken away and placed again; else with each lane on a node.
func (r *repacking) add(now arrangement, l lane.Lane) (arrangement, bool) {
	ideal, ok, err := r.m.best(l, relaxed{})
	if err != nil || !ok {
		return now, false
	}
	least := arrangement{own: ideal.cost, cost: r.m.total(now.lanes).plus(ideal.cost).withoutMoves()}
	best, found := arrangement{}, false
	try := func(a arrangement, ok bool) bool {
		if ok && (!found || a.compare(best) < 0) {
			best, found = a, true
		}
		a = best
		a.cost = a.cost.withoutMoves()
		return found && a.compare(least) <= 0
	}
	movable := r.movable(now.lanes)
	tries := 400
	for size := 0; size <= min(3, len(movable)); size++ {
		reached := false
		combinations(movable, size, func(lifted []string) bool {
			reached = try(r.lift(now, l, lifted)) || reached
			tries--
			return tries > 0
		})
		if reached {
			return best, true
		}
	}
	type search func([]Lane, lane.Lane) (map[string]int, bool)
	for _, nodesOf := range []search{r.fewestMoves, r.packStaying, r.packAnew} {
		if nodes, ok := nodesOf(now.lanes, l); ok {
			if a, ok := r.walk(now, l, nodes); ok {
				try(a, ok)
				break
			}
		}
	}
	return best, found
}

// movable are the names of the lanes that no other one is near to, the smallest first.
func (r *repacking) movable(lanes []Lane) []string {
	order := slices.Clone(lanes)
	slices.SortStableFunc(order, func(a, b Lane) int { return cmp.Compare(a.CPUs.Len(), b.CPUs.Len()) })
	var names []string
	for _, l := range order {
		if !isAnchor(lanes, l.Name) {
			names = append(names, l.Name)
		}
	}
	return names
}

// isAnchor says whether some lane is near to the one of that name, which therefore has to stay.
func isAnchor(lanes []Lane, name string) bool {
	return slices.ContainsFunc(lanes, func(l Lane) bool { return l.Spec.Near.Lane == name })
}

// combinations calls use with all choices of k of some names, until it returns false.
func combinations(from []string, k int, use func([]string) bool) bool {
	if k == 0 {
		return use(nil)
	}
	for i := range from {
		if !combinations(from[i+1:], k-1, func(rest []string) bool { return use(append(rest, from[i])) }) {
			return false
		}
	}
	return true
}

// lift places a lane where others are taken away, and these again, the largest first.
func (r *repacking) lift(now arrangement, l lane.Lane, lifted []string) (arrangement, bool) {
	on := r.m.with(without(now.lanes, lifted...))
	var again []lane.Lane
	for _, name := range lifted {
		had, _ := find(now.lanes, name)
		again = append(again, declaration(had))
	}
	slices.SortFunc(again, largestFirst)
	var own place
	for i, next := range slices.Insert(again, 0, l) {
		p, ok, err := on.best(next, relaxed{})
		if err != nil || !ok {
			return now, false
		}
		if i == 0 {
			own = p
		}
		on.put(on.brief(p))
	}
	t := r.routeTo(now.lanes, on.lanes)
	if !t.run() {
		return now, false
	}
	made, _ := find(on.lanes, l.Metadata.Name)
	return r.with(now, t, made, own.cost), true
}

// walk moves lanes to their nodes, and places one more on its own.
func (r *repacking) walk(now arrangement, l lane.Lane, nodes map[string]int) (arrangement, bool) {
	t := route{m: r.m, why: r.why, lanes: slices.Clone(now.lanes), goals: map[string]goal{}}
	for _, has := range now.lanes {
		if n, ok := nodes[has.Name]; ok && r.m.nodesOf(has.CPUs) != 1<<n && !isAnchor(now.lanes, has.Name) {
			t.goals[has.Name] = goal{node: n, cpus: r.m.cpusOf(n)}
		}
	}
	if !t.run() {
		return now, false
	}
	on := r.m.with(t.lanes)
	p, ok := on.bestOn(l, nodes[l.Metadata.Name])
	if !ok {
		return now, false
	}
	return r.with(now, t, on.brief(p), p.cost), true
}

// with is an arrangement after more moves, with one more lane.
func (r *repacking) with(now arrangement, t route, made Lane, own Cost) arrangement {
	a := arrangement{lanes: append(t.lanes, made), moves: slices.Concat(now.moves, t.moves), own: own}
	r.m.sharePools(a.lanes)
	a.cost = r.cost(a.lanes, a.moves)
	return a
}

// brief is a place as a lane, without what is only read when all is done.
func (m *machine) brief(p place) Lane {
	l := m.lane(&p)
	l.MemoryNodes = m.memoryNodes(p)
	return l
}

// bestOn is best for a lane on one node.
func (m *machine) bestOn(l lane.Lane, n int) (place, bool) {
	ways, err := m.asks(l, relaxed{})
	if err != nil {
		return place{}, false
	}
	for _, w := range ways {
		if w.near == 0 || w.near.has(n) {
			w.near = 1 << n
			if p, ok := m.bestFor(w); ok {
				return p, true
			}
		}
	}
	return place{}, false
}

// compare orders ways: first by the wishes and nodes of the new lane, for whose sake lanes are moved.
func (a arrangement) compare(b arrangement) int {
	return cmp.Or(cmp.Compare(a.own.BrokenWishes, b.own.BrokenWishes),
		cmp.Compare(a.own.NUMACrossings, b.own.NUMACrossings), a.cost.Compare(b.cost))
}

// largestFirst orders lanes by their CPUs, then by name.
func largestFirst(a, b lane.Lane) int {
	return cmp.Or(cmp.Compare(b.Spec.CPUs.Count, a.Spec.CPUs.Count),
		strings.Compare(a.Metadata.Name, b.Metadata.Name))
}
