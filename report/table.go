package report

import (
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
)

// table is what the terminal and the page print. A row with fewer cells than columns has a remark instead of
// figures.
type table struct {
	Title   string
	Columns []column
	Rows    [][]string
	Notes   []string
}

// column is a column of figures, or of words, which are left-aligned and may be wrapped. It says what it
// shows of a cell.
type column struct {
	Name     string
	Words    bool
	Long     bool // words that need a line of their own on a narrow page
	optional bool // dropped if it says nothing
	of       func(figures.Cell) string
}

// heads returns columns for a table that fills its rows itself; the first ones hold words.
func heads(words int, names ...string) []column {
	var all []column
	for k, name := range names {
		all = append(all, column{Name: name, Words: k < words})
	}
	return all
}

// newTable returns a table with a row for each cell. missing, unless nil, says why there are no figures, or
// "".
func newTable(
	title string, cells []figures.Cell, missing func(figures.Cell) string, columns ...column,
) table {
	t := table{Title: title, Columns: append(heads(1, "cell"), columns...)}
	without := map[string][]string{}
	for _, c := range cells {
		row := []string{c.Label()}
		why := ""
		if missing != nil {
			why = missing(c)
		}
		if why != "" {
			row = append(row, why)
			without[why] = append(without[why], c.Label())
		} else {
			for _, k := range t.Columns[1:] {
				row = append(row, k.of(c))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	t.drop()
	for _, why := range slices.Sorted(maps.Keys(without)) {
		if len(without[why]) < manyUnmeasured {
			continue
		}
		t.Rows = slices.DeleteFunc(t.Rows, func(row []string) bool { return t.Short(row) && row[1] == why })
		if why != figures.NoRun {
			t.Notes = append(t.Notes, why+": "+strings.Join(without[why], ", ")+".")
		}
	}
	return t
}

// drop removes the optional columns that say nothing.
func (t *table) drop() {
	for k := len(t.Columns) - 1; k > 0; k-- {
		says := func(row []string) bool { return !t.Short(row) && row[k] != "" && row[k] != format.None }
		if !t.Columns[k].optional || slices.ContainsFunc(t.Rows, says) {
			continue
		}
		for i, row := range t.Rows {
			if !t.Short(row) {
				t.Rows[i] = slices.Delete(row, k, k+1)
			}
		}
		t.Columns = slices.Delete(t.Columns, k, k+1)
	}
}

// Short reports whether a row has a remark instead of figures.
func (t table) Short(row []string) bool { return len(row) < len(t.Columns) }

// words says what some columns have, for readers who do not see a chart.
func (t table) words(title string, columns ...string) string {
	var rows []string
	for _, row := range t.Rows {
		text := row[0]
		for k, c := range t.Columns[:len(row)] {
			switch {
			case t.Short(row) && k == 1:
				text += " " + row[1]
			case !t.Short(row) && slices.Contains(columns, c.Name) && row[k] != format.None:
				text += " " + strings.TrimPrefix(c.Name+" ", "% ") + row[k]
			}
		}
		rows = append(rows, text)
	}
	return title + ": " + strings.Join(rows, "; ") + "."
}

// filled returns the tables that say something.
func filled(all ...table) []table {
	return slices.DeleteFunc(all, func(t table) bool { return len(t.Rows)+len(t.Notes) == 0 })
}

// manyUnmeasured is from how many on cells without figures have no rows, and are named once for all tables,
// or in a note.
const manyUnmeasured = 3

// unused returns the cells without a run, if they are many.
func unused(s *figures.Summary) []string {
	var names []string
	for _, c := range s.Cells {
		if c.Unused() == figures.NoRun {
			names = append(names, c.Label())
		}
	}
	if len(names) < manyUnmeasured {
		return nil
	}
	return names
}

// withRuns returns the session without its unused cells.
func withRuns(s *figures.Summary) *figures.Summary {
	unused, shown := unused(s), *s
	shown.Cells = slices.DeleteFunc(slices.Clone(s.Cells), func(c figures.Cell) bool {
		return slices.Contains(unused, c.Label())
	})
	return &shown
}
