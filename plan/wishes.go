package plan

import (
	"cmp"
	"maps"
	"slices"

	"isolane.dev/isolane/lane"
)

// wishes are the preferred wishes that may be broken for one lane: its own, and those of placed lanes to be
// apart from it.
type wishes struct {
	base    relaxed
	own     []string
	others  []Lane
	weights []int // of own, then of others
}

// newWishes leaves out wishes of placed lanes that are broken already: they cost nothing more.
func newWishes(m *machine, l lane.Lane, base relaxed) wishes {
	w := wishes{base: base}
	for _, name := range slices.Sorted(maps.Keys(l.Spec.Preferred)) {
		if !base.drops(name) {
			w.own, w.weights = append(w.own, name), append(w.weights, l.Spec.Preferred[name])
		}
	}
	holds, broken := m.preferredAparts(l.Metadata.Name)
	w.base.others = slices.Concat(base.others, broken)
	for _, o := range holds {
		switch {
		case base.ignoreOthers:
			w.base.others = append(w.base.others, o.Name)
		case len(w.weights) < 63:
			w.others, w.weights = append(w.others, o), append(w.weights, o.Spec.Preferred["apart"])
		}
	}
	return w
}

// weight is that of a set of wishes.
func (w *wishes) weight(set nodeSet) int {
	sum := 0
	for i := range set.all() {
		sum += w.weights[i]
	}
	return sum
}

// without is a search without a set of the wishes.
func (w *wishes) without(set nodeSet) relaxed {
	r := w.base
	r.wishes, r.others = slices.Clone(r.wishes), slices.Clone(r.others)
	for i := range set.all() {
		if i < len(w.own) {
			r.wishes = append(r.wishes, w.own[i])
		} else {
			r.others = append(r.others, w.others[i-len(w.own)].Name)
		}
	}
	return r
}

// lightest are the sets of wishes to break, by weight, the empty one first. False: there are more than 512,
// and of the larger ones only that of all wishes is here.
func (w *wishes) lightest() ([]nodeSet, bool) {
	const most = 512
	var sets []nodeSet
	n := len(w.weights)
	for k := 0; k <= n && len(sets) <= most; k++ {
		subsets(n, k, func(set nodeSet) { sets = append(sets, set) })
	}
	all := len(sets) <= most
	if !all {
		sets = append(sets[:most], 1<<n-1)
	}
	slices.SortStableFunc(sets, func(a, b nodeSet) int { return cmp.Compare(w.weight(a), w.weight(b)) })
	return sets, all
}
