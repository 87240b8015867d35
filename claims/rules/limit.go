package rules

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/claims/formula"
	"isolane.dev/isolane/claims/role"
	"isolane.dev/isolane/claims/row"
)

// atLimit finds figures within 1% of what a link can carry.
func (t *table) atLimit() []hit {
	const near = 0.01
	ceilings := []struct {
		name  string
		share float64
	}{{"TCP payload at MTU 1500", formula.TCP1500}, {"TCP payload at MTU 9000", formula.TCP9000},
		{"the link", 1}}
	var hits []hit
	carried := law{left: "moved", sign: "≤", right: "link", in: row.BitRate, unless: offLink}
	for _, i := range t.instances(carried) {
		w, link := i.rows["moved"], i.rows["link"]
		full := i.get("link").Mid
		v := t.Base(w).Mid / full
		for _, c := range ceilings {
			if math.Abs(v/c.share-1) > near || v > 1 && c.share < 1 {
				continue
			}
			hits = append(hits, hit{rows: []*row.Row{link, w}, sum: []string{i.side(i.left), fmt.Sprintf(
				"%s × %s (%s) = %s; %.1f%% of it", i.text("link"), row.Percent(c.share), c.name,
				row.Show(row.BitRate, c.share*full), 100*v/c.share)},
				so: "Perhaps the link is the limit, not what was measured: read it as \"at least\"."})
			break
		}
	}
	return append(hits, t.limited()...)
}

// limited finds a limit (a row so qualified) that also bounds a baseline, by the largest share of it beside.
func (t *table) limited() []hit {
	var hits []hit
	use := func(w *row.Row) bool {
		return w.Qualifier == "limit" && w.Unit.Dim == row.BitRate || w.Measured() && w.Unit.Dim == row.Share &&
			w.Has("rel") && w.Has(strings.Fields(role.Moved)...)
	}
	for _, rows := range t.Groups(use, func(w *row.Row) string { return w.Group }) {
		k := slices.IndexFunc(rows, func(w *row.Row) bool { return w.Qualifier == "limit" })
		shares := slices.DeleteFunc(slices.Clone(rows), func(w *row.Row) bool { return w.Qualifier == "limit" })
		if k < 0 || len(shares) < 2 {
			continue
		}
		_, most := t.Extremes(shares)
		hits = append(hits, hit{rows: []*row.Row{rows[k], most}, sum: []string{fmt.Sprintf(
			"%s of the baseline is %s at most: %s ÷ %s = %s is the baseline at most", t.Printed(most),
			t.Printed(rows[k]), t.Printed(rows[k]), row.Percent(t.Base(most).Mid),
			row.Show(row.BitRate, t.Base(rows[k]).Mid/t.Base(most).Mid))},
			so: fmt.Sprintf("The table names a limit: read it as \"at least %s\".", t.Printed(most))})
	}
	return hits
}

// notIsolated compares the CPU of a measurement's affinity with those that are said to be isolated.
func (t *table) notIsolated() []hit {
	var hits []hit
	for _, w := range t.Rows {
		if w.Unit.Dim != row.ID || !w.Has("affinity") {
			continue
		}
		h := hit{so: "Bound so where those CPUs are isolated, it measured a CPU that everybody uses."}
		var inside []string
		for _, c := range t.Cells {
			named := slices.Contains(c[0].General, "isolcpus") || slices.Contains(c[0].General, "isolated")
			ids := row.Keep(c, func(o *row.Row) bool { return o.Unit.Dim == row.ID && o.Has("cpu", "cpus") })
			if !named || c[0].Source != w.Source || len(ids) == 0 || len(h.sum) == mostSums {
				continue
			}
			first, last := t.Extremes(ids)
			where := fmt.Sprintf("%s-%s (%s)", first.Text, last.Text, c[0].Config)
			if first == last {
				where = fmt.Sprintf("%s (%s)", first.Text, c[0].Config)
			}
			if w.Value.Mid < first.Value.Mid || w.Value.Mid > last.Value.Mid {
				h.rows, h.sum = append(h.rows, ids...), append(h.sum, "CPU "+w.Text+" is not in "+where)
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

// hosts returns the laws of what a host has.
func hosts() []law {
	const so = "No host has more CPUs for some of its work than it has."
	return []law{
		{rule: "whole", left: "isolated + housekeeping", sign: "≤", right: "host_cpus", in: row.Count,
			unless: isNoHost, so: so},
		{rule: "whole", left: "taken", sign: "≤", right: "host_cpus", in: row.Count, unless: isNoHost, so: so},
		{rule: "whole", left: "cpus", sign: "≤", right: "host_cpus", once: true, in: row.Count, unless: isNoHost,
			so: so, soft: suspect("Unless virtual CPUs share those of the host, or they are of several hosts, a " +
				"figure is wrong.")},
		{rule: "whole", left: "cpu_at", sign: "≤", right: "host_cpus − 1", in: row.Count, unless: isNoHost,
			soft: suspect("Numbers of CPUs begin with 0: the host has none of this number, unless some are offline."),
			so:   so},
	}
}

// ways returns the laws of how long light and bits travel.
func ways() []law {
	const rule, so = "too-fast", "No signal is faster than light: the unit or a figure is wrong."
	late := func(instance) string {
		return "The last bit leaves that much after the first: a figure is wrong, or it did not cross the link."
	}
	all := []law{
		{rule: rule, left: "round_trip", sign: "≥", right: "2 × fibre ÷ glass", unless: isElsewhere},
		{rule: rule, left: "one_way", sign: "≥", right: "fibre ÷ glass", unless: isElsewhere},
		{rule: rule, left: "round_trip", sign: "≥", right: "2 × distance ÷ light", unless: isElsewhere},
		{rule: rule, left: "one_way", sign: "≥", right: "distance ÷ light", unless: isElsewhere},
		{rule: rule, left: "round_trip", sign: "≥", right: "2 × message ÷ link", unless: isOneWay, soft: late},
		{rule: rule, left: "round_trip", sign: "≥", right: "message ÷ link", unless: offLink, soft: late},
		{rule: rule, left: "fetch", sign: "≥", right: "object ÷ link", unless: isNotFetched, soft: late},
	}
	for k := range all {
		all[k].in, all[k].so = row.Duration, so
	}
	return all
}
