package rules

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
)

// order holds the statistics of one figure, or the ends of its range and itself. Where one is there twice,
// with different values, they are of several measurements.
func (t *table) order() []hit {
	var hits []hit
	ends := []string{"first", "lower", "last", "upper"}
	use := func(w *row) bool {
		return w.unit.dim > text && w.qualifier != "limit" && w.stat.kind != "mean" && w.stat.kind != "deviation"
	}
	for _, rows := range t.groups(use, func(w *row) string {
		stem := drop(wordsOf(w.stem), ends)
		return fmt.Sprint(w.conditions, "\x00", stem, w.unit.dim, w.stat.kind == "",
			w.unit.dim == id || !w.has(ends...))
	}) {
		slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(a.rank(), b.rank()) })
		repeated := false
		for k := 1; k < len(rows); k++ {
			repeated = repeated || rows[k-1].rank() == rows[k].rank() && t.base(rows[k-1]) != t.base(rows[k])
		}
		for k := 1; k < len(rows) && !repeated; k++ {
			if a, b := rows[k-1], rows[k]; t.base(b).below(t.base(a)) {
				hits = append(hits, hit{rows: []*row{a, b}, sum: []string{fmt.Sprintf("%s %s > %s %s", a.metric,
					t.printed(a), b.metric, t.printed(b))},
					so: "One of the two is wrong, or has the other's name or unit."})
			}
		}
	}
	return hits
}

// repeats finds several values of one figure. They may be repeated measurements.
func (t *table) repeats() []hit {
	var hits []hit
	use := func(w *row) bool { return w.unit.dim > other && !w.isBound() && w.qualifier != "limit" }
	for _, rows := range t.groups(use, func(w *row) string {
		return fmt.Sprint(byFigure(w), w.unit.dim)
	}) {
		least, most := t.extremes(rows)
		if !t.base(least).below(t.base(most)) {
			continue
		}
		sum := quantity.Count(len(rows), "value") + ", from " + t.printed(least) + " to " + t.printed(most)
		if low := t.base(least).mid; low > 0 {
			sum += ": " + t.printed(most) + " ÷ " + t.printed(least) + " = " + number(t.base(most).mid/low)
		}
		hits = append(hits, hit{rows: rows, sum: []string{sum},
			so: "They are repeated measurements, or differ in what the table does not say, or one is wrong."})
	}
	return hits
}

// extremes are the least and the largest figure.
func (t *table) extremes(rows []*row) (least, most *row) {
	byBase := func(a, b *row) int { return cmp.Compare(t.base(a).mid, t.base(b).mid) }
	return slices.MinFunc(rows, byBase), slices.MaxFunc(rows, byBase)
}

// derived holds "throughput per cpu" against the throughput and the CPUs, and "throughput rel quiet", in
// percent, against the throughput here and where it is 100%.
func (t *table) derived() []hit {
	const f formula = "a ÷ b"
	var hits []hit
	use := func(w *row) bool {
		return w.measured() && (w.after("rel") != "" && w.unit.dim == share || w.after("per") != "")
	}
	for _, rows := range t.groups(use, byMetric) {
		whole := t.whole(rows)
		for _, w := range rows {
			a, b := t.total(w), whole
			if w.after("per") != "" {
				b = t.number(w, w.after("per"))
			}
			same := keep(t.of[w], func(o *row) bool { return slices.Equal(o.words, w.words) })
			if a == nil || b == nil || t.only(same) == nil || w.after("rel") != "" && a.unit.dim != b.unit.dim {
				continue
			}
			v := f.value(func(name string) span { return t.base([]*row{a, b}[strings.Index("ab", name)]) })
			if !v.finite() || v.meets(t.base(w)) {
				continue
			}
			h := hit{rows: []*row{a, b, w}, so: "One of the three is wrong."}
			h.sum = []string{t.printed(a) + " ÷ " + t.printed(b) + " = " + t.like(w, v.mid) +
				", printed " + t.printed(w)}
			hits = append(hits, h)
		}
	}
	return hits
}

// whole is the figure that is 100% in these rows.
func (t *table) whole(rows []*row) *row {
	for _, w := range rows {
		if total := t.total(w); math.Abs(t.base(w).mid-1) < 1e-9 && total != nil {
			return total
		}
	}
	return nil
}

// total is the figure of the same configuration that one per cpu, or rel baseline, is a part of.
func (t *table) total(w *row) *row {
	k := max(lastOf(w.words, "rel"), lastOf(w.words, "per"))
	words := w.words[:k]
	if w.words[k] == "per" {
		words = slices.Concat(words, w.words[k+2:])
	}
	return t.only(slices.DeleteFunc(slices.Clone(t.of[w]), func(o *row) bool {
		return o == w || !slices.Equal(drop(o.words, []string{"total"}), words) || !o.measured() ||
			o.unit.dim != w.unit.dim && w.words[k] == "per" || o.unit.dim <= other || o.unit.dim == share
	}))
}

// number is how many CPUs, or whatever else, a configuration has.
func (t *table) number(w *row, of string) *row {
	for _, o := range t.of[w] {
		if name := strings.Join(o.words, " "); o.unit.dim == count && (name == of || name == of+"s") {
			return o
		}
	}
	return cmp.Or(w.said(of+"s"), w.said(of))
}

// after is the word behind the last of another one, "" where it has none, or none is before it.
func (w *row) after(word string) string {
	if k := lastOf(w.words, word); k > 0 && k+1 < len(w.words) {
		return w.words[k+1]
	}
	return ""
}

// lastOf is where a word is last: requests_per_s_per_core is per core. -1: nowhere.
func lastOf(words []string, word string) int {
	for k, w := range slices.Backward(words) {
		if w == word {
			return k
		}
	}
	return -1
}
