package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

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
		"figure":     format.Digits,
		"orNone":     func(s fmt.Stringer) string { return orNone(s.String() != "", s.String()) },
		"join":       strings.Join,
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
		Tables: filled(searchTable(s), costTable(s), tailTable(s), publishedTable(s), workTable(s),
			roleTable(s, results.Cost, "What the figures were paid with"), roleTable(s, results.Check, "Checks")),
		Proof: filled(sourceTable(s), guardTable(s), factTable(s)), Shared: shared(s), Raw: raw}
	var margins, family []string
	for _, m := range s.Primary() {
		margins = append(margins, fmt.Sprintf("%g%% for %s", 100*m.Margin.Size, m.Noun))
		family = append(family, m.Name)
		if m.Statistic != "" {
			p.Merged = m.Noun + " is " + m.Name
		}
	}
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

// sentences say what noise costs where, in words.
func sentences(s *figures.Summary) []string {
	var all []string
	for _, c := range s.Costs {
		aims := s.Session.Scenario.Aims
		ours := c.Quiet.Name == s.Baseline || aims != nil && c.Noisy.Name == aims.Cell
		if len(s.Costs) > 3 && !ours {
			continue // of many, those of the aims; the table has the others
		}
		text := ""
		for i, m := range s.Primary() {
			if m.Margin.Goal == stats.HigherIsBetter && c.Ratios[i].Known() {
				text = fmt.Sprintf("Under %s %s keeps %s %s of its %s %s", s.Disturbance().Name, c.Name,
					format.Percent(c.Ratios[i].Estimate), c.Ratios[i].SpreadWords(), s.Disturbance().Quiet, m.Noun)
			} else if without, with := c.Tails(m); text != "" && without > 0 && with > 0 {
				text += fmt.Sprintf("; its %s P99.9 goes from %s to %s", m.Noun, m.Unit.Full(without), m.Unit.Full(with))
			}
		}
		if text != "" {
			all = append(all, text+".")
		}
	}
	return all
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

func capital(s string) string { return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] }
