package search

import (
	"cmp"
	"maps"
	"slices"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/stock"
)

// wishes are the preferred wishes that may be broken for one lane: its own, and those of placed lanes to be
// apart from it.
type wishes struct {
	base    Relaxed
	own     []string
	others  []plan.Lane
	weights []int // of own, then of others
}

// newWishes leaves out wishes of placed lanes that are broken already, because they cost nothing more.
func newWishes(m *stock.Machine, l lane.Lane, base Relaxed) wishes {
	w := wishes{base: base}
	for _, name := range slices.Sorted(maps.Keys(l.Spec.Preferred)) {
		if !base.drops(name) {
			w.own, w.weights = append(w.own, name), append(w.weights, l.Spec.Preferred[name])
		}
	}
	holds, broken := m.PreferredAparts(l.Metadata.Name)
	w.base.Others = slices.Concat(base.Others, broken)
	for _, o := range holds {
		switch {
		case base.IgnoreOthers:
			w.base.Others = append(w.base.Others, o.Name)
		case len(w.weights) < 63:
			w.others, w.weights = append(w.others, o), append(w.weights, o.Spec.Preferred["apart"])
		}
	}
	return w
}

// weight returns the total weight of a set of wishes.
func (w *wishes) weight(set stock.NodeSet) int {
	sum := 0
	for i := range set.All() {
		sum += w.weights[i]
	}
	return sum
}

// without returns the limits of a search that ignores a set of wishes.
func (w *wishes) without(set stock.NodeSet) Relaxed {
	r := w.base
	r.Wishes, r.Others = slices.Clone(r.Wishes), slices.Clone(r.Others)
	for i := range set.All() {
		if i < len(w.own) {
			r.Wishes = append(r.Wishes, w.own[i])
		} else {
			r.Others = append(r.Others, w.others[i-len(w.own)].Name)
		}
	}
	return r
}

// lightest returns the sets of wishes to break, by weight, the empty one first. It returns false if there are
// more than 512: then of the larger sets only the one of all wishes is included.
func (w *wishes) lightest() ([]stock.NodeSet, bool) {
	const most = 512
	var sets []stock.NodeSet
	n := len(w.weights)
	for k := 0; k <= n && len(sets) <= most; k++ {
		stock.Subsets(n, k, func(set stock.NodeSet) { sets = append(sets, set) })
	}
	all := len(sets) <= most
	if !all {
		sets = append(sets[:most], 1<<n-1)
	}
	slices.SortStableFunc(sets, func(a, b stock.NodeSet) int { return cmp.Compare(w.weight(a), w.weight(b)) })
	return sets, all
}
