package plan

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"

	"isolane.dev/isolane/lane"
)

// wishes are the preferred wishes that may be let go for one lane: its own, and those of others to be apart from it.
type wishes struct {
	base    relaxed
	names   []string // of its own wishes, then of other lanes
	weights []int
	own     int // how many are its own
	tries   int // sets that may still be looked at, before all are let go at once
}

func newWishes(s lane.Spec, base relaxed, others []Lane) *wishes {
	w := &wishes{base: base, tries: 512}
	for _, name := range slices.Sorted(maps.Keys(s.Preferred)) {
		if !base.drops(name) {
			w.names, w.weights = append(w.names, name), append(w.weights, s.Preferred[name])
		}
	}
	w.own = len(w.names)
	for _, o := range others {
		if len(w.names) < 63 {
			w.names, w.weights = append(w.names, o.Name), append(w.weights, o.Spec.Preferred["apart"])
		}
	}
	return w
}

// relaxed is the search without a set of the wishes.
func (w *wishes) relaxed(set uint64, lost []string) relaxed {
	r := w.base
	r.wishes, r.others = slices.Clone(r.wishes), slices.Concat(r.others, lost)
	for i, name := range w.names {
		switch {
		case set&(1<<i) == 0:
		case i < w.own:
			r.wishes = append(r.wishes, name)
		default:
			r.others = append(r.others, name)
		}
	}
	return r
}

// let is a set of wishes to let go: the lightest of those that end with its last one came before.
type let struct {
	set    uint64
	weight int
	last   int // place of its last wish in the order of weights
}

// lets is a queue, the lightest set first.
type lets []let

func (q lets) Len() int      { return len(q) }
func (q lets) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q lets) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].weight, q[j].weight), cmp.Compare(q[i].set, q[j].set)) < 0
}
func (q *lets) Push(x any) { *q = append(*q, x.(let)) }
func (q *lets) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// lightest calls use with all sets of the wishes, none first and then the lightest, until use returns false.
func (w *wishes) lightest(use func(set uint64, weight int) bool) {
	if !use(0, 0) || len(w.names) == 0 {
		return
	}
	order := make([]int, len(w.names))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(w.weights[a], w.weights[b]) })
	queue := &lets{{1 << order[0], w.weights[order[0]], 0}}
	for queue.Len() > 0 {
		l := heap.Pop(queue).(let)
		w.tries--
		if !use(l.set, l.weight) {
			return
		}
		if next := l.last + 1; next < len(order) {
			heavier, last := order[next], order[l.last]
			heap.Push(queue, let{l.set | 1<<heavier, l.weight + w.weights[heavier], next})
			heap.Push(queue, let{l.set&^(1<<last) | 1<<heavier, l.weight - w.weights[last] + w.weights[heavier], next})
		}
	}
}
