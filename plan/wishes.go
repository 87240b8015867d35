package plan

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/lane"
)

// wishes are the preferred wishes that may be let go for one lane: its own, and those of others to be apart
// from it.
type wishes struct {
	base    relaxed
	own     []string
	others  []Lane
	weights []int // of own, then of others
}

// newWishes are those that hold without the lane: what is broken already costs no more with it.
func (m *machine) newWishes(l lane.Lane, base relaxed) wishes {
	w := wishes{base: base}
	for _, name := range sortedKeys(l.Spec.Preferred) {
		if !base.drops(name) {
			w.own, w.weights = append(w.own, name), append(w.weights, l.Spec.Preferred[name])
		}
	}
	holds, broken := m.preferredAparts(l.Metadata.Name)
	w.base.others = slices.Concat(base.others, broken)
	for _, o := range holds {
		switch {
		case base.alone:
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

// without is the search without a set of the wishes.
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

// lightest are the sets of wishes by their weights, none first; false: not all of them, but 512 and the one
// of all.
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
