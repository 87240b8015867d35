package rules

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"isolane.dev/isolane/claims/formula"
	"isolane.dev/isolane/claims/row"
)

// comparison is a row that compares two configurations: "cache on vs off", "guest minus host".
type comparison struct {
	*row.Row
	a, b  []string   // possible names of the sides
	fixed []row.Part // conditions that hold for both sides
	words []string   // of the compared metric
	minus bool
}

const (
	mostPairs = 200 // a comparison with more pairs than these is about none of them
	mostSums  = 20  // written out for one comparison
)

// saysBase matches sides that are always the baseline of a comparison.
var saysBase = regexp.MustCompile(`(?i)^(?:baseline|default|before|original|vanilla|stock|unpatched|` +
	`unoptimi[sz]ed)\b`)

// comparisons returns those rows.
func (t *table) comparisons() []comparison {
	measures := strings.Fields(row.ChangeWords + " claimed ratio over factor times faster slower vs versus")
	var all []comparison
	for _, w := range t.Rows {
		c := comparison{Row: w}
		c.a, c.b, c.fixed, c.minus = w.Sides()
		if k := slices.IndexFunc(w.Words, isVersus); c.a == nil && k > 0 && w.Has(namesRatio()...) {
			t.takeBase(&c, strings.Join(w.Words[k+1:], " "))
		}
		if k := slices.Index(w.Words, "over"); k > 0 && k+1 < len(w.Words) && c.a != nil {
			c.a, c.b = []string{w.Words[k-1]}, []string{w.Words[k+1]}
		}
		c.words = row.Drop(w.Words, slices.Concat(measures, row.WordsOf(strings.Join(append(c.a, c.b...), " "))))
		if c.Has("max", "maximum", "min", "minimum") { // of the gains, unless a figure itself has that word
			named := func(o *row.Row) bool { return o != w && sameFigure(o.Words, c.words) }
			if !slices.ContainsFunc(t.Rows, named) {
				c.words = row.Drop(c.words, []string{"max", "maximum", "min", "minimum"})
			}
		}
		if c.a != nil && len(c.words) > 0 && len(c.words) < len(w.Words) && w.Unit.Dim != row.Text {
			all = append(all, c)
		}
	}
	return all
}

func isVersus(word string) bool { return word == "vs" || word == "versus" }
func namesRatio() []string      { return strings.Fields(row.ChangeWords + " ratio factor times") }

// takeBase handles a metric that names the other side: "gain_vs_default" of a configuration that differs from
// the default in one condition.
func (t *table) takeBase(c *comparison, base string) {
	for k, p := range c.Parts {
		fixed := slices.Delete(slices.Clone(c.Parts), k, k+1)
		if slices.ContainsFunc(t.Rows, func(o *row.Row) bool {
			rest, is := row.Without(o.Parts, row.IsOne(base))
			return is && o.Source == c.Source && row.Unordered(rest) == row.Unordered(fixed)
		}) {
			c.a, c.b, c.fixed = []string{p.String()}, []string{base}, fixed
			return
		}
	}
}

// sameFigure reports whether metrics have the same quantity, as ops_rate and ops do.
func sameFigure(a, b []string) bool {
	return slices.Equal(row.Drop(a, []string{"rate"}), row.Drop(b, []string{"rate"}))
}

// pairs returns the figures that a comparison is about: those of configurations that differ in nothing else.
// If there are none, it returns those that differ in more, and loosely is true.
func (t *table) pairs(c comparison) (pairs [][2]*row.Row, loosely bool) {
	ofB := map[string][]*row.Row{} // by everything but the side
	var sideA, sideB []*row.Row
	var keysA []string
	for _, w := range t.Rows {
		if !sameFigure(w.Words, c.words) || w == c.Row || w.Source != c.Source ||
			w.Unit.Dim == row.Text || !w.Measured() || !row.Covers(c.fixed, w.Parts) {
			continue
		}
		key := func(rest []row.Part) string { return fmt.Sprint(w.Group, "\x00", w.Measure(), row.Unordered(rest)) }
		if rest, is := row.Without(w.Parts, row.IsOne(c.a...)); is {
			sideA, keysA = append(sideA, w), append(keysA, key(rest))
		}
		if rest, is := row.Without(w.Parts, row.IsOne(c.b...)); is {
			sideB, ofB[key(rest)] = append(sideB, w), append(ofB[key(rest)], w)
		}
	}
	for k, a := range sideA {
		for _, b := range ofB[keysA[k]] {
			if pairs = append(pairs, [2]*row.Row{a, b}); len(pairs) > mostPairs {
				return nil, false
			}
		}
	}
	if len(pairs) > 0 || len(sideA)*len(sideB) > mostPairs {
		return pairs, false
	}
	for _, a := range sideA {
		for _, b := range sideB {
			if a.Group == b.Group && a.Measure() == b.Measure() {
				pairs = append(pairs, [2]*row.Row{a, b})
			}
		}
	}
	return pairs, true
}

// formulas returns what a comparison may mean, the most likely first. "A vs B" does not say which is the
// baseline, and an improvement of a time has several meanings.
func (c comparison) formulas(of row.Dimension) []formula.Formula {
	loses := c.Has("loss", "reduction", "decrease", "drop", "saving", "savings")
	differences := []formula.Formula{"a − b", "b − a"}
	if loses {
		differences = []formula.Formula{"b − a", "a − b"}
	}
	if c.Unit.Dim == of && (c.minus || of != row.Share || c.inPoints()) {
		return differences
	}
	relative := c.relative(of, loses)
	if of == row.Share && c.IsChange() && !c.Has("speedup") { // "20% less" of a share may be in points
		return append(relative, differences...)
	}
	return relative
}

// relative returns the formulas of a comparison that is no difference. The first half has b as the baseline.
func (c comparison) relative(of row.Dimension, loses bool) []formula.Formula {
	isRate := slices.Contains([]row.Dimension{row.Rate, row.SizeRate, row.BitRate}, of)
	isFaster := c.Has("speedup", "faster") && (isRate || of == row.Duration)
	isBase := saysBase.MatchString(c.b[0]) && !saysBase.MatchString(c.a[0])
	all := []formula.Formula{"a ÷ b − 1", "b ÷ a − 1"}
	switch {
	case loses:
		all = []formula.Formula{"1 − a ÷ b", "1 − b ÷ a"}
	case isFaster && of == row.Duration:
		all = []formula.Formula{"b ÷ a", "a ÷ b"}
	case !c.IsChange() || c.Has("speedup"):
		all, isBase = []formula.Formula{"a ÷ b", "b ÷ a"}, isBase && isFaster
	case of == row.Duration || !isRate && c.Has("improvement"):
		isBase = isBase && c.Has("improvement")
		all = []formula.Formula{"1 − a ÷ b", "b ÷ a − 1", "a ÷ b − 1", "1 − b ÷ a"}
	}
	if isBase || isFaster && c.Value.Below(row.Exactly(1)) { // a speed-up is that of the first side
		all = all[:len(all)/2]
	}
	if c.Unit.Factor == 1 && c.IsChange() && !c.Has("speedup") { // "an improvement of 2x"
		times := []formula.Formula{"a ÷ b", "b ÷ a"}
		if !isRate {
			times = []formula.Formula{"b ÷ a", "a ÷ b"}
		}
		all = append(times, all...)
	}
	return all
}

// inPoints reports whether a difference of shares is in percentage points.
func (c comparison) inPoints() bool { return c.Unit.Points || saysPoints.MatchString(c.Prose) }

func (t *table) compared() []hit {
	var hits []hit
	for _, c := range t.comparisons() {
		pairs, loosely := t.pairs(c)
		if len(pairs) == 0 || c.Unit.Points && pairs[0][0].Unit.Dim != row.Share {
			continue
		}
		h := hit{rows: []*row.Row{c.Row}}
		for k, f := range c.formulas(pairs[0][0].Unit.Dim) {
			all := make([]row.Span, len(pairs))
			for n, p := range pairs {
				all[n] = f.Value(func(name string) row.Span { return t.Base(p[strings.Index("ab", name)]) })
			}
			so := t.verdict(c, all, loosely)
			if so == "" {
				h.so = ""
				break
			}
			if k > 0 {
				continue // the first is written out
			}
			h.so = so
			for n, p := range pairs {
				if h.rows = append(h.rows, p[0], p[1]); n < mostSums {
					sum := f.Text(func(name string) string { return row.Thousands(p[strings.Index("ab", name)].Text) })
					h.sum = append(h.sum, fmt.Sprintf("lines %d and %d: %s = %s", p[0].Line, p[1].Line, sum,
						t.Like(c.Row, all[n].Mid)))
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

// verdict compares a claim with what the figures give. It returns "" if they agree, or if there is no result.
func (t *table) verdict(c comparison, all []row.Span, loosely bool) string {
	claim := t.Base(c.Row)
	least, most, given := all[0], all[0], false
	for _, v := range all {
		if !v.Finite() {
			return ""
		}
		if v.Mid < least.Mid {
			least = v
		}
		if v.Mid > most.Mid {
			most = v
		}
		given = given || v.Meets(claim)
	}
	said := strings.ToLower(c.Quoted + " " + c.Metric + " " + c.Config)
	upTo := strings.Contains(said, "up to") || strings.Contains(said, "at most") || c.Has("max", "maximum")
	from := strings.Contains(said, "at least") || c.Has("min", "minimum")
	switch {
	case loosely && !given:
		return "No two figures that this may be about give it."
	case loosely, len(all) == 1 && given, upTo && most.Meets(claim), from && least.Meets(claim):
		return ""
	case len(all) == 1:
		return fmt.Sprintf("Printed as %s, the figures give %s.", t.Printed(c.Row), t.Like(c.Row, all[0].Mid))
	case upTo && least.Meets(claim):
		return fmt.Sprintf("\"Up to\" %s is the least of %d, not the most: they are from %s to %s.",
			t.Printed(c.Row), len(all), t.Like(c.Row, least.Mid), t.Like(c.Row, most.Mid))
	case upTo, from, claim.Below(least), most.Below(claim):
		return fmt.Sprintf("Printed as %s, the figures are from %s to %s.", t.Printed(c.Row),
			t.Like(c.Row, least.Mid), t.Like(c.Row, most.Mid))
	}
	return ""
}

// others says how the times of the compared cells differ, which a claim about another quantity leaves out.
func (t *table) others(pairs [][2]*row.Row) []string {
	ends := map[string][2]float64{}
	var names, lines []string
	for _, p := range pairs {
		for _, a := range t.Of[p[0]] {
			k := slices.IndexFunc(t.Of[p[1]], func(b *row.Row) bool {
				return a.Metric == b.Metric && a.Unit == b.Unit
			})
			if a.Metric == p[0].Metric || a.Unit.Dim != row.Duration || k < 0 || t.Base(t.Of[p[1]][k]).Low <= 0 {
				continue
			}
			r := t.Base(a).Mid / t.Base(t.Of[p[1]][k]).Mid
			was, known := ends[a.Metric]
			if !known {
				names, was = append(names, a.Metric), [2]float64{r, r}
			}
			ends[a.Metric] = [2]float64{min(was[0], r), max(was[1], r)}
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
		only := func(w, other *row.Row) string {
			rest, _ := row.Without(w.Parts, func(p row.Part) bool { return slices.Contains(other.Parts, p) })
			return fmt.Sprintf("only line %d: %s", w.Line, row.List(rest))
		}
		hits = append(hits, hit{rows: []*row.Row{c.Row, a, b}, sum: []string{only(a, b), only(b, a)},
			so: fmt.Sprintf("%s is the effect of all of it together, not of %s alone.", t.Printed(c.Row), c.a[0])})
	}
	return hits
}

// sameGoal checks rows such as cpus_for_slo = 8 and 5 by what was measured with 8 and with 5: the number that
// suffices for a goal says little if the goals differ.
func (t *table) sameGoal() []hit {
	const about = 0.05
	var hits []hit
	use := func(w *row.Row) bool {
		k := slices.Index(w.Words, "for")
		return k > 0 && k+1 < len(w.Words) && w.Unit.Dim == row.Count && w.Measured()
	}
	for _, rows := range t.Groups(use, byMetric) {
		slices.SortStableFunc(rows, func(a, b *row.Row) int { return cmp.Compare(b.Value.Mid, a.Value.Mid) })
		for _, b := range rows[1:] {
			h := hit{rows: []*row.Row{rows[0], b}}
			for _, x := range t.goal(rows[0]) {
				for _, y := range t.goal(b) {
					small, large := t.Base(x).Mid, t.Base(y).Mid
					if !slices.Equal(x.Words, y.Words) || x.Unit != y.Unit || small <= 0 || rows[0].Value.Mid <= 0 ||
						math.Abs(large/small-1) < about {
						continue
					}
					each := func(n, w *row.Row) float64 { return t.Base(w).Mid / n.Value.Mid }
					h.rows = append(h.rows, x, y)
					if x.Unit.Dim == row.SizeRate {
						h.sum = append(h.sum, fmt.Sprintf("%s × 8 = %s, %s × 8 = %s", t.Printed(x),
							row.Show(row.BitRate, small), t.Printed(y), row.Show(row.BitRate, large)))
					}
					h.sum = append(h.sum, fmt.Sprintf("%s ÷ %s = %s", t.Printed(y), t.Printed(x), row.Number(large/small)),
						fmt.Sprintf("%s ÷ %s = %s each, %s ÷ %s = %s each: × %s", t.Printed(y), b.Text,
							t.Like(y, each(b, y)), t.Printed(x), rows[0].Text, t.Like(x, each(rows[0], x)),
							row.Number(each(b, y)/each(rows[0], x))))
				}
			}
			h.so = "They did not reach the same, so these numbers cannot be compared as they are."
			if len(h.rows) > 2 && t.Base(h.rows[3]).Mid > t.Base(h.rows[2]).Mid {
				h.so += " The smaller number reached more: for the same, they differ by more than printed."
			}
			if h.sum != nil {
				hits = append(hits, h)
			}
		}
	}
	return hits
}

// goal returns what was measured in the configuration of a claim with the number that the claim gives.
func (t *table) goal(claim *row.Row) []*row.Row {
	number := row.Part{Key: strings.Join(claim.Words[:slices.Index(claim.Words, "for")], " "), Value: claim.Text}
	want := row.Unordered(append(slices.Clone(claim.Parts), number))
	return slices.DeleteFunc(slices.Clone(t.Rows), func(w *row.Row) bool {
		return w.Conditions != claim.Group+"\x00"+want || !w.Measured() ||
			!slices.Contains([]row.Dimension{row.Rate, row.SizeRate, row.BitRate}, w.Unit.Dim)
	})
}
