package rules

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// comparison is a row that compares two configurations: "cache on vs off", "guest minus host".
type comparison struct {
	*row
	a, b  []string // what the sides may be called
	fixed []part   // conditions that hold for both sides
	words []string // of the metric that is compared
	minus bool
}

// mostPairs are those that a comparison may be about. With more it is about none of them.
const mostPairs = 200

const mostSums = 20 // that are written out of one comparison

var sides = regexp.MustCompile(`^(.+?) (vs\.?|versus|minus|over|against) (.+)$`)

// comparisons are those rows.
func (t *table) comparisons() []comparison {
	measures := strings.Fields(changeWords + " claimed ratio over factor times faster slower")
	var all []comparison
	for _, w := range t.rows {
		c := comparison{row: w}
		for _, p := range w.parts {
			m := sides.FindStringSubmatch(p.value)
			if p.key != "" || m == nil || c.a != nil {
				c.fixed = append(c.fixed, p)
				continue
			}
			// "cache on vs off": the factor may stand before the first side only.
			c.a, c.b, c.minus = []string{m[1]}, []string{m[3]}, m[2] == "minus"
			if k := strings.LastIndex(m[1], " "); k > 0 {
				c.a, c.b = append(c.a, m[1][k+1:]), append(c.b, m[1][:k]+" "+m[3])
			}
		}
		if k := slices.Index(w.words, "over"); k > 0 && k+1 < len(w.words) && c.a != nil {
			c.a, c.b = []string{w.words[k-1]}, []string{w.words[k+1]}
		}
		c.words = drop(w.words, slices.Concat(measures, wordsOf(strings.Join(append(c.a, c.b...), " "))))
		if c.stat.kind == "max" || c.stat.kind == "min" { // of the gains, where no figure has that word itself
			named := func(o *row) bool { return o != w && sameFigure(o.words, c.words) }
			if !slices.ContainsFunc(t.rows, named) {
				c.words = drop(c.words, []string{"max", "maximum", "min", "minimum"})
			}
		}
		if c.a != nil && len(c.words) > 0 && len(c.words) < len(w.words) && w.unit.dim != text {
			all = append(all, c)
		}
	}
	return all
}

// sameFigure says whether metrics are of one quantity: ops_rate and ops are.
func sameFigure(a, b []string) bool {
	return slices.Equal(drop(a, []string{"rate"}), drop(b, []string{"rate"}))
}

// pairs are the figures that a comparison is about: those of configurations that differ in nothing else, and
// where there are none, loosely, those that differ in more.
func (t *table) pairs(c comparison) (pairs [][2]*row, loosely bool) {
	ofB := map[string][]*row{} // by all but the side
	var sideA, sideB []*row
	var keysA []string
	for _, w := range t.rows {
		if !sameFigure(w.words, c.words) || w == c.row || w.source != c.source ||
			w.unit.dim == text || !w.measured() || !covers(c.fixed, w.parts) {
			continue
		}
		key := func(rest []part) string { return fmt.Sprint(w.group, "\x00", w.measure(), unordered(rest)) }
		if rest, is := without(w.parts, isOne(c.a...)); is {
			sideA, keysA = append(sideA, w), append(keysA, key(rest))
		}
		if rest, is := without(w.parts, isOne(c.b...)); is {
			sideB, ofB[key(rest)] = append(sideB, w), append(ofB[key(rest)], w)
		}
	}
	for k, a := range sideA {
		for _, b := range ofB[keysA[k]] {
			if pairs = append(pairs, [2]*row{a, b}); len(pairs) > mostPairs {
				return nil, false
			}
		}
	}
	if len(pairs) > 0 || len(sideA)*len(sideB) > mostPairs {
		return pairs, false
	}
	for _, a := range sideA {
		for _, b := range sideB {
			if a.group == b.group && a.measure() == b.measure() {
				pairs = append(pairs, [2]*row{a, b})
			}
		}
	}
	return pairs, true
}

// formulas are what a comparison may mean, the likeliest first. "A vs B" does not say which is the baseline,
// and an improvement of a time has several meanings.
func (c comparison) formulas(of dimension) []formula {
	loses := c.has("loss", "reduction", "decrease", "drop", "saving", "savings")
	differences := []formula{"a − b", "b − a"}
	if loses {
		differences = []formula{"b − a", "a − b"}
	}
	if c.unit.dim == of && (c.minus || of != share || c.inPoints()) {
		return differences
	}
	relative := c.relative(of, loses)
	if of == share && c.isChange() && !c.has("speedup") { // "20% less" of a share may be in points all the same
		return append(relative, differences...)
	}
	return relative
}

// relative are the formulas of a comparison that is no difference.
func (c comparison) relative(of dimension, loses bool) []formula {
	switch {
	case loses:
		return []formula{"1 − a ÷ b", "1 − b ÷ a"}
	case !c.isChange() || c.has("speedup"):
		return []formula{"a ÷ b", "b ÷ a"}
	case of == duration:
		return []formula{"1 − a ÷ b", "b ÷ a − 1", "a ÷ b − 1", "1 − b ÷ a"}
	default:
		return []formula{"a ÷ b − 1", "b ÷ a − 1"}
	}
}

// inPoints says whether a difference of shares is in percentage points.
func (c comparison) inPoints() bool { return c.unit.points || saysPoints.MatchString(c.prose) }

func (t *table) compared() []hit {
	var hits []hit
	for _, c := range t.comparisons() {
		pairs, loosely := t.pairs(c)
		if len(pairs) == 0 || c.unit.points && pairs[0][0].unit.dim != share {
			continue
		}
		h := hit{rows: []*row{c.row}}
		for k, f := range c.formulas(pairs[0][0].unit.dim) {
			all := make([]span, len(pairs))
			for n, p := range pairs {
				all[n] = f.value(func(name string) span { return t.base(p[strings.Index("ab", name)]) })
			}
			so := t.verdict(c, all, loosely)
			if so == "" {
				h.so = ""
				break
			}
			if k > 0 {
				continue // the first is the one that is written out
			}
			h.so = so
			for n, p := range pairs {
				if h.rows = append(h.rows, p[0], p[1]); n < mostSums {
					sum := f.text(func(name string) string { return thousands(p[strings.Index("ab", name)].text) })
					h.sum = append(h.sum, fmt.Sprintf("lines %d and %d: %s = %s", p[0].line, p[1].line, sum,
						t.like(c.row, all[n].mid)))
				}
			}
		}
		if h.so == "" {
			continue
		}
		if !loosely {
			h.sum = append(h.sum, t.others(pairs)...)
		}
		hits = append(hits, h)
	}
	return hits
}

// verdict holds what is claimed against what the figures give: "" where they agree, or there is no result.
func (t *table) verdict(c comparison, all []span, loosely bool) string {
	claim := t.base(c.row)
	least, most, given := all[0], all[0], false
	for _, v := range all {
		if !v.finite() {
			return ""
		}
		if v.mid < least.mid {
			least = v
		}
		if v.mid > most.mid {
			most = v
		}
		given = given || v.meets(claim)
	}
	said := strings.ToLower(c.quoted + " " + c.metric + " " + c.config)
	upTo := strings.Contains(said, "up to") || strings.Contains(said, "at most") || c.stat.kind == "max"
	from := strings.Contains(said, "at least") || c.stat.kind == "min"
	switch {
	case loosely && !given:
		return "No two figures that this may be about give it."
	case loosely, len(all) == 1 && given, upTo && most.meets(claim), from && least.meets(claim):
		return ""
	case len(all) == 1:
		return fmt.Sprintf("Printed as %s, the figures give %s.", t.printed(c.row), t.like(c.row, all[0].mid))
	case upTo && least.meets(claim):
		return fmt.Sprintf("\"Up to\" %s is the least of %d, not the most: they are from %s to %s.",
			t.printed(c.row), len(all), t.like(c.row, least.mid), t.like(c.row, most.mid))
	case upTo, from, claim.below(least), most.below(claim):
		return fmt.Sprintf("Printed as %s, the figures are from %s to %s.", t.printed(c.row),
			t.like(c.row, least.mid), t.like(c.row, most.mid))
	}
	return ""
}

// others says how the times of the compared cells differ: what a claim about something else leaves out.
func (t *table) others(pairs [][2]*row) []string {
	ends := map[string][2]float64{}
	var names, lines []string
	for _, p := range pairs {
		for _, a := range t.of[p[0]] {
			k := slices.IndexFunc(t.of[p[1]], func(b *row) bool { return a.metric == b.metric && a.unit == b.unit })
			if a.metric == p[0].metric || a.unit.dim != duration || k < 0 || t.base(t.of[p[1]][k]).low <= 0 {
				continue
			}
			r := t.base(a).mid / t.base(t.of[p[1]][k]).mid
			was, known := ends[a.metric]
			if !known {
				names, was = append(names, a.metric), [2]float64{r, r}
			}
			ends[a.metric] = [2]float64{min(was[0], r), max(was[1], r)}
		}
	}
	for _, name := range names {
		lines = append(lines, fmt.Sprintf("%s of the same configurations: × %.2f", name, ends[name][0]))
		if ends[name][1] > ends[name][0] {
			lines[len(lines)-1] += fmt.Sprintf(" to × %.2f", ends[name][1])
		}
	}
	return lines
}

// confounded finds comparisons of configurations that differ in more than the two sides.
func (t *table) confounded() []hit {
	var hits []hit
	for _, c := range t.comparisons() {
		pairs, loosely := t.pairs(c)
		if len(pairs) == 0 || !loosely {
			continue
		}
		a, b := pairs[0][0], pairs[0][1]
		only := func(w, other *row) string {
			rest, _ := without(w.parts, func(p part) bool { return slices.Contains(other.parts, p) })
			return fmt.Sprintf("only line %d: %s", w.line, list(rest))
		}
		hits = append(hits, hit{rows: []*row{c.row, a, b}, sum: []string{only(a, b), only(b, a)}, so: fmt.Sprintf(
			"%s is the effect of all of it together, not of %s alone.", t.printed(c.row), c.a[0])})
	}
	return hits
}

// sameGoal holds rows such as cpus_for_slo = 8 and 5 against what was measured with 8 and with 5: the number
// that is enough for a goal says little where the goal was not the same.
func (t *table) sameGoal() []hit {
	const about = 0.05
	var hits []hit
	use := func(w *row) bool {
		k := slices.Index(w.words, "for")
		return k > 0 && k+1 < len(w.words) && w.unit.dim == count && w.measured()
	}
	for _, rows := range t.groups(use, byMetric) {
		slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(b.value.mid, a.value.mid) })
		for _, b := range rows[1:] {
			h := hit{rows: []*row{rows[0], b}}
			for _, x := range t.goal(rows[0]) {
				for _, y := range t.goal(b) {
					small, large := t.base(x).mid, t.base(y).mid
					if !slices.Equal(x.words, y.words) || x.unit != y.unit || small <= 0 || rows[0].value.mid <= 0 ||
						math.Abs(large/small-1) < about {
						continue
					}
					each := func(n, w *row) float64 { return t.base(w).mid / n.value.mid }
					h.rows = append(h.rows, x, y)
					if x.unit.dim == sizeRate {
						h.sum = append(h.sum, fmt.Sprintf("%s × 8 = %s, %s × 8 = %s", t.printed(x), show(bitRate, small),
							t.printed(y), show(bitRate, large)))
					}
					h.sum = append(h.sum, fmt.Sprintf("%s ÷ %s = %s", t.printed(y), t.printed(x), number(large/small)),
						fmt.Sprintf("%s ÷ %s = %s each, %s ÷ %s = %s each: × %s", t.printed(y), b.text,
							t.like(y, each(b, y)), t.printed(x), rows[0].text, t.like(x, each(rows[0], x)),
							number(each(b, y)/each(rows[0], x))))
				}
			}
			h.so = "They did not reach the same, so these numbers cannot be compared as they are."
			if len(h.rows) > 2 && t.base(h.rows[3]).mid > t.base(h.rows[2]).mid {
				h.so += " The smaller number reached more: for the same, they differ by more than printed."
			}
			if h.sum != nil {
				hits = append(hits, h)
			}
		}
	}
	return hits
}

// goal is what was measured in the configuration of a claim with the number that it says.
func (t *table) goal(claim *row) []*row {
	number := part{strings.Join(claim.words[:slices.Index(claim.words, "for")], " "), claim.text}
	want := unordered(append(slices.Clone(claim.parts), number))
	return slices.DeleteFunc(slices.Clone(t.rows), func(w *row) bool {
		return w.conditions != claim.group+"\x00"+want || !w.measured() ||
			!slices.Contains([]dimension{rate, sizeRate, bitRate}, w.unit.dim)
	})
}
