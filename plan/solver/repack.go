package solver

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/search"
	"isolane.dev/isolane/plan/stock"
)

// Repack is Solve that may move placed lanes, if a lane does not fit or costs more than it would on an empty
// machine. Each move goes to CPUs that the moves before it have freed. Lanes that have lost CPUs are placed
// again. If no move saves anything, the answer is that of Solve.
func Repack(h host.Host, placed plan.Placement, lanes []lane.Lane) (plan.Placement, error) {
	p, err := repack(h, placed, lanes)
	if err == nil {
		return p, nil
	}
	staying, lost, _ := withoutLost(placed, h)
	return plan.Placement{}, explained(err, h, staying, slices.Concat(declarations(lost), lanes))
}

// withoutLost returns a placement without the lanes that have lost CPUs, and those lanes.
func withoutLost(p plan.Placement, h host.Host) (plan.Placement, []plan.Lane, error) {
	err := p.Check(h)
	gone, is := errors.AsType[*plan.Mismatch](err)
	if !is || gone.Lost == nil {
		return p, nil, err
	}
	var lost []plan.Lane
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
	m      *stock.Machine
	before []plan.Lane // as placed, with those that have lost CPUs
	reason string      // for moves
}

// arrangement is where all lanes could be, how they get there, and what that costs.
type arrangement struct {
	lanes []plan.Lane
	moves []plan.Move
	own   plan.Cost // of the lane that was added last
	cost  plan.Cost
}

// repack is Repack without explanations of refusals.
func repack(h host.Host, placed plan.Placement, lanes []lane.Lane) (plan.Placement, error) {
	staying, lost, err := withoutLost(placed, h)
	if err != nil {
		return plan.Placement{}, err
	}
	wanted := slices.Concat(declarations(lost), lanes)
	plain, err := solve(h, staying, wanted)
	var no *refused
	if err != nil && !errors.As(err, &no) {
		return plan.Placement{}, err
	}
	r := repacking{m: stock.New(h, nil), before: placed.Lanes,
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

// placement returns the answer.
func (r *repacking) placement(now arrangement, staying []plan.Lane, wanted []lane.Lane) plan.Placement {
	order := slices.Concat(names(declarations(staying)), names(wanted))
	slices.SortFunc(now.lanes, func(a, b plan.Lane) int {
		return cmp.Compare(slices.Index(order, a.Name), slices.Index(order, b.Name))
	})
	for i, l := range now.lanes {
		if was, _ := plan.Find(r.before, l.Name); !reflect.DeepEqual(was, l) {
			now.lanes[i] = r.described(now.lanes, l)
		}
	}
	p := plan.Placement{APIVersion: plan.APIVersion, Kind: plan.Kind, Host: plan.MachineOf(r.m.Host),
		Lanes: now.lanes, Moves: now.moves, Cost: now.cost.Minus(costOf(r.m, r.before)),
		Housekeeping: r.m.With(now.lanes).Housekeeping()}
	// The search does not try everything. The lower bound adds what each lane, placed or requested, costs alone
	// on the machine.
	bound := leastCost(r.m, declarations(now.lanes)).Minus(costOf(r.m, staying))
	bound.BlockLost = min(0, p.Cost.BlockLost)
	if p.Optimal = bound.Compare(p.Cost) >= 0; !p.Optimal {
		p.Bound = &bound
	}
	return p
}

// described returns a lane with its reasons, interrupts and roles, beside all lanes at their final places.
func (r *repacking) described(lanes []plan.Lane, l plan.Lane) plan.Lane {
	on := r.m.With(without(lanes, l.Name))
	p, err := search.PlaceOf(on, l)
	if err != nil {
		return l
	}
	search.FixedCost(on, &p)
	l = search.Describe(on, p)
	on.Put(l)
	l.Reasons = append(l.Reasons, search.FinalReasons(on, &p, len(on.Lanes)-1)...)
	return l
}

// leastCost returns a lower bound of what lanes cost: each alone on the machine.
func leastCost(m *stock.Machine, lanes []lane.Lane) plan.Cost {
	var sum plan.Cost
	for _, l := range lanes {
		if p, ok, err := search.Best(m, l, search.Relaxed{}); ok && err == nil && !p.Improvable {
			p.Cost.BlockLost = 0
			sum = sum.Plus(p.Cost)
		}
	}
	return sum
}

// costOf returns what lanes cost where they are. A lane that has lost CPUs costs nothing.
func costOf(m *stock.Machine, lanes []plan.Lane) plan.Cost {
	on := m.With(lanes)
	sum := plan.Cost{BlockLost: m.LargestBlock() - on.LargestBlock()}
	for i, l := range lanes {
		if !l.Owned().IsSubsetOf(m.Host.Usable()) {
			continue
		}
		if p, err := search.PlaceOf(on, l); err == nil {
			search.FixedCost(on, &p)
			own, _, _ := search.BesideCost(on, &p, i)
			sum = sum.Plus(p.Fixed).Plus(own)
		}
	}
	return sum
}

// cost returns the total cost of lanes and moves.
func (r *repacking) cost(lanes []plan.Lane, moves []plan.Move) plan.Cost {
	sum := costOf(r.m, lanes)
	sum.LanesMoved = len(moves)
	return sum
}

// countMoves adds the moves of lanes that have lost CPUs.
func countMoves(p *plan.Placement, lost []plan.Lane) {
	for _, had := range lost {
		to, _ := plan.Find(p.Lanes, had.Name)
		p.Moves = append(p.Moves, move(had, to, goneReason))
		p.Cost.LanesMoved++
	}
}

// addAll adds lanes one by one. It returns false if one does not fit, or the result breaks a rule.
func (r *repacking) addAll(now arrangement, wanted []lane.Lane) (arrangement, bool) {
	for _, l := range wanted {
		next, ok := r.add(now, l)
		if !ok {
			return now, false
		}
		if had, ok := plan.Find(r.before, l.Metadata.Name); ok {
			made, _ := plan.Find(next.lanes, had.Name)
			next.moves = append(next.moves, move(had, made, goneReason))
		}
		now = next
	}
	if slices.ContainsFunc(now.moves, func(m plan.Move) bool {
		_, ok := plan.Find(r.before, m.Lane)
		return !ok
	}) {
		// A lane of the request has moved to make room for a later one. It can be placed there at once, so the
		// moves are searched again, for the placed lanes only.
		t := r.routeTo(r.before, now.lanes)
		if !t.run() {
			return now, false
		}
		now.moves = t.moves
	}
	now.cost = r.cost(now.lanes, now.moves)
	return now, r.holds(now.lanes)
}

// holds reports whether lanes keep all rules where they are.
func (r *repacking) holds(lanes []plan.Lane) bool {
	on := r.m.With(lanes)
	for i, l := range lanes {
		p, err := search.PlaceOf(on, l)
		if err != nil || !search.FixedCost(on, &p) {
			return false
		}
		if _, _, ok := search.BesideCost(on, &p, i); !ok {
			return false
		}
	}
	return !on.Free().IsEmpty() && on.HasStock()
}

// add places one more lane. It tries the lane's best place, if that costs no more than on an empty machine;
// then displacing one, two or three others; then putting each lane on one node.
func (r *repacking) add(now arrangement, l lane.Lane) (arrangement, bool) {
	ideal, ok, err := search.Best(r.m, l, search.Relaxed{})
	if err != nil || !ok {
		return now, false
	}
	least := arrangement{own: ideal.Cost, cost: withoutMoves(costOf(r.m, now.lanes).Plus(ideal.Cost))}
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
	type packing func([]plan.Lane, lane.Lane) (map[string]int, bool)
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

// movable returns the names of the lanes that no other lane has to be near to, the smallest first.
func (r *repacking) movable(lanes []plan.Lane) []string {
	order := slices.Clone(lanes)
	slices.SortStableFunc(order, func(a, b plan.Lane) int { return cmp.Compare(a.CPUs.Len(), b.CPUs.Len()) })
	var names []string
	for _, l := range order {
		if !isAnchor(lanes, l.Name) {
			names = append(names, l.Name)
		}
	}
	return names
}

// isAnchor reports whether some lane is near to the one of that name, which therefore stays.
func isAnchor(lanes []plan.Lane, name string) bool {
	return slices.ContainsFunc(lanes, func(l plan.Lane) bool { return l.Spec.Near.Lane == name })
}

// combinations calls use with all choices of k names, until it returns false.
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
	on := r.m.With(without(now.lanes, others...))
	var displaced []lane.Lane
	for _, name := range others {
		had, _ := plan.Find(now.lanes, name)
		displaced = append(displaced, had.Declaration())
	}
	slices.SortFunc(displaced, largestFirst)
	var own search.Place
	for i, next := range slices.Insert(displaced, 0, l) {
		p, ok, err := search.Best(on, next, search.Relaxed{})
		if err != nil || !ok {
			return now, false
		}
		if i == 0 {
			own = p
		}
		on.Put(search.LaneAt(on, p))
	}
	t := r.routeTo(now.lanes, on.Lanes)
	if !t.run() {
		return now, false
	}
	made, _ := plan.Find(on.Lanes, l.Metadata.Name)
	return r.with(now, t, made, own.Cost), true
}

// moveToNodes moves lanes to nodes, and places one more on its node.
func (r *repacking) moveToNodes(now arrangement, l lane.Lane, nodes map[string]int) (arrangement, bool) {
	t := route{m: r.m, reason: r.reason, lanes: slices.Clone(now.lanes), goals: map[string]goal{}}
	for _, has := range now.lanes {
		if n, ok := nodes[has.Name]; ok && r.m.NodesOf(has.CPUs) != 1<<n && !isAnchor(now.lanes, has.Name) {
			t.goals[has.Name] = goal{node: n, cpus: r.m.CPUsOf(n)}
		}
	}
	if !t.run() {
		return now, false
	}
	on := r.m.With(t.lanes)
	p, ok := search.BestOn(on, l, nodes[l.Metadata.Name])
	if !ok {
		return now, false
	}
	return r.with(now, t, search.LaneAt(on, p), p.Cost), true
}

// with returns an arrangement after more moves and with one more lane.
func (r *repacking) with(now arrangement, t route, made plan.Lane, own plan.Cost) arrangement {
	a := arrangement{lanes: append(t.lanes, made), moves: slices.Concat(now.moves, t.moves), own: own}
	r.m.SharePools(a.lanes)
	a.cost = r.cost(a.lanes, a.moves)
	return a
}

// compare orders arrangements. The wishes and nodes of the new lane come first, because lanes are moved for
// them.
func (a arrangement) compare(b arrangement) int {
	return cmp.Or(cmp.Compare(a.own.BrokenWishes, b.own.BrokenWishes),
		cmp.Compare(a.own.NUMACrossings, b.own.NUMACrossings), a.cost.Compare(b.cost))
}

// largestFirst orders lanes by their CPUs, then by name.
func largestFirst(a, b lane.Lane) int {
	return cmp.Or(cmp.Compare(b.Spec.CPUs.Count, a.Spec.CPUs.Count),
		strings.Compare(a.Metadata.Name, b.Metadata.Name))
}

// without returns the lanes except those named.
func without(lanes []plan.Lane, names ...string) []plan.Lane {
	return slices.DeleteFunc(slices.Clone(lanes), func(l plan.Lane) bool {
		return slices.Contains(names, l.Name)
	})
}

// withoutMoves returns a cost without its last two fields, which depend on the moves and on what is left
// free.
func withoutMoves(c plan.Cost) plan.Cost {
	c.LanesMoved, c.BlockLost = 0, 0
	return c
}
