// Package cells has the rows of a published table by their configurations, and finds and prints the figures
// that formulas are about.
package cells

import (
	"cmp"
	"slices"
	"strings"

	"isolane.dev/isolane/claims/role"
	"isolane.dev/isolane/claims/row"
)

// Cell is a configuration and its figures.
type Cell []*row.Row

// Table is what the rules look at.
type Table struct {
	Rows   []*row.Row
	Cells  []Cell
	Of     map[*row.Row]Cell
	Binary map[[2]string]bool // source and unit whose prefix means powers of 1,024
	Roles  map[string]*Place
}

// Of puts the rows of a configuration together.
func Of(rows []*row.Row) *Table {
	t := &Table{Rows: rows, Of: map[*row.Row]Cell{}, Binary: map[[2]string]bool{}, Roles: map[string]*Place{}}
	t.Cells = row.Grouped[Cell](rows, func(w *row.Row) string { return w.Conditions })
	for _, c := range t.Cells {
		for _, w := range c {
			t.Of[w] = c
		}
	}
	for name, is := range role.All() {
		r := &Place{*is, map[*row.Row][]*row.Row{}, map[string][]*row.Row{}}
		t.Roles[name] = r
		for _, w := range rows {
			if !r.Fits(w) {
				continue
			}
			first := t.Of[w][0]
			r.Own[first] = append(r.Own[first], w)
			if len(w.Parts) == 0 {
				r.Setup[w.Group] = append(r.Setup[w.Group], w)
			}
			if w.IsSetup() || r.Fastest {
				r.Setup[w.Source] = append(r.Setup[w.Source], w)
			}
		}
	}
	return t
}

// Groups returns the rows for which use holds, by what key says, in the order of the table.
func (t *Table) Groups(use func(*row.Row) bool, key func(*row.Row) string) []Cell {
	return row.Grouped[Cell](row.Keep(t.Rows, use), key)
}

// Base is a figure in seconds, bytes or per second of them, as the other figures say that its unit is meant.
func (t *Table) Base(w *row.Row) row.Span { return w.Value.Scaled(t.scale(w)) }

func (t *Table) scale(w *row.Row) float64 {
	if t.isBinary(w) {
		return w.Unit.Binary
	}
	return w.Unit.Factor
}

func (t *Table) isBinary(w *row.Row) bool { return t.Binary[[2]string{w.Source, w.UnitText}] }

// Printed is a row's figure as the table has it, with the unit as it is meant; a count needs none.
func (t *Table) Printed(w *row.Row) string {
	switch {
	case w.UnitText == "count":
		return row.Thousands(w.Text)
	case t.isBinary(w):
		return row.Thousands(w.Text) + " " + row.BinaryName(w.UnitText)
	default:
		return row.Thousands(w.Text) + " " + w.UnitText
	}
}

// Like prints a value in the unit of a row, and shares in percent where it is not times.
func (t *Table) Like(w *row.Row, v float64) string {
	if w.Unit.Dim == row.Share && w.Unit.Factor < 1 {
		return row.Percent(v)
	}
	as := *w
	as.Text = ""
	return row.Number(v/t.scale(w)) + strings.TrimSuffix(t.Printed(&as), " ")
}

// Place is the figures of a role.
type Place struct {
	role.Role
	Own   map[*row.Row][]*row.Row // by the first row of a cell
	Setup map[string][]*row.Row   // that hold for other cells too, by group or source
}

// Find is the figure of a role for a cell: its own, else that of its scenario without
// conditions, else the setup's. Where there are several values it is none.
func (t *Table) Find(c Cell, name string, fits func(*row.Row) bool) *row.Row {
	r, at := t.Roles[name], c[0]
	if own := row.Keep(r.Own[at], fits); len(own) > 0 && !r.Fastest {
		return t.Only(own)
	}
	if said := at.Said(r.Dims[0], strings.Split(r.Settings, ",")...); said != nil {
		return said
	}
	if r.Fastest {
		var most *row.Row
		for _, w := range r.Setup[at.Source] {
			if most == nil || t.Base(w).Mid > t.Base(most).Mid {
				most = w
			}
		}
		return most
	}
	if wide := row.Keep(r.Setup[at.Group], fits); len(wide) > 0 {
		return t.Only(wide)
	}
	wide := row.Keep(r.Setup[at.Source], fits)
	isOfIt := func(w *row.Row) bool { return len(w.Parts) > 0 && row.Covers(w.Parts, at.Parts) }
	if of := row.Keep(wide, isOfIt); of != nil { // what the setup says of the very conditions
		wide = of
	}
	return t.Only(wide)
}

// Only is the one value that rows have.
func (t *Table) Only(rows []*row.Row) *row.Row {
	other := func(w *row.Row) bool { return t.Base(w) != t.Base(rows[0]) }
	if len(rows) == 0 || slices.ContainsFunc(rows, other) {
		return nil
	}
	return rows[0]
}

// Extremes are the least and the largest figure.
func (t *Table) Extremes(rows []*row.Row) (least, most *row.Row) {
	byBase := func(a, b *row.Row) int { return cmp.Compare(t.Base(a).Mid, t.Base(b).Mid) }
	return slices.MinFunc(rows, byBase), slices.MaxFunc(rows, byBase)
}

// Sum is what figures are together.
func (t *Table) Sum(rows []*row.Row) row.Span {
	sum := row.Exactly(0)
	for _, w := range rows {
		sum = row.Combine(sum, t.Base(w), func(a, b float64) float64 { return a + b })
	}
	return sum
}

// List is figures in one line, in their order.
func (t *Table) List(rows []*row.Row) string {
	const most = 8
	var texts []string
	for _, w := range rows[:min(len(rows), most)] {
		texts = append(texts, t.Printed(w))
	}
	if len(rows) > most {
		texts = append(texts, "…")
	}
	return strings.Join(texts, ", ")
}
