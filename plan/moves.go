package plan

import (
	"slices"

	"isolane.dev/isolane/cpuset"
)

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
		if to := a.lane(l.Name); to.Owned() != l.Owned() || to.MemoryNodes != l.MemoryNodes {
			targets[l.Name] = to
		}
	}
	before := arrangement{m: a.m, lanes: placed}
	_, moves, ok := before.sequence(targets, "new lanes")
	a.moves = moves
	return ok
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
