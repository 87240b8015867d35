package rules

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/claims/formula"
	"isolane.dev/isolane/claims/row"
	"isolane.dev/isolane/quantity"
)

// confidence matches the words for an end of a confidence interval.
var confidence = regexp.MustCompile(`(^| )(ci|confidence( interval)?)( ?(90|95|99)%?)?` +
	` (low|lower|min|high|upper|max)( bound| end)?$`)

// order compares the statistics of one figure, or the ends of its range with itself. A statistic with two
// different values is of several measurements.
func (t *table) order() []hit {
	var hits []hit
	ends := []string{"first", "lower", "last", "upper"}
	use := func(w *row.Row) bool {
		return w.Unit.Dim > row.Text && w.Qualifier != "limit" &&
			slices.Contains([]string{"", "min", "percentile", "max"}, w.Stat.Kind)
	}
	for _, rows := range t.Groups(use, func(w *row.Row) string {
		stem := row.Drop(row.WordsOf(w.Stem), ends)
		return fmt.Sprint(w.Conditions, "\x00", stem, w.Measure(), w.Stat.Kind == "",
			w.Unit.Dim == row.ID || !w.Has(ends...))
	}) {
		slices.SortStableFunc(rows, func(a, b *row.Row) int { return cmp.Compare(a.Rank(), b.Rank()) })
		repeated := false
		for k := 1; k < len(rows); k++ {
			repeated = repeated || rows[k-1].Rank() == rows[k].Rank() && t.Base(rows[k-1]) != t.Base(rows[k]) &&
				!isSameStat(rows[k-1], rows[k])
		}
		for k := 1; k < len(rows) && !repeated; k++ {
			a, b := rows[k-1], rows[k]
			if isSameStat(a, b) && t.Base(a).Below(t.Base(b)) {
				a, b = b, a
			}
			if t.Base(b).Below(t.Base(a)) {
				hits = append(hits, hit{rows: []*row.Row{a, b}, sum: []string{fmt.Sprintf("%s %s > %s %s", a.Metric,
					t.Printed(a), b.Metric, t.Printed(b))},
					so: "One of the two is wrong, or has the other's name or unit."})
			}
		}
	}
	return append(hits, t.intervals()...)
}

// isSameStat reports whether two rows name one statistic differently: P100 and maximum, P50 and median.
func isSameStat(a, b *row.Row) bool {
	return a.Stat == b.Stat && a.Measured() && b.Measured() && a.Has("p100", "median") != b.Has("p100", "median")
}

// averaged finds means of percentiles.
func (t *table) averaged() []hit {
	isMean := func(w *row.Row) bool { return w.Stat.Kind == "averaged" || saysMeanOf.MatchString(w.Prose) }
	isTail := func(w *row.Row) bool {
		return w.Stat.Rank > 50 && w.Stat.Rank < 100 && w.Unit.Dim == row.Duration
	}
	hits := t.ofParts(t.unlabelled)
	use := func(w *row.Row) bool { return isMean(w) && isTail(w) && !w.IsChange() }
	for _, w := range row.Keep(t.Rows, use) {
		h := hit{rows: []*row.Row{w}, sum: []string{w.Metric + " " + t.Printed(w) + " is a mean of percentiles"},
			so: "A mean of percentiles is no percentile: that of all samples together is anywhere between the least " +
				"and the largest of them."}
		var terms []string
		parts := row.Keep(t.Rows, func(o *row.Row) bool {
			return o.Group == w.Group && o.Stem == w.Stem && o.Measured() && o.Stat.Rank == w.Stat.Rank && !isMean(o)
		})
		for _, p := range parts {
			terms = append(terms, row.Thousands(p.Text))
		}
		if mean := t.Sum(parts).Scaled(1 / float64(len(parts))); len(parts) > 1 && mean.Meets(t.Base(w)) {
			h.rows, h.sum = append(parts, w), []string{fmt.Sprintf("(%s) ÷ %d = %s, printed %s",
				strings.Join(terms, " + "), len(parts), t.Like(w, mean.Mid), t.Printed(w))}
		}
		hits = append(hits, h)
	}
	return hits
}

// intervals finds means outside their own confidence interval: rtt_mean, rtt_ci95_low, rtt_ci95_high.
func (t *table) intervals() []hit {
	var hits []hit
	for _, c := range t.Cells {
		for _, end := range c {
			stem := confidence.ReplaceAllString(strings.Join(end.Words, " "), "")
			isLow, isHigh := end.Has("low", "lower", "min"), end.Has("high", "upper", "max")
			if stem == strings.Join(end.Words, " ") || isLow == isHigh || end.Unit.Dim <= row.ID {
				continue
			}
			of, around := row.StatOf(stem)
			middles := row.Keep(c, func(w *row.Row) bool { // the mean, even if a median may be meant
				return w.Measured() && w.Unit.Dim == end.Unit.Dim && w.Stem == of && (w.Stat.Kind == "mean" ||
					w.Stat.Rank == 50 && around.Kind == "")
			})
			w := t.Only(middles)
			if w != nil && (w.Stat.Kind != "mean" || around.Kind != "" && around.Kind != "mean") {
				continue
			}
			if w == nil || isLow && !t.Base(w).Below(t.Base(end)) || isHigh && !t.Base(end).Below(t.Base(w)) {
				continue
			}
			sign := map[bool]string{true: " < ", false: " > "}[isLow]
			hits = append(hits, hit{rows: []*row.Row{w, end}, so: "A mean lies inside of its own interval.",
				sum: []string{w.Metric + " " + t.Printed(w) + sign + end.Metric + " " + t.Printed(end)}})
		}
	}
	return hits
}

// repeats finds several values of one figure. They may be repeated measurements.
func (t *table) repeats() []hit {
	var hits []hit
	use := func(w *row.Row) bool { return w.Unit.Dim > row.Other && !w.IsBound() && w.Qualifier != "limit" }
	for _, rows := range t.Groups(use, func(w *row.Row) string {
		return fmt.Sprint(byFigure(w), w.Unit.Dim, w.IsChange() && w.Unit.Factor == 1, w.Unit.Points) // 75%: 4x
	}) {
		least, most := t.Extremes(rows)
		if len(rows) < 2 || !t.Base(least).Below(t.Base(most)) {
			continue
		}
		sum := quantity.Count(len(rows), "value") + ", from " + t.Printed(least) + " to " + t.Printed(most)
		if low := t.Base(least).Mid; low > 0 {
			sum += ": " + t.Printed(most) + " ÷ " + t.Printed(least) + " = " + row.Number(t.Base(most).Mid/low)
		}
		hits = append(hits, hit{rows: rows, sum: []string{sum},
			so: "They are repeated measurements, or differ in what the table does not say, or one is wrong."})
	}
	return hits
}

// oddUnit finds a figure in bytes among several figures of the same metric in bits, or the reverse, whose
// number is like theirs and whose value is not.
func (t *table) oddUnit() []hit {
	const others, apart = 3, 3.
	var hits []hit
	use := func(w *row.Row) bool {
		return w.Measured() && !w.IsSetup() && !saysOneHost.MatchString(w.Prose) &&
			!saysMemory.MatchString(w.Prose) &&
			slices.Contains([]row.Dimension{row.SizeRate, row.BitRate}, w.Unit.Dim)
	}
	for _, rows := range t.Groups(use, byMetric) {
		for _, w := range rows {
			rest := row.Keep(rows, func(o *row.Row) bool { return o != w })
			if len(rest) < others || slices.ContainsFunc(rest, func(o *row.Row) bool {
				return o.Unit.Dim == w.Unit.Dim || o.UnitText != rest[0].UnitText || o.Conditions == w.Conditions
			}) || !strings.EqualFold(w.UnitText[:1], rest[0].UnitText[:1]) {
				continue
			}
			least, most := t.Extremes(rest)
			if v := t.Base(w); w.Value.Mid < least.Value.Mid || w.Value.Mid > most.Value.Mid ||
				v.Mid < apart*t.Base(most).Mid && v.Mid*apart > t.Base(least).Mid {
				continue
			}
			hits = append(hits, hit{rows: append(rest, w), sum: []string{fmt.Sprintf(
				"%s = %s; the others are from %s to %s", t.Printed(w), row.Show(row.BitRate, t.Base(w).Mid),
				t.Printed(least), t.Printed(most))},
				so: "In " + rest[0].UnitText + " it is one of them: the unit may be a misprint."})
		}
	}
	return hits
}

// derived compares "throughput per cpu" with the throughput and the CPUs, and "throughput rel quiet", in
// percent, with the throughput here and where it is 100%.
func (t *table) derived() []hit {
	const f formula.Formula = "a ÷ b"
	hits := append(t.scaled(), t.quotients()...)
	use := func(w *row.Row) bool {
		return w.Measured() && (w.After("rel") != "" && w.Unit.Dim == row.Share || w.After("per") != "")
	}
	for _, rows := range t.Groups(use, byMetric) {
		whole := t.whole(rows)
		for _, w := range rows {
			a, b := t.total(w), whole
			if w.After("per") != "" {
				b = t.number(w, w.After("per"))
			}
			same := row.Keep(t.Of[w], func(o *row.Row) bool { return slices.Equal(o.Words, w.Words) })
			if a == nil || b == nil || t.Only(same) == nil || w.After("rel") != "" && a.Unit.Dim != b.Unit.Dim {
				continue
			}
			v := f.Value(func(name string) row.Span { return t.Base([]*row.Row{a, b}[strings.Index("ab", name)]) })
			own := isOfLoad(w.After("per"))
			if !v.Finite() || v.Meets(t.Base(w)) || own && v.Scaled(1/ofLoad).Below(t.Base(w)) &&
				t.Base(w).Below(v.Scaled(ofLoad)) {
				continue
			}
			h := hit{rows: row.Keep([]*row.Row{a, b, w}, (*row.Row).IsInTable), so: "One of the three is wrong."}
			if own {
				h.severity, h.so = claims.Suspicious, "A load generator takes it over intervals of each: it is seldom "+
					"the total by their number, but not so far off."
			}
			h.sum = []string{t.Printed(a) + " ÷ " + t.Printed(b) + " = " + t.Like(w, v.Mid) +
				", printed " + t.Printed(w)}
			hits = append(hits, h)
		}
	}
	return hits
}

// ofLoad is how far a load generator's figure per thread may be off: it is a mean over intervals of each.
const ofLoad = 1.5

func isOfLoad(of string) bool {
	return slices.Contains([]string{"thread", "worker", "connection", "client", "stream"}, of)
}

// whole returns the figure that is 100% in these rows.
func (t *table) whole(rows []*row.Row) *row.Row {
	for _, w := range rows {
		if total := t.total(w); math.Abs(t.Base(w).Mid-1) < 1e-9 && total != nil {
			return total
		}
	}
	return nil
}

// total returns the figure of the same configuration of which one per cpu, or rel baseline, is a part.
func (t *table) total(w *row.Row) *row.Row {
	k := max(row.LastOf(w.Words, "rel"), row.LastOf(w.Words, "per"))
	words := w.Words[:k]
	if w.Words[k] == "per" {
		words = slices.Concat(words, w.Words[k+2:])
	}
	return t.Only(slices.DeleteFunc(slices.Clone(t.Of[w]), func(o *row.Row) bool {
		return o == w || !slices.Equal(row.Drop(o.Words, []string{"total"}), words) || !o.Measured() ||
			o.Unit.Dim != w.Unit.Dim && w.Words[k] == "per" || o.Unit.Dim <= row.Other || o.Unit.Dim == row.Share
	}))
}

// number returns how many CPUs, or other things, a configuration has.
func (t *table) number(w *row.Row, of string) *row.Row {
	for _, o := range t.Of[w] {
		if name := strings.Join(o.Words, " "); o.Unit.Dim == row.Count && (name == of || name == of+"s") {
			return o
		}
	}
	return cmp.Or(w.Said(row.Count, of+"s"), w.Said(row.Count, of))
}
