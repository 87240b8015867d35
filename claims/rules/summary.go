package rules

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/claims/formula"
	"isolane.dev/isolane/claims/row"
)

// runNames are the words for what is measured several times.
const runNames = "run trial repetition iteration round attempt rep"

var summary = regexp.MustCompile(`^(?:the )?(average|avg|mean|median|min|minimum|max|maximum|overall|all|` +
	`combined|merged|pooled)(?: (?:of|over|across))?(?: (?:the|all))?(?: (\d{1,2}))?` +
	`(?: (?:(?:run|trial|repetition|iteration|round|attempt|rep|stream|flow|vm|queue|port|thread|worker|` +
	`client|instance|pod|host)s|requests|samples|packets))?$`)

// statistics maps the words of summaries, which are equal except for these words, to their statistic.
func statistics() map[string]string {
	return map[string]string{"average": "mean", "avg": "mean", "mean": "mean", "median": "median", "min": "min",
		"minimum": "min", "max": "max", "maximum": "max"}
}

// summaries checks the mean, median and extremes of runs and parts.
func (t *table) summaries() []hit { return t.ofParts(t.summarized) }

// ofParts calls check for each row whose conditions say that it is of all of some rows, or do not say.
func (t *table) ofParts(check func(w *row.Row, what, name string, parts []*row.Row) hit) []hit {
	names := strings.Fields(runNames + " " + row.PartNames)
	var hits []hit
	use := func(w *row.Row) bool { return w.Measured() && !w.IsChange() && w.Unit.Dim > row.ID }
	for _, rows := range t.Groups(use, func(w *row.Row) string { return fmt.Sprint(w.Figure, w.Unit.Dim) }) {
		byRest := row.ByPart(rows, runNames+" "+row.PartNames)
		for k := 0; k < len(rows) && len(byRest) > 0; k++ {
			w := rows[k]
			for _, p := range append(slices.Clone(w.Parts), row.Part{Value: "all"}) {
				m := summary.FindStringSubmatch(strings.Join(row.WordsOf(p.String()), " "))
				if m == nil {
					continue
				}
				rest, _ := row.Without(w.Parts, func(o row.Part) bool { return o == p })
				for _, name := range names {
					parts := byRest[row.Unordered(rest)+"\x00"+name]
					n, err := strconv.Atoi(m[2])
					if len(parts) < 2 || !row.IsNumbered(name, parts) || err == nil && n != len(parts) {
						continue
					}
					h := check(w, statistics()[m[1]], name, slices.Clone(parts))
					if m[0] == m[1] && h.rows != nil && statistics()[m[1]] != "" { // "max" alone may be of anything
						h.severity, h.so = claims.Suspicious, "One of the figures is wrong, or it is not of these."
					}
					if h.rows != nil {
						hits = append(hits, h)
					}
				}
			}
		}
	}
	return hits
}

// summarized says what is wrong with a statistic of parts.
func (t *table) summarized(w *row.Row, what, name string, parts []*row.Row) hit {
	isRuns := slices.Contains(strings.Fields(runNames), name)
	slices.SortStableFunc(parts, func(a, b *row.Row) int { return cmp.Compare(t.Base(a).Mid, t.Base(b).Mid) })
	least, most := t.Base(parts[0]), t.Base(parts[len(parts)-1])
	mean := t.Sum(parts).Scaled(1 / float64(len(parts)))
	middle := parts[(len(parts)-1)/2 : len(parts)/2+1]
	want, text := map[string]row.Span{"mean": mean, "min": least, "max": most,
		"median": t.Sum(middle).Scaled(1 / float64(len(middle)))}[what], what+" of "+t.List(parts)
	got := t.Base(w)
	h := hit{rows: append(slices.Clone(parts), w), so: wrong}
	switch {
	case what == "" || !isRuns && (w.Unit.Dim == row.Count || what == "min" || what == "max"):
		return hit{}
	case what == "mean" && (!isRuns || w.IsLatency()) && !got.Below(least) && !most.Below(got),
		got.Meets(want): // a mean of all samples weights the parts differently
		return hit{}
	case what == "mean" && !got.Below(least) && !most.Below(got) && w.Unit.Dim == row.Share:
		h.severity, h.so = claims.Suspicious, "Unless they have different weights, one of the figures is wrong."
	}
	h.sum = []string{text + " = " + t.Like(w, want.Mid) + ", printed " + t.Printed(w)}
	return h
}

// unlabelled finds a percentile of everything that is the mean of the percentiles of the parts.
func (t *table) unlabelled(w *row.Row, what, _ string, parts []*row.Row) hit {
	least, most := t.Extremes(parts)
	mean, got := t.Sum(parts).Scaled(1/float64(len(parts))), t.Base(w)
	if what != "" || w.Unit.Dim != row.Duration || w.Stat.Kind != "percentile" || w.Stat.Rank <= 50 ||
		40*(got.High-got.Low) > t.Base(most).Mid-t.Base(least).Mid || !got.Meets(mean) {
		return hit{}
	}
	return hit{rows: append(parts, w), sum: []string{"mean of " + t.List(parts) + " = " + t.Like(w, mean.Mid) +
		", which is printed"}, so: "It looks like a mean of percentiles, which is no percentile: that of all " +
		"samples together is anywhere between the least and the largest of them."}
}

// scaled compares speed-ups and efficiencies of several CPUs with the rate, or the time, of one.
func (t *table) scaled() []hit {
	var hits []hit
	use := func(w *row.Row) bool {
		return w.Measured() && w.Unit.Dim == row.Share && (w.Has("speedup") || w.Has("efficiency") &&
			w.Has("scaling", "parallel", "speedup"))
	}
	for _, w := range row.Keep(t.Rows, use) {
		for _, p := range w.Parts {
			n, err := strconv.ParseFloat(p.Value, 64)
			is := slices.Contains(strings.Fields("cpus cores threads workers queues nodes"), p.Key)
			if !is || err != nil || n <= 1 {
				continue
			}
			rest, _ := row.Without(w.Parts, func(o row.Part) bool { return o == p })
			one := w.Group + "\x00" + row.Unordered(append(rest, row.Part{Key: p.Key, Value: "1"}))
			isRate := func(o *row.Row) bool {
				return o.Measured() && !o.IsEach() && (o.Unit.Dim >= row.Rate && o.Unit.Dim <= row.BitRate &&
					o.Unit.Dim != row.Size && o.Unit.Dim != row.Bits || o.Unit.Dim == row.Duration && !o.IsLatency())
			}
			here := row.Keep(t.Of[w], isRate)
			words := row.Drop(w.Words, strings.Fields("speedup scaling parallel efficiency"))
			if len(here) != 1 || len(words) > 0 && !sameFigure(words, here[0].Words) || saysWeak.MatchString(w.Prose) {
				continue
			}
			base := t.Only(row.Keep(t.Rows, func(o *row.Row) bool {
				return o.Conditions == one && o.Figure == here[0].Figure && o.Unit.Dim == here[0].Unit.Dim
			}))
			if base == nil {
				continue
			}
			f := formula.Formula("a ÷ b")
			if here[0].Unit.Dim == row.Duration {
				f = "b ÷ a"
			}
			if w.Has("efficiency") {
				f = formula.Formula("( " + string(f) + " ) ÷ n")
			}
			hits = append(hits, t.ratio(w, f, map[string]*row.Row{"a": here[0], "b": base}, n, "")...)
		}
	}
	return hits
}

// ratio checks a figure against a formula of two others and a number.
func (t *table) ratio(w *row.Row, f formula.Formula, of map[string]*row.Row, n float64, so string) []hit {
	v := f.Value(func(name string) row.Span {
		if of[name] == nil {
			return row.Exactly(n)
		}
		return t.Base(of[name])
	})
	if got := t.Base(w); !v.Finite() || v.Meets(got) {
		return nil
	}
	text := f.Text(func(name string) string {
		if of[name] == nil {
			return row.Number(n)
		}
		return t.Printed(of[name])
	})
	h := hit{rows: []*row.Row{of["a"], of["b"], w}, so: cmp.Or(so, wrong),
		sum: []string{text + " = " + t.Like(w, v.Mid) + ", printed " + t.Printed(w)}}
	if so != "" {
		h.severity = claims.Suspicious
	}
	return []hit{h}
}

// quotients checks figures in a ratio of two units, such as cycles/packet, EUR/core or W/Gbps. It compares
// them with the one figure in each of the two units that their configuration has, or in both per second.
func (t *table) quotients() []hit {
	notAll := strings.Fields("marginal extra idle additional")
	const about, so = 0.01, "One of the three is wrong, or they are of different things."
	var hits []hit
	for _, w := range t.Rows {
		k := strings.LastIndex(w.UnitText, "/")
		if w.Unit.Dim != row.Other || k < 1 || !w.Measured() || w.IsChange() ||
			w.Has(notAll...) || w.Stat.Kind != "" && w.Stat.Kind != "mean" {
			continue
		}
		over, under := w.UnitText[:k], w.UnitText[k+1:]
		for _, second := range []bool{false, true} {
			a, b := t.inUnit(w, over, second), t.inUnit(w, under, second)
			if a == nil || b == nil || t.Of[a][0] != t.Of[w][0] && t.Of[b][0] != t.Of[w][0] {
				continue
			}
			ua, _ := row.UnitOf(over)
			ub, _ := row.UnitOf(under)
			as := *w // in base units
			as.Value = row.Span{Low: w.Value.Low * (1 - about), Mid: w.Value.Mid, High: w.Value.High * (1 + about)}
			as.Unit.Factor = cmp.Or(ua.Factor, 1) / cmp.Or(ub.Factor, 1)
			found := t.ratio(&as, "a ÷ b", map[string]*row.Row{"a": a, "b": b}, 1, so)
			for _, h := range found {
				h.rows[2] = w
				hits = append(hits, h)
			}
			break
		}
	}
	return hits
}

// inUnit returns the only figure in a unit, or in it per second, of a row's configuration, else of the setup.
func (t *table) inUnit(w *row.Row, name string, second bool) *row.Row {
	u, known := row.UnitOf(name)
	if plural, is := row.UnitOf(name + "s"); !known && is {
		u = plural
	}
	dim := u.Dim
	if second {
		dim = map[row.Dimension]row.Dimension{row.Energy: row.Power, row.Size: row.SizeRate, row.Bits: row.BitRate,
			row.Count: row.Rate}[dim]
	}
	is := func(o *row.Row) bool {
		event, _, _ := strings.Cut(strings.ToLower(o.UnitText), "/")
		named := o.Has(name, name+"s") || strings.TrimSuffix(event, "s") == strings.TrimSuffix(name, "s")
		return o != w && o.Measured() && o.Unit.Dim == dim && dim > row.Text && !o.IsEach() && !o.IsChange() &&
			!o.Has(strings.Fields("idle stalled lost dropped failed errors link nic port line rated tdp peak")...) &&
			(o.Stat.Kind == "" || o.Stat.Kind == "mean") &&
			(dim != row.Count && dim != row.Rate || u.Dim == row.Rate || named) &&
			(dim != row.Other || o.UnitText == name) && (dim != row.Share && dim != row.Duration || o.Has("cpu"))
	}
	if own := row.Keep(t.Of[w], is); len(own) > 0 {
		return t.Only(own)
	}
	return t.Only(row.Keep(t.Rows, func(o *row.Row) bool {
		return is(o) && o.Source == w.Source && (o.IsSetup() || o.Group == w.Group && len(o.Parts) == 0)
	}))
}
