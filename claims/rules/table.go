package rules

import (
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/claims"
)

// cell is a configuration and its figures.
type cell []*row

// table is what the rules look at.
type table struct {
	rows   []*row
	cells  []cell
	of     map[*row]cell
	binary map[[2]string]bool // source and unit whose prefix means powers of 1,024
	roles  map[string]*role
	links  map[string]links // by source
}

// tableOf puts the rows of a configuration together.
func tableOf(rows []*row) *table {
	t := &table{rows: rows, of: map[*row]cell{}, binary: map[[2]string]bool{}, roles: roles(),
		links: map[string]links{}}
	t.cells = grouped[cell](rows, byConditions)
	for _, c := range t.cells {
		for _, w := range c {
			t.of[w] = c
		}
	}
	for _, r := range t.roles {
		r.own, r.setup = map[*row][]*row{}, map[string][]*row{}
		for _, w := range rows {
			if !r.fits(w) {
				continue
			}
			first := t.of[w][0]
			r.own[first] = append(r.own[first], w)
			if len(w.parts) == 0 {
				r.setup[w.group] = append(r.setup[w.group], w)
			}
			if w.isSetup() || r.fastest {
				r.setup[w.source] = append(r.setup[w.source], w)
			}
		}
	}
	for _, c := range grouped[cell](rows, func(w *row) string { return w.source }) {
		t.links[c[0].source] = t.linksOf(c)
	}
	return t
}

// groups returns the rows for which use holds, by what key says, in the order of the table.
func (t *table) groups(use func(*row) bool, key func(*row) string) []cell {
	return grouped[cell](keep(t.rows, use), key)
}

// grouped returns items by what key says, in their order.
func grouped[S ~[]E, E any](items S, key func(E) string) []S {
	at := map[string]int{}
	var groups []S
	for _, item := range items {
		k, known := at[key(item)]
		if !known {
			k = len(groups)
			at[key(item)], groups = k, append(groups, nil)
		}
		groups[k] = append(groups[k], item)
	}
	return groups
}

// base is a figure in seconds, bytes or per second of them, as the other figures say that its unit is meant.
func (t *table) base(w *row) span { return w.value.scaled(t.scale(w)) }

func (t *table) scale(w *row) float64 {
	if t.isBinary(w) {
		return w.unit.binary
	}
	return w.unit.factor
}

func (t *table) isBinary(w *row) bool { return t.binary[[2]string{w.source, w.unitText}] }

// printed is a row's figure as the table has it, with the unit as it is meant; a count needs none.
func (t *table) printed(w *row) string {
	switch {
	case w.unitText == "count":
		return thousands(w.text)
	case t.isBinary(w):
		return thousands(w.text) + " " + binaryName(w.unitText)
	default:
		return thousands(w.text) + " " + w.unitText
	}
}

// like prints a value in the unit of a row, and shares in percent.
func (t *table) like(w *row, v float64) string {
	if w.unit.dim == share {
		return percent(v)
	}
	as := *w
	as.text = ""
	return number(v/t.scale(w)) + strings.TrimSuffix(t.printed(&as), " ")
}

// role is which figures take a place in a formula.
type role struct {
	dims             []dimension
	words, not, only string            // of the metric: one of these, none of those; no other
	stats            []string          // none and mean where there are none
	settings         string            // conditions that say it too, by comma
	nominal          bool              // exact, however it is printed
	asked            bool              // also what is claimed, a limit or a bound
	fastest          bool              // of the source, however many there are
	change           bool              // also a difference between two figures
	own              map[*row][]*row   // by the first row of a cell
	setup            map[string][]*row // that hold for other cells too, by group or source
}

// fits says whether a row can take the place.
func (r *role) fits(w *row) bool {
	if !slices.Contains(r.dims, w.unit.dim) || w.unit.points || w.isEach() && r.only == "" && r.words != "" {
		return false
	}
	words := strings.Fields(r.words)
	stats := r.stats
	if stats == nil {
		stats = []string{"", "mean"}
	}
	event, _, _ := strings.Cut(strings.ToLower(w.unitText), "/") // also of the unit: req/s, Mpps
	return slices.Contains(stats, w.stat.kind) &&
		(r.asked || w.measured()) && (len(words) == 0 || w.has(words...) || slices.Contains(words, event)) &&
		!w.has(strings.Fields(r.not)...) && (r.only == "" || len(drop(w.words, append(words,
		strings.Fields(r.only)...))) == 0) && (!w.isChange() || r.change)
}

// find is the figure of a role for a cell: its own, else that of its scenario without
// conditions, else the setup's. Where there are several values it is none.
func (t *table) find(c cell, name string, fits func(*row) bool) *row {
	r, at := t.roles[name], c[0]
	if own := keep(r.own[at], fits); len(own) > 0 && !r.fastest {
		return t.only(own)
	}
	if said := at.said(r.dims[0], strings.Split(r.settings, ",")...); said != nil {
		return said
	}
	if r.fastest {
		var most *row
		for _, w := range r.setup[at.source] {
			if most == nil || t.base(w).mid > t.base(most).mid {
				most = w
			}
		}
		return most
	}
	if wide := keep(r.setup[at.group], fits); len(wide) > 0 {
		return t.only(wide)
	}
	return t.only(keep(r.setup[at.source], fits))
}

func keep(rows []*row, which func(*row) bool) (kept []*row) {
	for _, w := range rows {
		if which == nil || which(w) {
			kept = append(kept, w)
		}
	}
	return kept
}

// only is the one value that rows have.
func (t *table) only(rows []*row) *row {
	if len(rows) == 0 || slices.ContainsFunc(rows, func(w *row) bool { return t.base(w) != t.base(rows[0]) }) {
		return nil
	}
	return rows[0]
}

// measured says whether a figure can be reckoned with.
func (w *row) measured() bool {
	return slices.Contains([]string{"", "exact", "approx", "as_written", "worded"}, w.qualifier)
}

// measure is the same for figures that can be compared.
func (w *row) measure() string {
	if w.unit.dim == other {
		return w.unitText
	}
	return strconv.Itoa(int(w.unit.dim))
}

// isSetup says whether a row describes the conditions of all measurements of its source.
func (w *row) isSetup() bool {
	return slices.ContainsFunc(w.general, func(word string) bool {
		switch word {
		case "setup", "workload", "common", "method", "environment", "settings", "parameters":
			return true
		}
		return false
	})
}

// asFigure is what a finding shows of a row.
func (w *row) asFigure() claims.Figure {
	return claims.Figure{Line: w.line, At: w.at, Source: w.source, Scenario: w.scenario, Config: w.config,
		Metric: w.metric, Value: w.text, Unit: w.unitText, Qualifier: w.qualifier, Setup: w.isSetup()}
}

// isResult is for rows with a figure of a measurement.
func (w *row) isResult() bool {
	return slices.Contains([]dimension{duration, rate, sizeRate, bitRate, share}, w.unit.dim) && !w.isSetup()
}

// isBound is for rows that say one end of a range.
func (w *row) isBound() bool {
	return strings.HasPrefix(w.qualifier, "range_") || strings.HasSuffix(w.qualifier, "_bound")
}

func (w *row) isLatency() bool { return w.has(strings.Fields(latencyWords)...) }

// isChange says whether a metric is a difference, which may be negative.
func (w *row) isChange() bool { return w.has(strings.Fields(changeWords)...) }

func (w *row) has(words ...string) bool {
	return slices.ContainsFunc(w.words, func(word string) bool { return slices.Contains(words, word) })
}

func drop(words, which []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(which, w) })
}
