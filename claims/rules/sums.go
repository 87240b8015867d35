package rules

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/claims/row"
	"isolane.dev/isolane/quantity"
)

// family is the figures of parts and of all parts together, which differ in nothing else.
type family struct {
	total *row.Row
	word  string
	parts map[string][]*row.Row // by what the parts are
}

// families returns the families of rates, counts and times without a statistic, and of mean times.
func (t *table) families() []family {
	amounts := []row.Dimension{row.Count, row.Rate, row.SizeRate, row.BitRate}
	use := func(w *row.Row) bool {
		return w.Measured() && !w.IsChange() && (slices.Contains(amounts, w.Unit.Dim) && w.Stat.Kind == "" ||
			w.Unit.Dim == row.Duration && (w.Stat.Kind == "" || w.Stat.Kind == "mean")) // percentiles do not add up
	}
	var all []family
	for _, rows := range t.Groups(use, func(w *row.Row) string { return fmt.Sprint(w.Figure, w.Unit.Dim) }) {
		names := map[bool]string{true: row.StageNames, false: row.PartNames}[rows[0].Unit.Dim == row.Duration]
		byRest := row.ByPart(rows, names)
		for _, w := range rows {
			for _, p := range w.Parts {
				f := family{w, p.SaysTotal(), map[string][]*row.Row{}}
				rest, _ := row.Without(w.Parts, func(o row.Part) bool { return o == p })
				for _, name := range strings.Fields(names) {
					if parts := byRest[row.Unordered(rest)+"\x00"+name]; f.word != "" && len(parts) > 1 {
						f.parts[name] = parts
					}
				}
				if len(f.parts) == 1 {
					all = append(all, f)
				}
			}
		}
	}
	return all
}

// isOfEach reports whether the figure of all may be that of each: a mean, or the rate of a chain.
func (t *table) isOfEach(f family, parts []*row.Row) bool {
	least, most := t.Extremes(parts)
	all := t.Base(f.total)
	return all.Meets(t.Base(most)) || f.word == "all" && !all.Below(t.Base(least)) && !t.Base(most).Below(all)
}

// totals finds totals other than the sum of their parts: up and down, CPU shares, streams or queues.
func (t *table) totals() []hit {
	const about = 0.01 // not everything is measured at exactly the same time
	var hits []hit
	for _, f := range t.families() {
		for name, parts := range f.parts {
			alone := func(w *row.Row) bool { return saysAlone.MatchString(w.Prose) }
			if t.isOfEach(f, parts) || slices.ContainsFunc(append(slices.Clone(parts), f.total), alone) {
				continue
			}
			total, sum := t.Base(f.total), t.Sum(parts)
			h := hit{rows: append(slices.Clone(parts), f.total), so: wrong}
			allowed := row.Span{Low: sum.Low * (1 - about), Mid: sum.Mid, High: sum.High * (1 + about)}
			_, most := t.Extremes(parts)
			switch part := t.Base(most).Scaled(1 - about); {
			case total.Below(part):
				h.rows = []*row.Row{most, f.total}
				h.sum = []string{fmt.Sprintf("%s of one part > %s of all", t.Printed(most), t.Printed(f.total))}
			case row.IsNumbered(name, parts) && !total.Meets(allowed):
				h.sum = []string{fmt.Sprintf("%s together = %s, printed %s", quantity.Count(len(parts), "part"),
					t.Like(f.total, sum.Mid), t.Printed(f.total))}
			default:
				continue
			}
			if f.total.Unit.Dim == row.Duration {
				h.severity, h.so = claims.Suspicious, "One of the figures is wrong, or some is at once or not listed."
			} else if f.word == "all" {
				h.severity, h.so = claims.Suspicious, "Unless each was measured alone, one of the figures is wrong."
			}
			hits = append(hits, h)
		}
	}
	return hits
}

// componentNames are conditions that make a share one of several of a whole.
const componentNames = "function symbol state component category kind class reason stage phase"

// breakdowns finds shares of one whole that together exceed it.
func (t *table) breakdowns() []hit {
	const least = 3 // shares; two are usually of two wholes
	var hits []hit
	use := func(w *row.Row) bool {
		return w.Measured() && w.Unit.Dim == row.Share && w.Stat.Kind == "" && !w.IsChange() && !w.Unit.Points &&
			!saysOverlap.MatchString(w.Prose) && w.Has(strings.Fields("share breakdown portion proportion fraction "+
			"distribution residency split percentage time")...)
	}
	for _, rows := range t.Groups(use, byMetric) {
		for _, parts := range row.ByPart(rows, componentNames) {
			if sum := t.Sum(parts); len(parts) >= least && row.Exactly(1).Below(sum) {
				hits = append(hits, hit{rows: parts, severity: claims.Suspicious, sum: []string{t.List(parts) +
					" together = " + row.Percent(sum.Mid)}, so: "Parts of one whole are 100% at most: a figure is " +
					"wrong, or they overlap."})
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return a.rows[0].Line - b.rows[0].Line })
	return hits
}
