package report

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

//go:embed page.html.tmpl
var pageTemplate string

// Page is the name of the page in a results directory.
const Page = "report.html"

// page is what the template prints.
type page struct {
	*Summary
	Lines            []string // the first ones
	Sentences        []string // with the aims, the verdict
	AimNote          string
	Caveats          []string
	Heat             heatTable
	Primary, Further []figure
	Tables           []table // without a chart
	Proof            []table
	Blocks           []table
	Notes            []tally // of runs
	Command          string
	Shared           bool
	Raw              json.RawMessage
}

// figure is a chart in the page.
type figure struct {
	chart
	Inline template.HTML
}

// HTML writes the page: one file that needs no network and no JavaScript, with the whole session in
// it.
func HTML(w io.Writer, s results.Session) error {
	sum, err := Summarize(s)
	if err != nil {
		return err
	}
	all, err := sum.charts()
	if err != nil {
		return err
	}
	return sum.html(w, all)
}

func (s *Summary) html(w io.Writer, all []chart) error {
	t, err := template.New(Page).Funcs(template.FuncMap{
		"samplesFor": func(p float64) string { return count(stats.SamplesFor(p)) },
		"gibibytes":  func(bytes uint64) string { return digits(float64(bytes)/(1<<30)) + " GiB" },
	}).Parse(pageTemplate)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(s.Session)
	if err != nil {
		return err
	}
	lines := slices.DeleteFunc(s.firstLines(), func(l string) bool { return strings.HasPrefix(l, interrupted) }) // said above
	p := page{Summary: s, Lines: lines, Sentences: s.sentences(), AimNote: s.aimNote(), Caveats: s.caveats(), Heat: s.heat(),
		Proof: s.proofTables(), Notes: s.runNotes(), Command: s.command(), Shared: s.shared(), Raw: raw}
	for _, c := range all {
		f := figure{c, template.HTML(c.SVG)} //nolint:gosec // G203: drawn here, its texts are escaped
		if c.Minor {
			p.Further = append(p.Further, f)
		} else {
			p.Primary = append(p.Primary, f)
		}
	}
	for _, t := range []table{s.costTable(), s.tailTable(), s.workTable()} {
		if len(t.Rows) > 0 {
			p.Tables = append(p.Tables, t)
		}
	}
	for _, name := range append([]string{Throughput, s.RTT}, s.Directions...) {
		if s.has(name) {
			p.Blocks = append(p.Blocks, s.blockTable(name))
		}
	}
	return t.Execute(w, p)
}

// Write makes the page and the charts of the results in dir again, and stores them there.
func Write(dir string) error {
	session, err := results.Read(dir)
	if err != nil {
		return err
	}
	s, err := Summarize(session)
	if err != nil {
		return err
	}
	all, err := s.charts()
	if err != nil {
		return err
	}
	for _, c := range all {
		if err = results.WriteFile(filepath.Join(dir, c.File), c.SVG); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	if err = s.html(&b, all); err != nil {
		return err
	}
	return results.WriteFile(filepath.Join(dir, Page), b.Bytes())
}

// sentences say what noise costs where, in words.
func (s *Summary) sentences() []string {
	var all []string
	for _, c := range s.Costs {
		ours := strings.HasSuffix(aimBase, c.Name) || strings.HasSuffix(aimCell, c.Name)
		if !c.Throughput.Known() || len(s.Costs) > 3 && !ours {
			continue // of many, those of the aims; the table has the others
		}
		text := fmt.Sprintf("Under noise %s keeps %s %s of its own quiet throughput", c.Name,
			percent(c.Throughput.Estimate), spreadWords(c.Throughput))
		if c.Quiet > 0 && c.Noisy > 0 {
			text += fmt.Sprintf("; its RTT P99.9 goes from %s to %s", micros(c.Quiet), micros(c.Noisy))
		}
		all = append(all, text+".")
	}
	return all
}

// command repeats the session.
func (s *Summary) command() string {
	sc := s.Session.Scenario
	var cells []string
	for _, c := range s.Cells {
		cells = append(cells, c.Name)
	}
	return fmt.Sprintf("isolane prove %s --%s --seed %d --cells %s", sc.Name, sc.Mode, sc.Seed,
		strings.Join(cells, ","))
}
