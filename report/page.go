package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

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
	Lines            []string // the first ones
	Sentences        []string // with the aims, the verdict
	AimPair, AimNote string
	ObjectiveTitle   string // "" where no lane was proved
	Bounds           []string
	Merged           string // which distribution the matrix shows
	Margins, Family  string // of the verdicts
	Caveats          []string
	Matrix           matrix
	Primary, Further []picture
	Tables           []table // without a chart
	Proof            []table
	Sources          table
	Factors          string
	MeanOf           []figures.Metric // those that are means
	Blocks           []table
	Notes            map[string]int // of runs
	Command          string
	Shared           bool
	Raw              json.RawMessage
}

// writePage writes the page: one file that needs no network and no JavaScript, with the whole session in it.
func writePage(w io.Writer, s *figures.Summary, pictures []picture) error {
	t := template.Must(template.New(pageName).Funcs(template.FuncMap{
		"samplesFor": func(p float64) string { return format.Count(stats.SamplesFor(p)) },
		"gibibytes":  func(bytes uint64) string { return format.Digits(float64(bytes)/(1<<30)) + " GiB" },
		"drawn":      func(svg []byte) template.HTML { return template.HTML(svg) }, //nolint:gosec // G203: escaped
	}).Parse(pageTemplate))
	title, bounds := objectiveLines(s)
	raw, err := json.Marshal(s.Session.Versioned())
	if err != nil {
		return err
	}
	p := page{Summary: s, ObjectiveTitle: title, Bounds: bounds,
		Lines: firstLines(s), Sentences: sentences(s), AimPair: s.AimPair(),
		AimNote: s.AimNote(), Caveats: caveats(s), Matrix: newMatrix(s), Notes: runNotes(s), Command: command(s),
		Tables: filled(searchTable(s), costTable(s), winTable(s), tailTable(s), publishedTable(s), workTable(s),
			roleTable(s, results.Cost, "What the figures were paid with"), roleTable(s, results.Check, "Checks")),
		Proof:   filled(threadTable(s), rateTable(s), guardTable(s), factTable(s)),
		Sources: sourceTable(s), Shared: shared(s), Raw: raw}
	var factors []string
	for _, f := range s.Session.Factors {
		factors = append(factors, f.Name)
	}
	p.Factors = listed(factors)
	for _, m := range s.Metrics {
		if len(m.MeanOf) > 1 {
			p.MeanOf = append(p.MeanOf, m)
		}
	}
	var margins, family, merged []string
	for _, m := range s.Primary() {
		margins = append(margins, fmt.Sprintf("%g%% for %s", 100*m.Margin.Size, m.Noun))
		family = append(family, m.Name)
		if m.Statistic != "" {
			merged = append(merged, m.Noun+" is "+m.Name)
		}
	}
	p.Merged = capital(strings.Join(merged, ", "))
	p.Margins, p.Family = strings.Join(margins, ", "), capital(strings.Join(family, " and "))
	for _, c := range pictures {
		if c.Minor {
			p.Further = append(p.Further, c)
		} else {
			p.Primary = append(p.Primary, c)
		}
	}
	for _, m := range s.Ordered() {
		if (m.IsPrimary() || m.Statistic == "") && has(s, m) {
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

// has says whether any cell has a figure of a metric.
func has(s *figures.Summary, m figures.Metric) bool {
	return slices.ContainsFunc(s.Cells, func(c figures.Cell) bool { return len(c.Figure(m).Blocks) > 0 })
}

// sentences say what noise costs where, and what wins it back, in words: of many cells those of the aims; the
// tables have the others.
func sentences(s *figures.Summary) []string {
	var all []string
	noise, aim, few := s.Disturbance(), "", len(s.Isolation) <= 3
	if aims := s.Session.Scenario.Aims; aims != nil {
		aim = aims.Cell
	}
	for _, i := range s.Isolation {
		text := ""
		if few || i.Quiet != nil && i.Quiet.Name == s.Baseline || i.Cell.Name == aim {
			for k, r := range i.Cost {
				text += costWords(noise, i, s.Aspects()[k], r, text == "")
			}
		}
		if text != "" {
			all = append(all, text+".")
		}
	}
	for k, a := range s.Aspects() {
		text := ""
		for _, i := range s.Isolation {
			if i.Loser == nil || !i.Back[k].Known() || !few && i.Cell.Name != aim {
				continue
			}
			switch {
			case text != "":
				text += ", "
			case a.Margin.Goal == stats.LowerIsBetter:
				text = fmt.Sprintf("Of what %s adds to the %s of %s, ", noise.Name, a.Name, i.From)
			default:
				text = fmt.Sprintf("Of the %s that %s takes from %s, ", a.Name, noise.Name, i.From)
			}
			text += fmt.Sprintf("%s wins back %s %s", i.Name, format.Percent(i.Back[k].Estimate),
				i.Back[k].SpreadWords())
		}
		if text != "" {
			all = append(all, text+".")
		}
	}
	return all
}

// costWords say what noise costs a cell in one aspect, as the beginning of a sentence or its next part. Of a
// distribution it is the highest percentile that both samples support.
func costWords(
	noise *results.Factor, c figures.Isolation, a figures.Aspect, r figures.Comparison, first bool,
) string {
	name, from, to := a.Name, a.Shown(*c.Quiet), a.Shown(c.Cell)
	switch {
	case a.Margin.Goal == stats.HigherIsBetter && r.Known():
		keeps := fmt.Sprintf("keeps %s %s of its %s %s", format.Percent(r.Estimate), r.SpreadWords(),
			noise.Quiet, name)
		if first {
			return fmt.Sprintf("Under %s %s %s", noise.Name, c.Name, keeps)
		}
		return "; it " + keeps
	case !a.Tail && a.Sampled:
		return ""
	case a.Tail && (from == format.None || to == format.None):
		name, from, to = a.Noun+" P99", a.Unit.Full(c.Quiet.Figure(a.Metric).Merged.Quantile(0.99)),
			a.Unit.Full(c.Cell.Figure(a.Metric).Merged.Quantile(0.99))
	}
	switch {
	case from == format.None || to == format.None:
		return ""
	case first:
		return fmt.Sprintf("Under %s the %s of %s goes from %s to %s", noise.Name, name, c.Name, from, to)
	}
	return fmt.Sprintf("; its %s goes from %s to %s", name, from, to)
}

// command repeats the session.
func command(s *figures.Summary) string {
	sc := s.Session.Scenario
	if l := s.Session.Lane; l != nil {
		return fmt.Sprintf("isolane prove %s --lane %s --%s --seed %d", sc.Name, l.Name, sc.Mode, sc.Seed)
	}
	var cells []string
	for _, c := range s.Cells {
		cells = append(cells, c.Name)
	}
	return fmt.Sprintf("isolane prove %s --%s --seed %d --cells %s", sc.Name, sc.Mode, sc.Seed,
		strings.Join(cells, ","))
}

// listed joins words as a sentence does.
func listed(words []string) string {
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + " and " + words[n]
	}
	return strings.Join(words, "")
}

func capital(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:n]) + s[n:]
}
