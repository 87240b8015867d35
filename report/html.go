package report

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
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
	Caveats          []string
	Heat             heatTable
	Primary, Further []figure
	Tables           []table // without a chart
	Proof            []table
	Blocks           []table
	VoidRuns         []void
	VoidFigures      []void
	Notes            []tally // of runs
	Environment      [][2]string
	Command          string
	Shared           bool
	Method           method
	Raw              json.RawMessage
}

// figure is a chart in the page.
type figure struct {
	chart
	Inline template.HTML
}

// void is an entry of the ledger.
type void struct {
	Block   string
	Cell    string
	What    string
	Reasons []string
}

// method holds the constants that the method section names.
type method struct {
	Confidence, Alpha, ThroughputMargin, RTTMargin string
	N50, N99, N999, N9999                          string
	Primary                                        string
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
	t, err := template.New(Page).Parse(pageTemplate)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(s.Session)
	if err != nil {
		return err
	}
	p := page{Summary: s, Lines: s.firstLines(), Sentences: s.sentences(), Caveats: s.caveats(), Heat: s.heat(),
		Proof: s.proofTables(), VoidRuns: s.voidRuns(), VoidFigures: s.voidMeasurements(), Notes: s.runNotes(),
		Environment: s.environment(), Command: s.command(), Shared: s.shared(), Raw: raw,
		Method: method{percent(confidence), percent(alpha), percent(throughputMargin), percent(rttMargin),
			count(stats.SamplesFor(0.5)), count(stats.SamplesFor(0.99)), count(stats.SamplesFor(0.999)),
			count(stats.SamplesFor(0.9999)), s.RTT}}
	for _, c := range all {
		f := figure{c, template.HTML(c.SVG)} //nolint:gosec // G203: drawn here; its texts were escaped when they were drawn
		if c.Minor {
			p.Further = append(p.Further, f)
		} else {
			p.Primary = append(p.Primary, f)
		}
	}
	for _, t := range []table{s.costTable(), s.workTable()} {
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

// Class is the style of an aim's card.
func (a Aim) Class() string { return strings.ReplaceAll(string(a.State), " ", "-") }

// sentences say what noise costs where, in words.
func (s *Summary) sentences() []string {
	var all []string
	for _, c := range s.Costs {
		if !c.Throughput.Known() {
			continue
		}
		text := fmt.Sprintf("Under noise %s keeps %s %s of its own quiet throughput", c.Name, percent(c.Throughput.Estimate),
			spreadWords(c.Throughput))
		if c.Quiet > 0 && c.Noisy > 0 {
			text += fmt.Sprintf("; its RTT P99.9 goes from %s to %s", micros(c.Quiet), micros(c.Noisy))
		}
		all = append(all, text+".")
	}
	return all
}

func (s *Summary) voidRuns() []void {
	var all []void
	for _, r := range s.Session.Runs {
		if len(r.Void) > 0 {
			all = append(all, void{blockName(r), r.Cell, r.Started.UTC().Format("15:04:05") + " UTC", r.Void})
		}
	}
	return all
}

func (s *Summary) voidMeasurements() []void {
	var all []void
	for _, r := range s.Session.Runs {
		for _, m := range r.Measured {
			if r.Used() && len(m.Void) > 0 {
				all = append(all, void{blockName(r), r.Cell, m.Name, m.Void})
			}
		}
	}
	return all
}

func blockName(r results.Run) string {
	if r.Block == 0 {
		return "warm-up"
	}
	return fmt.Sprint(r.Block)
}

func (s *Summary) environment() [][2]string {
	e := s.Session.Environment
	where := "no hypervisor seen"
	if e.Hypervisor {
		where = "a virtual machine"
	}
	return [][2]string{
		{"host", e.Hostname + ", " + where},
		{"processor", e.CPUModel + ", CPUs " + e.Online.String() + " online"},
		{"memory", digits(float64(e.MemoryBytes)/(1<<30)) + " GiB"},
		{"kernel", e.Kernel},
		{"command line", e.Cmdline},
		{"idle driver and governor", e.IdleDriver + ", " + e.IdleGov},
		{"clock source", e.Clocksource},
		{"boot id", e.BootID},
		{"started, ended", s.Session.Started.UTC().Format("2006-01-02 15:04:05") + " to " +
			s.Session.Ended.UTC().Format("2006-01-02 15:04:05") + " UTC"},
	}
}

// command repeats the session.
func (s *Summary) command() string {
	sc := s.Session.Scenario
	var cells []string
	for _, c := range s.Cells {
		cells = append(cells, c.Name)
	}
	return fmt.Sprintf("isolane prove %s --%s --seed %d --cells %s", sc.Name, sc.Mode, sc.Seed, strings.Join(cells, ","))
}
