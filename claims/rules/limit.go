package rules

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// atLimit finds what is within 1% of what a link can carry.
func (t *table) atLimit() []hit {
	const near = 0.01
	ceilings := []struct {
		name  string
		share float64
	}{{"TCP payload at MTU 1500", tcp1500}, {"TCP payload at MTU 9000", tcp9000}, {"the link", 1}}
	var hits []hit
	for _, i := range t.instances(law{left: "moved", sign: "≤", right: "link", in: bitRate, unless: offLink}) {
		w, link := i.rows["moved"], i.rows["link"]
		full := i.get("link").mid
		v := t.base(w).mid / full
		for _, c := range ceilings {
			if math.Abs(v/c.share-1) > near || v > 1 && c.share < 1 {
				continue
			}
			hits = append(hits, hit{rows: []*row{link, w}, sum: []string{i.side(i.left), fmt.Sprintf(
				"%s × %s (%s) = %s; %.1f%% of it", i.text("link"), percent(c.share), c.name,
				show(bitRate, c.share*full), 100*v/c.share)},
				so: "Perhaps the link is the limit, not what was measured: read it as \"at least\"."})
			break
		}
	}
	return append(hits, t.limited()...)
}

// limited finds what a row with the qualifier limit ended: the largest share of a baseline beside it.
func (t *table) limited() []hit {
	var hits []hit
	use := func(w *row) bool {
		return w.qualifier == "limit" && w.unit.dim == bitRate || w.measured() && w.unit.dim == share &&
			w.has("rel") && w.has(strings.Fields(movedWords)...)
	}
	for _, rows := range t.groups(use, func(w *row) string { return w.group }) {
		k := slices.IndexFunc(rows, func(w *row) bool { return w.qualifier == "limit" })
		shares := slices.DeleteFunc(slices.Clone(rows), func(w *row) bool { return w.qualifier == "limit" })
		if k < 0 || len(shares) < 2 {
			continue
		}
		_, most := t.extremes(shares)
		hits = append(hits, hit{rows: []*row{rows[k], most}, sum: []string{fmt.Sprintf(
			"%s of the baseline is %s at most: %s ÷ %s = %s is the baseline at most", t.printed(most),
			t.printed(rows[k]), t.printed(rows[k]), percent(t.base(most).mid),
			show(bitRate, t.base(rows[k]).mid/t.base(most).mid))},
			so: fmt.Sprintf("The table names a limit: read it as \"at least %s\".", t.printed(most))})
	}
	return hits
}

// notIsolated holds the CPU that a measurement is bound to against those that are said to be isolated.
func (t *table) notIsolated() []hit {
	var hits []hit
	for _, w := range t.rows {
		if w.unit.dim != id || !w.has("affinity") {
			continue
		}
		h := hit{so: "Bound so where those CPUs are isolated, it measured a CPU that everybody uses."}
		var inside []string
		for _, c := range t.cells {
			named := slices.Contains(c[0].general, "isolcpus") || slices.Contains(c[0].general, "isolated")
			ids := keep(c, func(o *row) bool { return o.unit.dim == id && o.has("cpu", "cpus") })
			if !named || c[0].source != w.source || len(ids) == 0 || len(h.sum) == mostSums {
				continue
			}
			first, last := t.extremes(ids)
			where := fmt.Sprintf("%s-%s (%s)", first.text, last.text, c[0].config)
			if first == last {
				where = fmt.Sprintf("%s (%s)", first.text, c[0].config)
			}
			if w.value.mid < first.value.mid || w.value.mid > last.value.mid {
				h.rows, h.sum = append(h.rows, ids...), append(h.sum, "CPU "+w.text+" is not in "+where)
			} else {
				inside = append(inside, "but it is in "+where)
			}
		}
		if len(h.rows) > 0 {
			h.rows, h.sum = append(h.rows, w), append(h.sum, inside[:min(len(inside), mostSums)]...)
			hits = append(hits, h)
		}
	}
	return hits
}
