// Package cells groups the rows of a published table by their configurations. It finds and prints the figures
// that formulas need.
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

// Table is what the rules check.
type Table struct {
	Rows   []*row.Row
	Cells  []Cell
	Of     map[*row.Row]Cell
	Used   map[*row.Row]bool  // figures of which a rule took the value
	Binary map[[2]string]bool // source and unit whose prefix means a power of 1,024
	Roles  map[string]*Place
}

// Of groups the rows by configuration.
func Of(rows []*row.Row) *Table {
	t := &Table{Rows: rows, Of: map[*row.Row]Cell{}, Used: map[*row.Row]bool{}, Binary: map[[2]string]bool{},
		Roles: map[string]*Place{}}
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

// Groups returns the rows that use accepts, grouped by key, in the order of the table.
func (t *Table) Groups(use func(*row.Row) bool, key func(*row.Row) string) []Cell {
	return row.Grouped[Cell](row.Keep(t.Rows, use), key)
}

// Base returns a figure in seconds, bytes, or either per second. The prefix of its unit means what the other
// figures show.
func (t *Table) Base(w *row.Row) row.Span {
	t.Used[w] = true
	return t.value(w)
}

func (t *Table) value(w *row.Row) row.Span { return w.Value.Scaled(t.scale(w)) }

func (t *Table) scale(w *row.Row) float64 {
	if t.isBinary(w) {
		return w.Unit.Binary
	}
	return w.Unit.Factor
}

func (t *Table) isBinary(w *row.Row) bool { return t.Binary[[2]string{w.Source, w.UnitText}] }

// Printed returns a row's figure as the table prints it, with its unit as it is meant. A count has no unit.
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

// Like prints a value in the unit of a row, but a share in percent, unless the row prints shares as factors.
func (t *Table) Like(w *row.Row, v float64) string {
	if w.Unit.Dim == row.Share && w.Unit.Factor < 1 {
		return row.Percent(v)
	}
	as := *w
	as.Text = ""
	return row.Number(v/t.scale(w)) + strings.TrimSuffix(t.Printed(&as), " ")
}

// Place has the figures that a role stands for.
type Place struct {
	role.Role
	Own   map[*row.Row][]*row.Row // by the first row of a cell
	Setup map[string][]*row.Row   // that also hold for other cells, by group or source
}

// Find returns the figure of a role for a cell: its own, else that of its scenario without conditions, else
// the setup's. It returns nil if there are several values.
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
			if most == nil || t.value(w).Mid > t.value(most).Mid {
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
	if of := row.Keep(wide, isOfIt); of != nil { // what the setup says about these very conditions
		wide = of
	}
	return t.Only(wide)
}

// Only returns the first row if all rows have the same value, else nil.
func (t *Table) Only(rows []*row.Row) *row.Row {
	other := func(w *row.Row) bool { return t.value(w) != t.value(rows[0]) }
	if len(rows) == 0 || slices.ContainsFunc(rows, other) {
		return nil
	}
	return rows[0]
}

// Extremes returns the rows with the least and the largest figure.
func (t *Table) Extremes(rows []*row.Row) (least, most *row.Row) {
	byBase := func(a, b *row.Row) int { return cmp.Compare(t.Base(a).Mid, t.Base(b).Mid) }
	return slices.MinFunc(rows, byBase), slices.MaxFunc(rows, byBase)
}

// Sum adds up figures.
func (t *Table) Sum(rows []*row.Row) row.Span {
	sum := row.Exactly(0)
	for _, w := range rows {
		sum = row.Combine(sum, t.Base(w), func(a, b float64) float64 { return a + b })
	}
	return sum
}

// List prints figures in one line, in their order.
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
