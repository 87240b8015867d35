package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/test/golden"
	"isolane.dev/isolane/test/session"
)

func summarize(t *testing.T, s results.Session) figures.Summary {
	t.Helper()
	sum, err := figures.Summarize(s)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func printed(t *testing.T, s results.Session, columns int) string {
	t.Helper()
	var b strings.Builder
	if err := Text(&b, summarize(t, s), terminal.Terminal{Columns: columns}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func written(t *testing.T, s results.Session) string {
	t.Helper()
	sum := summarize(t, s)
	var b strings.Builder
	if err := writePage(&b, &sum, newPictures(&sum)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestText(t *testing.T) {
	for name, s := range map[string]results.Session{
		"sweep.txt": session.Sweep(t, "standard", 6), "quick.txt": session.Quick(t), "standard.txt": session.Made(t, "standard", 10, session.SixCells()),
	} {
		golden.Check(t, filepath.Join("testdata", name), []byte(printed(t, s, 100)))
		for _, columns := range []int{60, 80, 100, 200} {
			for _, line := range strings.Split(printed(t, s, columns), "\n") {
				if n := utf8.RuneCountInString(line); n > columns {
					t.Errorf("%s: a line of %d columns: %s", name, n, line)
				}
				if strings.Trim(line, "µ×–±≥≤") != strings.TrimFunc(line, func(r rune) bool { return r > 126 }) {
					t.Errorf("%s: a character beyond the agreed ones: %s", name, line)
				}
			}
		}
	}
}

// Few blocks reach an aim, but that is no verdict and does not look like one.
func TestNoVerdictNoColour(t *testing.T) {
	for name, c := range map[string]struct {
		s    results.Session
		firm bool
	}{
		"quick":       {session.Made(t, "quick", 10, session.SixCells()), false},
		"five blocks": {session.Made(t, "standard", 5, session.SixCells()), false},
		"ten blocks":  {session.Made(t, "standard", 10, session.SixCells()), true},
	} {
		var b strings.Builder
		if err := Text(&b, summarize(t, c.s), terminal.Terminal{Columns: 100, Colour: true}); err != nil {
			t.Fatal(err)
		}
		if coloured := strings.Contains(b.String(), "\x1b[32mREACHED"); coloured != c.firm ||
			strings.Contains(b.String(), "no verdict: that needs") == c.firm || !strings.Contains(b.String(), "REACHED") {
			t.Errorf("%s: coloured: %v, want %v\n%s", name, coloured, c.firm, b.String())
		}
		if html := written(t, c.s); strings.Contains(html, `class="aim reached"`) != c.firm {
			t.Errorf("%s: the page's card has the colour of a verdict: %v", name, !c.firm)
		}
	}
}

func TestCharts(t *testing.T) {
	for i, s := range []results.Session{session.Quick(t), session.Sweep(t, "standard", 6),
		session.Made(t, "standard", 10, session.AllCells())} {
		sum := summarize(t, s)
		for _, c := range newPictures(&sum) {
			if i == 0 && !c.Minor || strings.Contains(c.File, "-over-") {
				golden.Check(t, filepath.Join("testdata", c.File), c.SVG)
			}
			wellFormed(t, c.File, string(c.SVG))
			if !strings.Contains(string(c.SVG), "prefers-color-scheme: dark") {
				t.Errorf("%s is white in the dark", c.File)
			}
			small := regexp.MustCompile(`font(-size)?: *[0-9](\.[0-9]+)?px`).FindString(string(c.SVG))
			if small != "" {
				t.Errorf("%s: %s is too small", c.File, small)
			}
			if at := regexp.MustCompile(`NaN|Inf`).FindString(string(c.SVG)); at != "" {
				t.Errorf("%s contains %s", c.File, at)
			}
		}
	}
}

func wellFormed(t *testing.T, name, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func TestHTML(t *testing.T) {
	s := session.Quick(t)
	s.Notes = append(s.Notes, `</script><script>alert("x")</script>`)
	measured := s // as prove has it, before it is stored
	measured.APIVersion, measured.Kind, measured.Schema = "", "", 0
	html := written(t, measured)
	wellFormed(t, pageName, html)
	_, rest, _ := strings.Cut(html, `<script type="application/json" id="results">`)
	raw, _, _ := strings.Cut(rest, "</script>")
	var got results.Session
	if err := json.Unmarshal([]byte(raw), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, got); d != "" {
		t.Errorf("the session in the page (-want +got):\n%s", d)
	}
	for _, want := range []string{"1 of 30 runs void", "1 of 92 measurements in used runs void",
		"ran on CPU 2, planned 1", "send lag P99.9 40µs", "--quick --seed 7", "Some &lt;CPU&gt; &amp; Co",
		"This is a &lt;made-up&gt; session.",
		"Quick mode: figures, no verdict", "kworker/1:0", "<svg "} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(html, `>paper</th>`); n != 2 {
		t.Errorf("%d tables compare with the paper, want those of throughput and of the primary round trip", n)
	}
	bare := strings.ReplaceAll(html, `xmlns="http://www.w3.org/2000/svg"`, "")
	loads := regexp.MustCompile(`https?://|url\(|@import|<link|<img|\ssrc=|alert\("x`)
	if at := loads.FindString(bare); at != "" {
		t.Errorf("the page loads or runs something: %q", at)
	}
	if n := strings.Count(html, "<script"); n != 1 {
		t.Errorf("%d script elements", n)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	if err := results.Write(dir, session.Quick(t)); err != nil {
		t.Fatal(err)
	}
	write := func() {
		stored, err := results.Read(dir)
		if err == nil {
			err = Write(dir, summarize(t, stored))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write()
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	for _, want := range []string{"report.html", "chart-throughput.svg", "chart-rtt.svg", "chart-range.svg",
		"chart-percentiles.svg", "chart-percentiles-rtt-udp-64-open.svg", "chart-throughput-tcp-up.svg"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing in %v", want, names)
		}
	}
	first, err := os.ReadFile(filepath.Join(dir, pageName))
	if err != nil {
		t.Fatal(err)
	}
	write()
	if again, err := os.ReadFile(filepath.Join(dir, pageName)); err != nil || !bytes.Equal(first, again) {
		t.Errorf("the second page differs from the first: %v", err)
	}
}

func TestHonestEdges(t *testing.T) {
	six := func() results.Session { return session.Made(t, "quick", 3, session.SixCells()) }
	cases := []struct {
		name   string
		change func(*results.Session)
		want   []string
		lacks  []string
	}{
		{"no verdict in quick mode", func(*results.Session) {}, []string{"figures, no verdict", "3 blocks: range"},
			[]string{"better", "worse ", "equivalent", "inconclusive", "95% interval"}},
		{"interrupted", func(s *results.Session) {
			s.Complete, s.Runs, s.Stopped = false, s.Runs[:14], &results.Stop{Interrupted: true, Why: "Ctrl-C"}
		}, []string{"INTERRUPTED (Ctrl-C): 14 of 24 runs were made"}, nil},
		{"a slow clock", func(s *results.Session) { s.Environment.Clocksource = "hpet" },
			[]string{"OPEN         RTT P50", "Open, for a guard failed: clock"}, nil},
		{"interrupted early", func(s *results.Session) { s.Complete, s.Runs = false, s.Runs[:8] },
			[]string{"no run used in 4 cells: ", "CUT OFF (it was ended without a word"}, []string{"express  no run used", "bridge  no run used"}},
		{"interrupted before the baseline", func(s *results.Session) {
			s.Complete = false
			s.Runs = slices.DeleteFunc(s.Runs, func(r results.Run) bool { return r.Cell == s.Cells[0].Name })
		}, []string{"noisy-floating-bridge  –"}, []string{" 0%", "range of 0"}},
		{"interrupted in the warm-up", func(s *results.Session) { s.Complete, s.Runs = false, s.Runs[:5] },
			[]string{"No run counts, so there are no figures."}, []string{"no run used", "Aims"}},
		{"nothing published", func(s *results.Session) {
			s.Scenario.Published = nil
		}, []string{"Round trip"}, []string{"paper"}},
		{"a stall of seconds", func(s *results.Session) {
			h := results.NewHistogram()
			if err := h.RecordValue(4_956_602_000); err != nil {
				t.Fatal(err)
			}
			m := &session.RunOf(t, *s, "noisy-floating-bridge", 1).Measured[0]
			trips := m.Samples[m.Name]
			trips.Histogram, _ = results.Encode(h)
			m.Samples[m.Name] = trips
		}, []string{"4.96 s"}, []string{"4,95"}},
		{"no used run in a cell", func(s *results.Session) {
			for b := range 4 {
				session.RunOf(t, *s, "noisy-lane-express", b).Void = []string{"made void"}
			}
		}, []string{"4 of 24 runs void", "void: 4× made void", "all runs void", "NO FIGURE"}, nil},
		{"no run at all", func(s *results.Session) { s.Complete, s.Runs = false, nil },
			[]string{"0 of 0 runs void"}, nil},
		{"everything void", func(s *results.Session) {
			for i := range s.Runs {
				s.Runs[i].Void = []string{"made void"}
			}
		}, []string{"24 of 24 runs void, 0 used"}, nil},
		{"one block shows nothing", func(s *results.Session) { *s = session.Made(t, "quick", 1, session.SixCells()) },
			[]string{"OPEN", "(1 block)", "the blocks do not show it", "1 block has no range and no interval"}, []string{"REACHED      throughput", "range of 1"}},
		{"one cell", func(s *results.Session) { *s = session.Made(t, "standard", 6, session.SixCells()[:1]) },
			[]string{"quiet-floating-bridge  100%"}, []string{"Aims", "What noise costs"}},
		{"no baseline", func(s *results.Session) { s.Cells[0].Baseline = false },
			[]string{"no cell is the baseline"}, []string{"Aims"}},
		{"another path in force", func(s *results.Session) { s.Cells[5].InForce = map[string]string{"path": "bridge"} },
			[]string{"noisy-lane-express*", "* another level"}, nil},
		{"huge and small", func(s *results.Session) {
			for i := range s.Runs {
				for _, m := range s.Runs[i].Measured {
					for name := range m.Values {
						switch s.Runs[i].Cell {
						case "noisy-lane-express":
							m.Values[name] *= 1e6
						case "noisy-floating-bridge":
							m.Values[name] *= 1e-8
						}
					}
				}
			}
		}, []string{"REACHED"}, []string{"NaN", "Inf"}},
		{"nothing received", func(s *results.Session) {
			for i := range s.Runs {
				for _, m := range s.Runs[i].Measured {
					if trips, ok := m.Samples[m.Name]; ok && s.Runs[i].Cell == "noisy-lane-express" {
						m.Samples[m.Name] = results.Samples{Wanted: trips.Wanted, Lost: trips.Wanted}
					}
				}
			}
		}, []string{"lost"}, []string{"NaN", "Inf"}},
		{"some lost", func(s *results.Session) {
			for i := range s.Runs {
				for _, m := range s.Runs[i].Measured {
					if trips, ok := m.Samples[m.Name]; ok && s.Runs[i].Cell == "noisy-lane-express" {
						trips.Wanted, trips.Lost = trips.Wanted+36, 36
						m.Samples[m.Name] = trips
					}
				}
			}
		}, []string{"lost against", "NOT REACHED  RTT P99.9", "were lost, and are longer"}, []string{"NaN", "Inf"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := six()
			s.Environment.Settings = map[string]string{"/proc/sys/vm/<swappiness>": "60"}
			c.change(&s)
			text := printed(t, s, 100)
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("the text lacks %q:\n%s", want, text)
				}
			}
			for _, lacks := range c.lacks {
				if strings.Contains(text, lacks) {
					t.Errorf("the text has %q:\n%s", lacks, text)
				}
			}
			html := written(t, s)
			wellFormed(t, pageName, html)
			if at := regexp.MustCompile(`NaN|[+-]Inf\b`).FindString(html); at != "" {
				t.Errorf("the page has %s", at)
			}
		})
	}
}

// Names say nothing: what a factor, a level, a cell or a metric is stands in their descriptions.
func TestMeaningIsNotInNames(t *testing.T) {
	data, err := json.Marshal(session.Made(t, "standard", 6, session.SixCells()))
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"noise", "weather", "quiet", "größe", "noisy", "storm", "placement", "seat", "floating", "<b>",
		"pinned", "up", "path", "road", "bridge", "../x", "express", "y z", "rtt", "ping", "throughput", "rtt",
		"rtt-udp-64-open", "alpha-up", "rtt-udp-64-pingpong", "%s", "throughput-tcp-up", "lane", "throughput-tcp-down", "../y"}
	for i, cell := range session.SixCells() {
		words = append(words, cell, fmt.Sprintf("cell %d", i))
	}
	var pairs []string
	for i := 0; i < len(words); i += 2 {
		pairs = append(pairs, fmt.Sprintf("%q", words[i]), fmt.Sprintf("%q", words[i+1]))
	}
	var s results.Session
	if err := json.Unmarshal([]byte(strings.NewReplacer(pairs...).Replace(string(data))), &s); err != nil {
		t.Fatal(err)
	}
	text := printed(t, s, 100)
	for _, want := range []string{"Throughput (geometric mean of up and down) in % of cell 0", "What weather costs: each storm cell in % of its own größe cell",
		"seat-road", "%s is a closed loop", "REACHED      rtt: 17", "REACHED      RTT P50", "of what they got in cell 1", "~60%"} {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	sum := summarize(t, s)
	for _, c := range newPictures(&sum) {
		wellFormed(t, c.File, string(c.SVG))
		if filepath.Base(c.File) != c.File {
			t.Errorf("a chart outside of the directory: %s", c.File)
		}
	}
}

// Text and page say the verdict; without an objective they say how to get one.
// A session from elsewhere may have anything in its names and notes: a terminal does not obey it.
func TestTextObeysNobody(t *testing.T) {
	data, err := json.Marshal(session.Quick(t))
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.ReplaceAll(data, []byte("noisy"), []byte(`no\u001b[2Jisy\u0007`))
	var s results.Session
	if err = json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	s.Scenario.Title += "\x1b]0;title\x07"
	s.Notes, s.Environment.CPUModel = append(s.Notes, "a\x1b[31m note"), "\x9b31m"
	text := printed(t, s, 100)
	if k := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); k >= 0 {
		t.Errorf("%.60q", text[k:])
	}
}

func TestObjectiveShown(t *testing.T) {
	s := session.Proved(t, "standard", 10, lane.Objective{
		RTT: map[string]quantity.Duration{"p99": quantity.Duration(30 * time.Microsecond)}})
	text, page := printed(t, s, 100), written(t, s)
	for _, want := range []string{"Objective of lane web", "rtt p99 at most 30us: held ("} {
		if !strings.Contains(text, want) || !strings.Contains(page, want) {
			t.Errorf("%q is missing in the text or the page:\n%s", want, text)
		}
	}
	if !strings.Contains(page, "isolane prove edge --lane web --standard --seed 7") {
		t.Error("the page does not say how to repeat the session")
	}
	if text := printed(t, session.Proved(t, "standard", 10, lane.Objective{}), 100); !strings.Contains(text, "It declares none") {
		t.Error(text)
	}
}

// Absolute figures of somebody else stand beside the same statistic of ours, with what does not hold in them; and what
// a program says of itself is told, once for all probes that say the same.
func TestPublishedBesideOurs(t *testing.T) {
	s := session.Made(t, "standard", 2, []string{"quiet-floating-bridge", "noisy-floating-bridge"})
	ping := "rtt-udp-64-pingpong"
	s.Scenario.Published = append(s.Scenario.Published,
		results.Published{Cell: "noisy-floating-bridge", Metric: ping, Statistic: "max", Value: 1496e3, Qualifier: "average of five", Source: "A, Paper"},
		results.Published{Cell: "noisy-floating-bridge", Metric: ping, Statistic: "p99.99999", Value: 1e6, Source: "B, Table"},
		results.Published{Cell: "noisy-floating-bridge", Metric: "throughput-tcp-up", Value: 9.4e9, Qualifier: "limit", Source: "A, Paper"},
		results.Published{Cell: "quiet-lane-bridge", Metric: ping, Value: 1})
	s.Scenario.Doubts = []results.Doubt{{Source: "B, Table", Text: "It has no unit."}, {Source: "A, Paper", Text: "It has no length."}}
	for i := range s.Runs {
		for k, m := range s.Runs[i].Measured {
			s.Runs[i].Measured[k].Facts = map[string]string{"congestionControl": "reno", "virtualCPUs": "2"}
			if m.Name == ping && s.Runs[i].Cell == s.Cells[1].Name {
				s.Runs[i].Measured[k].Facts["lateBy"] = fmt.Sprint(i, " ms")
			}
		}
	}
	sum := summarize(t, s)
	longest, _ := sum.Cells[1].Statistic(sum.Primary()[1], "max")
	up, _ := sum.Cells[1].Statistic(sum.Metrics[slices.IndexFunc(sum.Metrics, func(m metric.Metric) bool { return m.Name == "throughput-tcp-up" })], "")
	want := [][]string{
		{"noisy-floating-bridge", ping + " max", "1,496 µs [1]", format.Times().Full(longest), "average of five"},
		{"noisy-floating-bridge", ping + " p99.99999", "1,000 µs [2]", "–", ""},
		{"noisy-floating-bridge", "throughput-tcp-up", "≥ 9.40 Gbit/s [1]", format.UnitOf("bit/s").Full(up), "limit"},
	}
	got := publishedTable(&sum)
	notes := []string{"[1] A, Paper", "It has no length.", "[2] B, Table", "It has no unit."}
	if d := cmp.Diff(want, got.Rows); d != "" || up == 0 || longest == 0 || !slices.Equal(got.Notes, notes) {
		t.Error(d, up, longest, got.Notes)
	}
	text := strings.Join(strings.Fields(printed(t, s, 100)), " ")
	for _, want := range []string{"- congestion control of throughput-tcp-up, throughput-tcp-down, rtt-udp-64-pingpong, rtt-udp-64-open: reno",
		"- late by of rtt-udp-64-pingpong: in 2 runs, one of them: ", "ms (noisy-floating-bridge)", "- virtual CPUs of throughput-tcp-up, ", "It has no length."} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}

// Programs learn which guard failed, and which verdict it lowered.
func TestGuardsForPrograms(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	s.Environment.Clocksource = "hpet"
	sum, err := figures.Summarize(s)
	if err != nil {
		t.Fatal(err)
	}
	d := newDocument(&sum, "dir")
	failed := slices.ContainsFunc(d.Guards, func(g figures.Guard) bool { return g.Name == "clock" && g.State == figures.Failed })
	lowered := slices.ContainsFunc(d.Cells[5].Figures, func(f documentFigure) bool {
		return f.Name == "rtt-udp-64-pingpong" && f.Verdict == stats.Inconclusive && f.Lowered == "clock"
	})
	if !failed || !lowered {
		t.Errorf("guards %+v, figures %+v", d.Guards, d.Cells[5].Figures)
	}
}

// Runs whose CPUs were near each other are compared with those of the baseline that were, and the others with the
// others.
func TestNearAndFar(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	cells := []string{"quiet-floating-bridge", "noisy-lane-express"}
	s.Cells = slices.DeleteFunc(s.Cells, func(c results.Cell) bool { return !slices.Contains(cells, c.Name) })
	s.Runs = slices.DeleteFunc(s.Runs, func(r results.Run) bool { return !slices.Contains(cells, r.Cell) })
	for _, r := range s.Runs {
		took := results.Nanoseconds(24)
		if r.Block < 4 || r.Cell == cells[0] && r.Block == 10 {
			took = 104
		}
		for i := range r.Measured {
			r.Measured[i].CacheLine = &results.CacheLine{Looks: 100, Median: took}
			if took == 24 && r.Measured[i].Name == "throughput-tcp-down" && r.Block == 5 { // the mean has both
				r.Measured[i].CacheLine.Median = 104
			}
		}
	}
	sum, err := figures.Summarize(s)
	if err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for _, row := range distanceTable(&sum).Rows {
		var runs []string
		for _, cell := range row[1:] {
			_, n, _ := strings.Cut(cell, ", ")
			n, share, _ := strings.Cut(n, ", ")
			if runs = append(runs, n); (share != "") != (row[0] != cells[0]) {
				t.Errorf("%s of %s", share, row[0])
			}
		}
		got = append(got, append(row[:1], runs...))
	}
	want := [][]string{{cells[0], "5 runs", "4 runs", "6 runs", "4 runs"}, {cells[1], "6 runs", "3 runs", "7 runs", "3 runs"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, r := range s.Runs {
		for i := range r.Measured {
			r.Measured[i].CacheLine.Median = 24
		}
	}
	if sum, err = figures.Summarize(s); err != nil || len(distanceTable(&sum).Rows) > 0 {
		t.Error("all are near", err, distanceTable(&sum).Rows)
	}
}
