package top

import (
	"strings"

	"isolane.dev/isolane/terminal"
)

// row is a line of a table. quiet means that nothing in it is from the last second.
type row struct {
	quiet bool
	cells []string
}

// table is a list of rows of one line each, of which one may be chosen. (Tables of package terminal show all
// rows, and fold cells.)
type table struct {
	head    []string
	rows    []row
	figures string // r for columns that are right-aligned
	drop    []int  // columns that are left out if there is no room, in this order
	fold    int    // the column that is cut to a few letters before any is left out
}

const (
	gap           = 2  // between columns, and for the mark of the chosen row
	minFoldColumn = 32 // letters of the fold column before others are left out
)

// fit returns the widths of the columns; 0: left out.
func (t table) fit(columns int) []int {
	widths := make([]int, len(t.head))
	for _, cells := range append([]row{{cells: t.head}}, t.rows...) {
		for k, c := range cells.cells {
			widths[k] = max(widths[k], terminal.Width(c))
		}
	}
	over := func() int {
		sum := -columns
		for _, w := range widths {
			if w > 0 {
				sum += gap + w
			}
		}
		return max(0, sum)
	}
	cut := func(least int) { widths[t.fold] = max(min(widths[t.fold], least), widths[t.fold]-over()) }
	cut(minFoldColumn)
	for _, k := range t.drop {
		if over() > 0 {
			widths[k] = 0
		}
	}
	cut(1)
	return widths
}

// line returns a row's cells, each after a gap.
func (t table) line(widths []int, cells []string) string {
	text := ""
	for k, c := range cells {
		if widths[k] == 0 {
			continue
		}
		if terminal.Width(c) > widths[k] {
			c = terminal.Cut(plain(c), widths[k])
		}
		pad := strings.Repeat(" ", widths[k]-terminal.Width(c))
		if t.figures[k] == 'r' {
			c, pad = pad+c, ""
		}
		text += strings.Repeat(" ", gap) + c + pad
	}
	return strings.TrimRight(text, " ")
}

// lines returns at most room lines: the head, and rows that include the row at; -1: no row.
func (t table) lines(on terminal.Terminal, at, room int) []string {
	widths := t.fit(on.Columns)
	lines := []string{on.Bold(t.line(widths, t.head))}
	for i := max(0, at-max(1, room-1)+1); i < len(t.rows) && len(lines) < room; i++ {
		text := t.line(widths, t.rows[i].cells)
		switch {
		case i == at && on.Colour:
			text = "\x1b[7m>" + plain(text[1:]) + "\x1b[0m"
		case i == at:
			text = ">" + text[1:]
		case t.rows[i].quiet:
			text = on.Dim(text)
		}
		lines = append(lines, text)
	}
	return lines
}
