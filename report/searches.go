package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/results"
)

// searchTable has a row for each search, cell and goal. Overload is named; it is no percentile.
func searchTable(s *figures.Summary) table {
	t := table{Title: "Searches: up to where something holds, as brackets", Columns: append(heads(3,
		"search and cell", "goal", "holds at"), heads(0, "carried", "of the first cell", "overloaded from", "gap",
		"trials")...)}
	for _, q := range s.Session.Searches {
		for _, d := range q.Cells {
			t.Rows = append(t.Rows, searchRows(q, d)...)
			t.Notes = append(t.Notes, searchNotes(q, d)...)
		}
		for _, g := range q.Goals {
			t.Notes = append(t.Notes, fmt.Sprintf("%s (%s), %s: %s.", q.Name, q.Varied, g.Name, g.Definition))
		}
	}
	if len(t.Rows) == 0 {
		return table{}
	}
	t.Notes = append(t.Notes, "A trial is a run with fresh processes; the first of a cell, at the hardest "+
		"point, warms up and does not count. What holds beyond a point that fails does not count either (RFC "+
		"9971). Of the first cell: the quotients of the near and of the far ends of both brackets. Gap: how much "+
		"more the first goal allows than the second; behind it what the ends of both leave open.")
	return t
}

func searchRows(q results.Search, d results.Searched) (rows [][]string) {
	for i, b := range d.Brackets {
		row := []string{q.Name + " in " + d.Name, q.Goals[i].Name, bracket(q, b), format.None, ofFirst(q, d, i), "",
			"", ""}
		if b.Throughput != nil {
			row[3] = loadText(q, *b.Throughput)
		}
		if i == 0 {
			row[5], row[6], row[7] = format.None, gapText(d.Gap), trialsText(d)
			if p := overloaded(q, d); p != nil {
				row[5] = loadText(q, *p)
			}
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		rows = append(rows, []string{q.Name + " in " + d.Name, "no trial was made"})
	}
	return rows
}

// bracket says where something holds and where it fails. If only one is known, it bounds from one side.
func bracket(q results.Search, b results.Bracket) string {
	at := func(p float64) string { return loadText(q, p) }
	easier, harder := "less than ", "at least "
	if q.Kind == results.Smallest {
		easier, harder = "more than ", "at most "
	}
	switch {
	case b.Holds == nil && b.Fails == nil:
		return format.None
	case b.Holds == nil:
		return easier + at(*b.Fails)
	case b.Fails == nil:
		return harder + at(*b.Holds)
	}
	return fmt.Sprintf("%s, not %s", at(*b.Holds), at(*b.Fails))
}

// ofFirst compares a bracket of a load with that of the search's first cell: from the near ends of the two to
// the far ones, as far as they are known.
func ofFirst(q results.Search, d results.Searched, goal int) string {
	first := q.Cells[0]
	if q.Kind == results.Smallest || d.Name == first.Name || goal >= len(first.Brackets) {
		return format.None
	}
	own, base := d.Brackets[goal], first.Brackets[goal]
	least := own.Holds != nil && base.Fails != nil
	most := own.Fails != nil && base.Holds != nil
	switch {
	case least && most:
		return format.Percent(*own.Holds / *base.Fails) + " to " + format.Percent(*own.Fails / *base.Holds)
	case least:
		return "at least " + format.Percent(*own.Holds / *base.Fails)
	case most:
		return "at most " + format.Percent(*own.Fails / *base.Holds)
	}
	return format.None
}

// loadText prints a load with four digits, because three may not distinguish close points.
func loadText(q results.Search, v float64) string {
	if a := math.Abs(v); a < 1000 || a >= 1e9 {
		return strconv.FormatFloat(v, 'g', 4, 64) + q.Unit
	}
	return format.Digits(v) + q.Unit
}

func gapText(g *results.Gap) string {
	switch {
	case g == nil:
		return format.None
	case g.High == nil:
		return "at least " + format.Percent(g.Low)
	}
	return fmt.Sprintf("%s (%s to %s)", format.Percent(g.Estimate), format.Percent(g.Low),
		format.Percent(*g.High))
}

func trialsText(d results.Searched) string {
	text := strconv.Itoa(len(d.Trials))
	if n := voidTrials(d); n > 0 {
		text += fmt.Sprintf(" (%d void)", n)
	}
	return text
}

// searchNotes returns what the brackets of a cell do not show.
func searchNotes(q results.Search, d results.Searched) (notes []string) {
	goals := map[string][]string{} // by note
	var said []string
	for i, b := range d.Brackets {
		for _, n := range b.Notes {
			said, goals[n] = append(said, n), append(goals[n], q.Goals[i].Name)
		}
	}
	for _, n := range once(said) {
		notes = append(notes, fmt.Sprintf("%s, %s, %s: %s.", q.Name, d.Name, strings.Join(goals[n], ", "), n))
	}
	if !d.Settled && len(d.Trials) > 0 {
		notes = append(notes, fmt.Sprintf("%s, %s: interrupted after %s.", q.Name, d.Name,
			quantity.Count(len(d.Trials), "trial")))
	}
	return notes
}

// documentSearch is one goal of a search in one cell.
type documentSearch struct {
	Name       string       `json:"name"`
	Cell       string       `json:"cell"`
	Varied     string       `json:"varied"`
	Unit       string       `json:"unit,omitempty"`
	Goal       string       `json:"goal"`
	Definition string       `json:"definition"`
	Holds      *float64     `json:"holds"` // null: nowhere
	Fails      *float64     `json:"fails"` // null: nowhere that was tried
	Throughput *float64     `json:"conditionalThroughput,omitempty"`
	Overloaded *float64     `json:"overloadedFrom,omitempty"`
	Gap        *results.Gap `json:"gap,omitempty"` // of the first goal to the second
	Trials     int          `json:"trials"`        // of all goals
	Void       int          `json:"voidTrials"`
	Notes      []string     `json:"notes,omitempty"`
}

func newSearches(s *figures.Summary) (all []documentSearch) {
	for _, q := range s.Session.Searches {
		for _, d := range q.Cells {
			for i, b := range d.Brackets {
				one := documentSearch{Name: q.Name, Cell: d.Name, Varied: q.Varied, Unit: q.Unit, Goal: q.Goals[i].Name,
					Definition: q.Goals[i].Definition, Holds: b.Holds, Fails: b.Fails, Throughput: b.Throughput,
					Overloaded: overloaded(q, d), Trials: len(d.Trials), Void: voidTrials(d), Notes: b.Notes}
				if i == 0 {
					one.Gap = d.Gap
				}
				all = append(all, one)
			}
		}
	}
	return all
}

// overloaded returns the easiest point of a search at which most trials of a cell were overloaded; nil for
// none.
func overloaded(q results.Search, d results.Searched) *float64 {
	for _, p := range q.Points {
		over, counted := 0, 0
		for _, t := range d.Trials {
			if t.Point != p || t.Dropped != "" || len(t.Void)+len(t.Doubts) > 0 {
				continue
			}
			counted++
			if t.Overloaded != "" {
				over++
			}
		}
		if 2*over > counted {
			return &p
		}
	}
	return nil
}

// voidTrials counts the void and doubtful trials.
func voidTrials(d results.Searched) (n int) {
	for _, t := range d.Trials {
		if len(t.Void)+len(t.Doubts) > 0 {
			n++
		}
	}
	return n
}
