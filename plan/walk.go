package plan

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
)

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
