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
	return !on.free().IsEmpty() && on.hasStock()
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
