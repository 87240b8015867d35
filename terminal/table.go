package terminal

import (
	"slices"
	"strings"
)

const (
	between   = "  " // columns
	leastText = 16   // columns into which a text is folded
	leastLast = 32   // the same for the last column; if there are fewer, it goes below its row
	indent    = "    "
)

// Table has columns as wide as they need to be.
type Table struct {
	Head []string
	// Rows may be shorter than Head. Then the last cell is a remark, which takes the rest of the line.
	Rows    [][]string
	Figures []int // the columns that are right-aligned
}

// Clean returns a table of plain texts with Clean applied to each.
func (t Table) Clean() Table {
	all := func(texts []string) []string {
		texts = slices.Clone(texts)
		for k, text := range texts {
			texts[k] = Clean(text)
		}
		return texts
	}
	clean := Table{Head: all(t.Head), Figures: t.Figures}
	for _, row := range t.Rows {
		clean.Rows = append(clean.Rows, all(row))
	}
	return clean
}

// Table returns the lines of a table within Columns. If it is too wide, the last column is folded, or goes
// below its row; then other texts are folded; and columns for which there is still no room follow below, as a
// table that repeats the first column.
func (t Terminal) Table(table Table) string {
	p := painter{Table: table, columns: t.Columns, from: 1}
	p.Head = slices.Clone(p.Head)
	for i, cell := range p.Head {
		p.Head[i] = t.Bold(cell)
	}
	p.rows = append([][]string{p.Head}, p.Rows...)
	p.measure()
	for p.from < len(p.widths) || p.from == 1 {
		p.to = p.from + 1
		for p.to < len(p.widths) && p.sum(p.from, p.to+1) <= p.columns {
			p.to++
		}
		if p.from > 1 {
			p.WriteString("\n")
		}
		for _, row := range p.rows {
			p.row(row)
		}
		p.from = p.to
	}
	return p.String()
}

// painter writes the first column, and the columns from `from` to `to`.
type painter struct {
	Table
	strings.Builder
	columns  int
	rows     [][]string
	widths   []int
	below    bool // the last column goes below its row
	from, to int
}

func (p *painter) text(column int) bool { return column > 0 && !slices.Contains(p.Figures, column) }

// sum returns the width of the first column and some others.
func (p *painter) sum(from, to int) int {
	wide := p.widths[0]
	for _, w := range p.widths[min(from, len(p.widths)):min(to, len(p.widths))] {
		wide += len(between) + w
	}
	return wide
}

// measure computes the widths of the columns.
func (p *painter) measure() {
	p.widths = make([]int, len(p.Head))
	for _, row := range p.rows {
		for k, cell := range row {
			if len(row) == len(p.Head) || k < len(row)-1 {
				p.widths[k] = max(p.widths[k], Width(cell))
			}
		}
	}
	p.widths[0] = min(p.widths[0], p.columns/2)
	last := len(p.widths) - 1
	if p.sum(1, last+1) > p.columns && p.text(last) {
		if room := p.columns - p.sum(1, last) - len(between); room >= leastLast {
			p.widths[last] = room
		} else {
			p.below, p.widths = true, p.widths[:last]
		}
	}
	least := p.sum(1, len(p.widths)) - p.columns
	for k, w := range p.widths {
		if p.text(k) {
			least -= max(0, w-leastText)
		}
	}
	if least > 0 { // the columns go below each other
		for k := range p.widths {
			if p.text(k) {
				p.widths[k] = min(p.widths[k], max(leastText, p.columns-p.widths[0]-len(between)))
			}
		}
		return
	}
	for over := p.sum(1, len(p.widths)) - p.columns; over > 0; over = p.sum(1, len(p.widths)) - p.columns {
		widest := 0
		for k, w := range p.widths {
			if p.text(k) && (widest == 0 || w > p.widths[widest]) {
				widest = k
			}
		}
		p.widths[widest] = max(leastText, p.widths[widest]-over)
	}
}

// row writes a row's cells of these columns, in as many lines as they need.
func (p *painter) row(row []string) {
	if len(row) < len(p.Head) && len(row) > 0 {
		p.remark(row)
		return
	}
	columns := []int{0}
	for k := p.from; k < min(p.to, len(p.widths)); k++ {
		columns = append(columns, k)
	}
	var cells [][]string
	high := 1
	for _, k := range columns {
		lines := []string{row[k]}
		if Width(row[k]) > p.widths[k] {
			lines = fold(row[k], p.widths[k])
		}
		cells, high = append(cells, lines), max(high, len(lines))
	}
	for i := range high {
		line := ""
		for c, k := range columns {
			cell := ""
			if i < len(cells[c]) {
				cell = cells[c][i]
			}
			pad := strings.Repeat(" ", max(0, p.widths[k]-Width(cell)))
			if slices.Contains(p.Figures, k) {
				cell, pad = pad+cell, ""
			}
			if c > 0 {
				line += between
			}
			line += cell + pad
		}
		p.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if last := row[len(row)-1]; p.below && p.to >= len(p.widths) && last != "" {
		p.WriteString(Terminal{Columns: p.columns}.Fold(indent, last))
	}
}

// remark writes, once, a row whose last cell replaces the missing ones.
func (p *painter) remark(row []string) {
	if p.from > 1 {
		return
	}
	line := ""
	for k, cell := range row[:len(row)-1] {
		line += cell + strings.Repeat(" ", max(0, p.widths[min(k, len(p.widths)-1)]-Width(cell))) + between
	}
	p.WriteString(Terminal{Columns: p.columns}.Fold(line, row[len(row)-1]))
}
