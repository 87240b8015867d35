package plan

import (
	"cmp"
	"container/heap"
	"slices"

	"isolane.dev/isolane/lane"
)

// step moves a lane, by its place in the arrangement, to a node.
type step struct{ lane, node int }

// state is how many CPUs are free on each node, and what was moved to come to it.
type state struct {
	room  []int
	at    []int // node of each lane; -1 of one that is where it was in the beginning
	steps []step
	short int // CPUs that the best node still lacks
}

// states is a queue, the one with the fewest moves and the least that is missing first.
type states []state

func (q states) Len() int      { return len(q) }
func (q states) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *states) Push(x any)   { *q = append(*q, x.(state)) }
func (q *states) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
func (q states) Less(i, j int) bool {
	a, b := q[i], q[j]
	return cmp.Or(cmp.Compare(2*len(a.steps)+a.short, 2*len(b.steps)+b.short), cmp.Compare(a.short, b.short),
		slices.Compare(a.at, b.at)) < 0
}

// shuffle looks for moves of whole lanes between nodes, each to a node that has room by then, after
// which one node has room for the new lane. It counts CPUs only; whether cores and memory fit too is
// seen when the moves are planned.
func (a *arrangement) shuffle(l lane.Lane) ([]step, int, bool) {
	const most = 4000 // states to look at
	size := l.Spec.CPUs.Count
	if l.Spec.CPUs.SMT == lane.Isolate {
		size *= len(a.m.cores[len(a.m.cores)-1].cpus)
	}
	m := a.m.with(a.lanes)
	start := state{room: make([]int, len(m.nodes)), at: make([]int, len(a.lanes))}
	for id, c := range m.at {
		if c >= 0 && c != m.boot && m.owner[id] == free {
			start.room[m.nodeOf(id)]++
		}
	}
	on := make([][]int, len(a.lanes)) // CPUs by node, in the beginning
	for i, has := range a.lanes {
		start.at[i] = -1
		on[i] = make([]int, len(m.nodes))
		for id := range has.Owned().All() {
			if n := m.nodeOf(id); n >= 0 {
				on[i][n]++
			}
		}
	}
	var wanted []int // nodes on which the new lane may be
	for n := range m.nodes {
		if m.canBeOn(l, n) {
			wanted = append(wanted, n)
		}
	}
	short := func(s state) int {
		least := size
		for _, n := range wanted {
			least = min(least, max(0, size-s.room[n]))
		}
		return least
	}
	start.short = short(start)
	queue, seen := &states{start}, map[string]bool{}
	for looked := 0; queue.Len() > 0 && looked < most; looked++ {
		s := heap.Pop(queue).(state)
		if s.short == 0 {
			node := wanted[slices.IndexFunc(wanted, func(n int) bool { return s.room[n] >= size })]
			return s.steps, node, true
		}
		for i, has := range a.lanes {
			need := has.Owned().Len()
			if a.isFixed(has.Name) || has.Spec.CPUs.Share > 1 {
				continue
			}
			for n := range s.room {
				frees := 0
				if s.at[i] < 0 {
					frees = on[i][n]
				}
				if s.at[i] == n || s.room[n]+frees < need || frees == need || !m.canBeOn(asked(has), n) {
					continue
				}
				next := state{room: slices.Clone(s.room), at: slices.Clone(s.at), steps: append(slices.Clone(s.steps), step{i, n})}
				if s.at[i] < 0 {
					for from, cpus := range on[i] {
						next.room[from] += cpus
					}
				} else {
					next.room[s.at[i]] += need
				}
				next.room[n] -= need
				next.at[i] = n
				next.short = short(next)
				if key := key(next.at); !seen[key] {
					seen[key] = true
					heap.Push(queue, next)
				}
			}
		}
	}
	return nil, 0, false
}

func key(at []int) string {
	b := make([]byte, len(at))
	for i, n := range at {
		b[i] = byte(n + 1)
	}
	return string(b)
}
