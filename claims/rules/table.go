package rules

import (
	"slices"
	"strings"

	"isolane.dev/isolane/claims/role"
	"isolane.dev/isolane/claims/row"
)

// cell is a configuration and its figures.
type cell []*row.Row

// table is what the rules look at.
type table struct {
	rows   []*row.Row
	cells  []cell
	of     map[*row.Row]cell
	binary map[[2]string]bool // source and unit whose prefix means powers of 1,024
	roles  map[string]*place
	links  map[string]links // by source
}

// tableOf puts the rows of a configuration together.
func tableOf(rows []*row.Row) *table {
	t := &table{rows: rows, of: map[*row.Row]cell{}, binary: map[[2]string]bool{}, roles: map[string]*place{},
		links: map[string]links{}}
	t.cells = row.Grouped[cell](rows, byConditions)
	for _, c := range t.cells {
		for _, w := range c {
			t.of[w] = c
		}
	}
	for name, is := range role.All() {
		r := &place{*is, map[*row.Row][]*row.Row{}, map[string][]*row.Row{}}
		t.roles[name] = r
		for _, w := range rows {
			if !r.Fits(w) {
				continue
			}
			first := t.of[w][0]
			r.own[first] = append(r.own[first], w)
			if len(w.Parts) == 0 {
				r.setup[w.Group] = append(r.setup[w.Group], w)
			}
			if w.IsSetup() || r.Fastest {
				r.setup[w.Source] = append(r.setup[w.Source], w)
			}
		}
	}
	for _, c := range row.Grouped[cell](rows, bySource) {
		t.links[c[0].Source] = t.linksOf(c)
	}
	return t
}

// groups returns the rows for which use holds, by what key says, in the order of the table.
func (t *table) groups(use func(*row.Row) bool, key func(*row.Row) string) []cell {
	return row.Grouped[cell](row.Keep(t.rows, use), key)
}

// base is a figure in seconds, bytes or per second of them, as the other figures say that its unit is meant.
func (t *table) base(w *row.Row) row.Span { return w.Value.Scaled(t.scale(w)) }

func (t *table) scale(w *row.Row) float64 {
	if t.isBinary(w) {
		return w.Unit.Binary
	}
	return w.Unit.Factor
}

func (t *table) isBinary(w *row.Row) bool { return t.binary[[2]string{w.Source, w.UnitText}] }

// printed is a row's figure as the table has it, with the unit as it is meant; a count needs none.
func (t *table) printed(w *row.Row) string {
	switch {
	case w.UnitText == "count":
		return row.Thousands(w.Text)
	case t.isBinary(w):
		return row.Thousands(w.Text) + " " + row.BinaryName(w.UnitText)
	default:
		return row.Thousands(w.Text) + " " + w.UnitText
	}
}

// like prints a value in the unit of a row, and shares in percent where it is not times.
func (t *table) like(w *row.Row, v float64) string {
	if w.Unit.Dim == row.Share && w.Unit.Factor < 1 {
		return row.Percent(v)
	}
	as := *w
	as.Text = ""
	return row.Number(v/t.scale(w)) + strings.TrimSuffix(t.printed(&as), " ")
}

// place is the figures of a role.
type place struct {
	role.Role
	own   map[*row.Row][]*row.Row // by the first row of a cell
	setup map[string][]*row.Row   // that hold for other cells too, by group or source
}

// find is the figure of a role for a cell: its own, else that of its scenario without
// conditions, else the setup's. Where there are several values it is none.
func (t *table) find(c cell, name string, fits func(*row.Row) bool) *row.Row {
	r, at := t.roles[name], c[0]
	if own := row.Keep(r.own[at], fits); len(own) > 0 && !r.Fastest {
		return t.only(own)
	}
	if said := at.Said(r.Dims[0], strings.Split(r.Settings, ",")...); said != nil {
		return said
	}
	if r.Fastest {
		var most *row.Row
		for _, w := range r.setup[at.Source] {
			if most == nil || t.base(w).Mid > t.base(most).Mid {
				most = w
			}
		}
		return most
	}
	if wide := row.Keep(r.setup[at.Group], fits); len(wide) > 0 {
		return t.only(wide)
	}
	wide := row.Keep(r.setup[at.Source], fits)
	isOfIt := func(w *row.Row) bool { return len(w.Parts) > 0 && row.Covers(w.Parts, at.Parts) }
	if of := row.Keep(wide, isOfIt); of != nil { // what the setup says of the very conditions
		wide = of
	}
	return t.only(wide)
}

// only is the one value that rows have.
func (t *table) only(rows []*row.Row) *row.Row {
	other := func(w *row.Row) bool { return t.base(w) != t.base(rows[0]) }
	if len(rows) == 0 || slices.ContainsFunc(rows, other) {
		return nil
	}
	return rows[0]
}
