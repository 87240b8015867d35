package plan

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/lane"
)

// room is a way to make room: the lanes after the moves, and what they and the new lane cost more than
// now.
type room struct {
	lanes []Lane
	moves []Move
	own   Cost // of the new lane
	cost  Cost // of all
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
		if had := a.lane(name); had.Owned() == to.Owned() && had.MemoryNodes == to.MemoryNodes {
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

// compare orders ways: first by the wishes and nodes of the new lane, for whose sake it is done.
func (p room) compare(q room) int {
	return cmp.Or(cmp.Compare(p.own.BrokenWishes, q.own.BrokenWishes), cmp.Compare(p.own.NUMACrossings, q.own.NUMACrossings),
		p.cost.Compare(q.cost))
}
