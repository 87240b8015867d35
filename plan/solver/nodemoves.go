package solver

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/search"
	"isolane.dev/isolane/plan/stock"
)

// nodeState is a state of the search for moves between nodes.
type nodeState struct {
	at    []byte // by lane: its node plus one; 0: not moved
	room  []int  // by node: free CPUs
	moves int
}

// fewestMoves searches, best first, for the fewest moves of whole lanes between nodes that give a node room
// for a new lane. It returns the nodes of the lanes that move, and of the new one. It counts only CPUs;
// whether cores and memory fit shows when the lanes are moved.
func (r *repacking) fewestMoves(lanes []plan.Lane, l lane.Lane) (map[string]int, bool) {
	const most = 4000 // states
	size := l.Spec.CPUs.Count
	if l.Spec.CPUs.SMT == lane.Isolate {
		size *= len(r.m.Cores[len(r.m.Cores)-1].CPUs)
	}
	free := r.m.With(lanes).Free().Difference(r.m.BootCore())
	start := nodeState{at: make([]byte, len(lanes)), room: r.byNode(free)}
	seen := map[string]bool{}
	queue, tried := [][]nodeState{}, 0 // by twice the moves plus the missing CPUs
	push := func(s nodeState) int {
		node, short := r.roomiest(l, s.room)
		if short = max(0, size-short); node < 0 || seen[string(s.at)] {
			return len(queue)
		}
		seen[string(s.at)] = true
		least := 2*s.moves + short
		for len(queue) <= least {
			queue = append(queue, nil)
		}
		queue[least] = append(queue[least], s)
		return least
	}
	for next := push(start); next < len(queue) && tried < most; {
		if len(queue[next]) == 0 {
			next++
			continue
		}
		s := queue[next][0]
		queue[next], tried = queue[next][1:], tried+1
		if node, room := r.roomiest(l, s.room); room >= size {
			nodes := map[string]int{l.Metadata.Name: node}
			for i, at := range s.at {
				if at > 0 {
					nodes[lanes[i].Name] = int(at) - 1
				}
			}
			return nodes, true
		}
		for i := range lanes {
			for n := range s.room {
				if to, ok := r.shift(lanes, s, i, n); ok {
					next = min(next, push(to))
				}
			}
		}
	}
	return nil, false
}

// shift moves a lane to a node. It returns false if there is no room or the lane cannot move.
func (r *repacking) shift(lanes []plan.Lane, s nodeState, i, n int) (nodeState, bool) {
	has, need, left := lanes[i], lanes[i].Owned().Len(), make([]int, len(s.room))
	if s.at[i] == 0 {
		left = r.byNode(has.Owned())
	} else {
		left[s.at[i]-1] = need
	}
	if left[n] == need || s.room[n]+left[n] < need || has.Spec.CPUs.Share > 1 || isAnchor(lanes, has.Name) ||
		!search.CanBeOn(r.m, has.Declaration(), n) {
		return s, false
	}
	s.at, s.room, s.moves = slices.Clone(s.at), slices.Clone(s.room), s.moves+1
	for from := range left {
		s.room[from] += left[from]
	}
	s.room[n] -= need
	s.at[i] = byte(n + 1)
	return s, true
}

// roomiest returns the node with the most free CPUs, of those that a lane may be on; -1 for none.
func (r *repacking) roomiest(l lane.Lane, room []int) (node, most int) {
	node = -1
	for n := range room {
		if (node < 0 || room[n] > most) && search.CanBeOn(r.m, l, n) {
			node, most = n, room[n]
		}
	}
	return node, most
}

// byNode counts CPUs by node.
func (r *repacking) byNode(cpus cpuset.Set) []int {
	count := make([]int, len(r.m.Nodes))
	for id := range cpus.All() {
		if n := r.m.NodeOf(id); n >= 0 {
			count[n]++
		}
	}
	return count
}

// packStaying gives each lane a node by first-fit-decreasing: its present node if that has room, else the
// first that has.
func (r *repacking) packStaying(lanes []plan.Lane, l lane.Lane) (map[string]int, bool) {
	return r.pack(lanes, l, true)
}

// packAnew gives each lane the first node that has room.
func (r *repacking) packAnew(lanes []plan.Lane, l lane.Lane) (map[string]int, bool) {
	return r.pack(lanes, l, false)
}

func (r *repacking) pack(lanes []plan.Lane, l lane.Lane, stay bool) (map[string]int, bool) {
	room := r.byNode(r.m.Free().Difference(r.m.BootCore()))
	items := append([]plan.Lane{{Name: l.Metadata.Name, Spec: l.Spec}}, lanes...)
	size := func(l plan.Lane) int { return max(l.Spec.CPUs.Count, l.Owned().Len()) }
	slices.SortStableFunc(items, func(x, y plan.Lane) int { return cmp.Compare(size(y), size(x)) })
	nodes := map[string]int{}
	for _, it := range items {
		order := slices.Collect(stock.NodeSet(1<<len(room) - 1).All())
		if at := r.m.NodesOf(it.CPUs); stay && at.Len() == 1 {
			order = slices.Insert(order, 0, at.First())
		}
		i := slices.IndexFunc(order, func(n int) bool {
			return room[n] >= size(it) && search.CanBeOn(r.m, it.Declaration(), n)
		})
		if i < 0 {
			return nil, false
		}
		nodes[it.Name] = order[i]
		room[order[i]] -= size(it)
	}
	return nodes, true
}
