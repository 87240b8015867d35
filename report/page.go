package report

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"isolane.dev/isolane/report/evidence"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

//go:embed page.html.tmpl
var pageTemplate string

// pageName is the name of the page in a results directory.
const pageName = "report.html"

// page is what the template prints.
type page struct {
	*figures.Summary
	ObjectiveTitle  string // "" if no lane was proved
	Bounds          []string
	Matrix          matrix
	Charts, Further []picture
	Tables          []table // without a chart
	Proof           []table
	Sources         table
	Blocks          []table
	Raw             json.RawMessage
}

// writePage writes the page: one file that needs no network and no JavaScript, with the whole session in it.
func writePage(w io.Writer, s *figures.Summary, pictures []picture) error {
	t := template.Must(template.New(pageName).Funcs(template.FuncMap{
		"lines": firstLines, "found": found, "sentences": sentences, "caveats": caveats, "runNotes": runNotes,
		"shared": shared, "listed": listed, "capital": capital, "boots": evidence.BootLines,
		"join":       func(all []string) string { return strings.Join(all, ", ") },
		"percent":    func(ratio float64) string { return fmt.Sprintf("%g%%", 100*ratio) },
		"samplesFor": func(p float64) string { return format.Count(stats.SamplesFor(p)) },
		"gibibytes":  func(bytes uint64) string { return format.Digits(float64(bytes)/(1<<30)) + " GiB" },
		"drawn":      func(svg []byte) template.HTML { return template.HTML(svg) }, //nolint:gosec // G203: escaped
	}).Parse(pageTemplate))
	raw, err := json.Marshal(s.Session.Versioned())
	if err != nil {
		return err
	}
	p := page{Summary: s, Matrix: newMatrix(s), Sources: sourceTable(s), Raw: raw,
		Tables: filled(searchTable(s), costTable(s), winTable(s), tailTable(s), publishedTable(s), workTable(s),
			roleTable(s, results.Cost, "What the figures were paid with"), roleTable(s, results.Check, "Checks")),
		Proof: filled(threadTable(s), rateTable(s), guardTable(s), distanceTable(s), factTable(s))}
	p.ObjectiveTitle, p.Bounds = objectiveLines(s)
	for _, c := range pictures {
		if c.Minor {
			p.Further = append(p.Further, c)
		} else {
			p.Charts = append(p.Charts, c)
		}
	}
	for _, m := range s.Ordered() {
		if (m.IsPrimary() || m.Statistic == "") && s.Has(m) {
			p.Blocks = append(p.Blocks, blockTable(s, m))
		}
	}
	return t.Execute(w, p)
}

// runNotes counts the notes and the witness's warnings of all runs.
func runNotes(s *figures.Summary) map[string]int {
	found := map[string]int{}
	for _, r := range s.Session.Runs {
		for _, note := range slices.Concat(r.Notes, r.Witness.Warnings) {
			found[note]++
		}
	}
	return found
}

// sentences says in words what noise costs where, and what wins it back: with many cells only for those of
// the aims; the tables have the others.
func sentences(s *figures.Summary) []string {
	var all []string
	noise, aim := s.Disturbance(), ""
	few := len(slices.DeleteFunc(slices.Clone(s.Isolation), func(i figures.Isolation) bool {
		return i.Quiet == nil
	})) <= 3
	if aims := s.Session.Scenario.Aims; aims != nil {
		aim = aims.Cell
	}
	for _, i := range s.Isolation {
		var parts []string
		for _, a := range i.Aspects {
			if text := costWords(noise, i, a); text != "" {
				parts = append(parts, text)
			}
		}
		if len(parts) > 0 && (few || i.Quiet.Name == s.Baseline || i.Cell.Name == aim) {
			all = append(all, fmt.Sprintf("Under %s %s has %s.", noise.Name, i.Name, strings.Join(parts, ", and ")))
		}
	}
	for k, a := range s.Aspects() {
		var parts []string
		from := ""
		for _, i := range s.Isolation {
			if back := i.Aspects[k].Back; back.Known() && (few || i.Cell.Name == aim) {
				from = cmp.Or(from, i.From)
				own := i.Cell.Figure(a.Metric)
				text := fmt.Sprintf("%s %s", wonBack(own).Bounded(format.Percent(back.Estimate)), back.SpreadWords())
				if lo, _, interval := back.Spread(); lo > 1 && interval {
					text = "all of it and more"
				}
				text += inDoubt(own, i.Loser.Figure(a.Metric), i.Base.Figure(a.Metric))
				parts = append(parts, fmt.Sprintf("%s wins back %s", i.Name, text))
			}
		}
		if len(parts) > 0 {
			all = append(all, fmt.Sprintf("Of what %s takes from %s in %s, %s.", noise.Name, from, a.Name,
				strings.Join(parts, ", ")))
		}
	}
	return all
}

// costWords describes a cell under noise in one aspect. For a distribution that is the highest percentile
// that both samples support.
func costWords(noise *results.Factor, c figures.Isolation, a figures.Isolated) string {
	if c.Quiet == nil {
		return ""
	}
	name, from, to := a.Name, a.Shown(*c.Quiet), a.Shown(c.Cell)
	own, quiet := c.Cell.Figure(a.Metric), c.Quiet.Figure(a.Metric)
	doubt := inDoubt(own, quiet)
	switch {
	case a.Margin.Goal == stats.HigherIsBetter && a.Cost.Known():
		return fmt.Sprintf("%s %s of its %s %s (%s instead of %s)%s",
			figures.Bound(format.Percent(a.Cost.Estimate), own, quiet), a.Cost.SpreadWords(), noise.Quiet, name, to,
			from, doubt)
	case a.Sampled && !a.Tail:
		return ""
	case a.Tail && (from == format.None || to == format.None):
		p99 := func(c figures.Cell) string {
			f := c.Figure(a.Metric)
			return f.Bounded(a.Unit.Full(f.Merged.Quantile(0.99)))
		}
		name, from, to = a.Noun+" P99", p99(*c.Quiet), p99(c.Cell)
	}
	if from == format.None || to == format.None {
		return ""
	}
	return fmt.Sprintf("%s of %s instead of %s%s", name, to, from, doubt)
}

// inDoubt names the guards that failed in a cell of some figures.
func inDoubt(all ...figures.Figure) string {
	var guards []string
	for _, f := range all {
		guards = append(guards, f.Doubts...)
	}
	if len(guards) == 0 {
		return ""
	}
	return fmt.Sprintf(" (in doubt: %s)", strings.Join(once(guards), ", "))
}

// listed joins the factors' names as in a sentence.
func listed(factors []results.Factor) string {
	var names []string
	for _, f := range factors {
		names = append(names, f.Name)
	}
	if n := len(names) - 1; n > 0 {
		names = []string{strings.Join(names[:n], ", "), names[n]}
	}
	return strings.Join(names, " and ")
}

func capital(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:n]) + s[n:]
}
