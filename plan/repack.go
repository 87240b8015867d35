package plan

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
)

// Repack is Solve that may move placed lanes: where a lane does not fit, or costs more than it would on an
// empty machine. Each move of the answer goes to CPUs that the moves before it have freed. Lanes that have
// lost CPUs are placed again. Where no moves save anything, the answer is that of Solve.
func Repack(h host.Host, placed Placement, lanes []lane.Lane) (Placement, error) {
	p, err := repack(h, placed, lanes)
	if err == nil {
		return p, nil
	}
	staying, lost, _ := withoutLost(placed, h)
	return Placement{}, explained(err, h, staying, slices.Concat(declarations(lost), lanes))
}

// withoutLost is a placement without the lanes that have lost CPUs, and these.
func withoutLost(p Placement, h host.Host) (Placement, []Lane, error) {
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

// repacking is the search for moves. Its machine is empty; lanes are put on copies of it.
type repacking struct {
	m      *machine
	before []Lane // as placed, with those that have lost CPUs
	reason string // the reason for moves
}

// arrangement is where all lanes could be, how they get there, and what that costs.
type arrangement struct {
	lanes []Lane
	moves []Move
	own   Cost // of the lane that was added last
	cost  Cost
}

// repack is Repack whose refusals are not explained yet.
func repack(h host.Host, placed Placement, lanes []lane.Lane) (Placement, error) {
	staying, lost, err := withoutLost(placed, h)
	if err != nil {
		return Placement{}, err
	}
	wanted := slices.Concat(declarations(lost), lanes)
	plain, err := solve(h, staying, wanted, Limit)
	var no *refused
	if err != nil && !errors.As(err, &no) {
		return Placement{}, err
	}
	r := repacking{m: newMachine(h, nil), before: placed.Lanes,
		reason: "makes room for " + firstFew(names(wanted))}
	if err == nil {
		countMoves(&plain, lost)
		if withoutMoves(plain.Cost).Compare(leastCost(r.m, wanted)) <= 0 {
			return plain, nil
		}
	}
	order := append(declarations(lost), slices.SortedFunc(slices.Values(lanes), largestFirst)...)
	now, ok := r.addAll(arrangement{lanes: staying.Lanes}, order)
	if !ok || err == nil && (len(now.moves) == 0 || now.cost.Compare(r.cost(plain.Lanes, plain.Moves)) >= 0) {
		return plain, err
	}
	return r.placement(now, staying.Lanes, wanted), nil
}

// placement is the answer.
func (r *repacking) placement(now arrangement, staying []Lane, wanted []lane.Lane) Placement {
	order := slices.Concat(names(declarations(staying)), names(wanted))
	slices.SortFunc(now.lanes, func(a, b Lane) int {
		return cmp.Compare(slices.Index(order, a.Name), slices.Index(order, b.Name))
	})
	for i, l := range now.lanes {
		if was, _ := find(r.before, l.Name); !reflect.DeepEqual(was, l) {
			now.lanes[i] = r.described(now.lanes, l)
		}
	}
	p := Placement{APIVersion: APIVersion, Kind: Kind, Host: identity(r.m.h), Lanes: now.lanes, Moves: now.moves,
		Cost: now.cost.minus(costOf(r.m, r.before)), Housekeeping: r.m.with(now.lanes).housekeeping()}
	// The search does not try everything. The lower bound is what each lane, placed or requested, costs alone on
	// the machine.
	bound := leastCost(r.m, declarations(now.lanes)).minus(costOf(r.m, staying))
	bound.BlockLost = min(0, p.Cost.BlockLost)
	if p.Optimal = bound.Compare(p.Cost) >= 0; !p.Optimal {
		p.Bound = &bound
	}
	return p
}

// described is a lane with its reasons, interrupts and roles, beside all others where they are in the end.
func (r *repacking) described(lanes []Lane, l Lane) Lane {
	on := r.m.with(without(lanes, l.Name))
	p, err := placeOf(on, l)
	if err != nil {
		return l
	}
	fixedCost(on, &p)
	l = describe(on, p)
	on.put(l)
	l.Reasons = append(l.Reasons, finalReasons(on, &p, len(on.lanes)-1)...)
	return l
}

// leastCost is a lower bound of what lanes cost: each alone on the machine.
func leastCost(m *machine, lanes []lane.Lane) Cost {
	var sum Cost
	for _, l := range lanes {
		if p, ok, err := bestPlace(m, l, relaxed{}); ok && err == nil && !p.improvable {
			p.cost.BlockLost = 0
			sum = sum.plus(p.cost)
		}
	}
	return sum
}

// costOf is what lanes cost where they are; a lane that has lost CPUs costs nothing.
func costOf(m *machine, lanes []Lane) Cost {
	on := m.with(lanes)
	sum := Cost{BlockLost: m.largestBlock() - on.largestBlock()}
	for i, l := range lanes {
		if !l.Owned().IsSubsetOf(m.h.Usable()) {
			continue
		}
		if p, err := placeOf(on, l); err == nil {
			fixedCost(on, &p)
			own, _, _ := besideCost(on, &p, i)
			sum = sum.plus(p.fixed).plus(own)
		}
	}
	return sum
}

// cost is what lanes and moves cost in all.
func (r *repacking) cost(lanes []Lane, moves []Move) Cost {
	sum := costOf(r.m, lanes)
	sum.LanesMoved = len(moves)
	return sum
}

// countMoves adds the moves of lanes that have lost CPUs.
func countMoves(p *Placement, lost []Lane) {
	for _, had := range lost {
		to, _ := find(p.Lanes, had.Name)
		p.Moves = append(p.Moves, move(had, to, goneReason))
		p.Cost.LanesMoved++
	}
}

// addAll adds lanes one by one. False: one does not fit, or the result breaks a rule.
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
		// A lane of the request moved to make room for a later one. It can be placed there at once, so the moves
		// are searched again, of the placed lanes only.
		t := r.routeTo(r.before, now.lanes)
		if !t.run() {
			return now, false
		}
		now.moves = t.moves
	}
	now.cost = r.cost(now.lanes, now.moves)
	return now, r.holds(now.lanes)
}

// holds says whether lanes keep all rules where they are.
func (r *repacking) holds(lanes []Lane) bool {
	on := r.m.with(lanes)
	for i, l := range lanes {
		p, err := placeOf(on, l)
		if err != nil || !fixedCost(on, &p) {
			return false
		}
		if _, _, ok := besideCost(on, &p, i); !ok {
			return false
		}
	}
	return !on.free().IsEmpty() && on.hasStock()
}

// add places one more lane: at its best place, if that costs no more than on an empty machine; else with one,
// two or three others displaced; else with each lane on one node.
func (r *repacking) add(now arrangement, l lane.Lane) (arrangement, bool) {
	ideal, ok, err := bestPlace(r.m, l, relaxed{})
	if err != nil || !ok {
		return now, false
	}
	least := arrangement{own: ideal.cost, cost: withoutMoves(costOf(r.m, now.lanes).plus(ideal.cost))}
	best, found := arrangement{}, false
	try := func(a arrangement, ok bool) bool {
		if ok && (!found || a.compare(best) < 0) {
			best, found = a, true
		}
		a = best
		a.cost = withoutMoves(a.cost)
		return found && a.compare(least) <= 0
	}
	movable := r.movable(now.lanes)
	tries := 400
	for size := 0; size <= min(3, len(movable)); size++ {
		reached := false
		combinations(movable, size, func(displaced []string) bool {
			reached = try(r.displace(now, l, displaced)) || reached
			tries--
			return tries > 0
		})
		if reached {
			return best, true
		}
	}
	type packing func([]Lane, lane.Lane) (map[string]int, bool)
	for _, nodesOf := range []packing{r.fewestMoves, r.packStaying, r.packAnew} {
		if nodes, ok := nodesOf(now.lanes, l); ok {
			if a, ok := r.moveToNodes(now, l, nodes); ok {
				try(a, ok)
				break
			}
		}
	}
	return best, found
}

// movable are the names of the lanes that no other lane has to be near to, the smallest first.
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

// isAnchor says whether some lane is near to the one of that name, which therefore stays.
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

// displace places a lane on a machine without some others, and then these, the largest first.
func (r *repacking) displace(now arrangement, l lane.Lane, others []string) (arrangement, bool) {
	on := r.m.with(without(now.lanes, others...))
	var displaced []lane.Lane
	for _, name := range others {
		had, _ := find(now.lanes, name)
		displaced = append(displaced, had.declaration())
	}
	slices.SortFunc(displaced, largestFirst)
	var own place
	for i, next := range slices.Insert(displaced, 0, l) {
		p, ok, err := bestPlace(on, next, relaxed{})
		if err != nil || !ok {
			return now, false
		}
		if i == 0 {
			own = p
		}
		on.put(bareLane(on, p))
	}
	t := r.routeTo(now.lanes, on.lanes)
	if !t.run() {
		return now, false
	}
	made, _ := find(on.lanes, l.Metadata.Name)
	return r.with(now, t, made, own.cost), true
}

// moveToNodes moves lanes to nodes, and places one more on its node.
func (r *repacking) moveToNodes(now arrangement, l lane.Lane, nodes map[string]int) (arrangement, bool) {
	t := route{m: r.m, reason: r.reason, lanes: slices.Clone(now.lanes), goals: map[string]goal{}}
	for _, has := range now.lanes {
		if n, ok := nodes[has.Name]; ok && r.m.nodesOf(has.CPUs) != 1<<n && !isAnchor(now.lanes, has.Name) {
			t.goals[has.Name] = goal{node: n, cpus: r.m.cpusOf(n)}
		}
	}
	if !t.run() {
		return now, false
	}
	on := r.m.with(t.lanes)
	p, ok := bestOn(on, l, nodes[l.Metadata.Name])
	if !ok {
		return now, false
	}
	return r.with(now, t, bareLane(on, p), p.cost), true
}

// with is an arrangement after more moves and with one more lane.
func (r *repacking) with(now arrangement, t route, made Lane, own Cost) arrangement {
	a := arrangement{lanes: append(t.lanes, made), moves: slices.Concat(now.moves, t.moves), own: own}
	r.m.sharePools(a.lanes)
	a.cost = r.cost(a.lanes, a.moves)
	return a
}

// compare orders arrangements: first by the wishes and nodes of the new lane, for which lanes are moved.
func (a arrangement) compare(b arrangement) int {
	return cmp.Or(cmp.Compare(a.own.BrokenWishes, b.own.BrokenWishes),
		cmp.Compare(a.own.NUMACrossings, b.own.NUMACrossings), a.cost.Compare(b.cost))
}

// largestFirst orders lanes by their CPUs, then by name.
func largestFirst(a, b lane.Lane) int {
	return cmp.Or(cmp.Compare(b.Spec.CPUs.Count, a.Spec.CPUs.Count),
		strings.Compare(a.Metadata.Name, b.Metadata.Name))
}

// without are the lanes except some.
func without(lanes []Lane, names ...string) []Lane {
	return slices.DeleteFunc(slices.Clone(lanes), func(l Lane) bool { return slices.Contains(names, l.Name) })
}

// withoutMoves is a cost without its last two fields, which depend on how lanes were moved and what is left
// free.
func withoutMoves(c Cost) Cost {
	c.LanesMoved, c.BlockLost = 0, 0
	return c
}
