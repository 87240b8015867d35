package rules

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/quantity"
)

// confidence is the words of an end of a confidence interval.
var confidence = regexp.MustCompile(`(^| )(ci|confidence( interval)?)( ?(90|95|99)%?)?` +
	` (low|lower|min|high|upper|max)( bound| end)?$`)

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
		return fmt.Sprint(w.conditions, "\x00", stem, w.measure(), w.stat.kind == "",
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
	return append(hits, t.intervals()...)
}

// intervals finds means outside of their own confidence interval: rtt_mean, rtt_ci95_low, rtt_ci95_high.
func (t *table) intervals() []hit {
	var hits []hit
	for _, c := range t.cells {
		for _, end := range c {
			stem := confidence.ReplaceAllString(strings.Join(end.words, " "), "")
			isLow, isHigh := end.has("low", "lower", "min"), end.has("high", "upper", "max")
			if stem == strings.Join(end.words, " ") || isLow == isHigh || end.unit.dim <= id {
				continue
			}
			of, around := statOf(stem)
			middles := keep(c, func(w *row) bool { // the mean, also where a median may be meant
				return w.measured() && w.unit.dim == end.unit.dim && w.stem == of && (w.stat.kind == "mean" ||
					w.stat.rank == 50 && around.kind == "")
			})
			w := t.only(middles)
			if w != nil && (w.stat.kind != "mean" || around.kind != "" && around.kind != "mean") {
				continue
			}
			if w == nil || isLow && !t.base(w).below(t.base(end)) || isHigh && !t.base(end).below(t.base(w)) {
				continue
			}
			sign := map[bool]string{true: " < ", false: " > "}[isLow]
			hits = append(hits, hit{rows: []*row{w, end}, so: "A mean lies inside of its own interval.",
				sum: []string{w.metric + " " + t.printed(w) + sign + end.metric + " " + t.printed(end)}})
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
			own := isOfLoad(w.after("per"))
			if !v.finite() || v.meets(t.base(w)) || own && v.scaled(1/ofLoad).below(t.base(w)) &&
				t.base(w).below(v.scaled(ofLoad)) {
				continue
			}
			h := hit{rows: keep([]*row{a, b, w}, (*row).isInTable), so: "One of the three is wrong."}
			if own {
				h.severity, h.so = claims.Suspicious, "A load generator takes it over intervals of each: it is seldom "+
					"the total by their number, but not so far off."
			}
			h.sum = []string{t.printed(a) + " ÷ " + t.printed(b) + " = " + t.like(w, v.mid) +
				", printed " + t.printed(w)}
			hits = append(hits, h)
		}
	}
	return hits
}

// ofLoad is how far a load generator's figure per thread may be off: it is the mean over intervals of each.
const ofLoad = 1.5

func isOfLoad(of string) bool {
	return slices.Contains([]string{"thread", "worker", "connection", "client", "stream"}, of)
}

// isInTable says whether a row has a line; what a configuration says has none.
func (w *row) isInTable() bool { return w.line > 0 }

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
	return cmp.Or(w.said(count, of+"s"), w.said(count, of))
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
