package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/test/session"
)

// odd are characters that mean something in one of the formats.
const odd = " Käse \"q\", 'x'\n<b>&|*_%2D=/\\#[é]\r\t\x01`~@me"

// oddly is a session whose cells, levels, factors and metrics have names with everything in them.
func oddly(t *testing.T) results.Session {
	t.Helper()
	s := session.Quick(t)
	for i := range s.Factors {
		s.Factors[i].Name += odd
		for k := range s.Factors[i].Levels {
			s.Factors[i].Levels[k].Name += odd + "-8"
		}
	}
	s.Factors[0].Quiet += odd + "-8"
	for i := range s.Cells {
		s.Cells[i].Name += odd
		levels := map[string]string{}
		for factor, level := range s.Cells[i].Levels {
			levels[factor+odd] = level + odd + "-8"
		}
		s.Cells[i].Levels = levels
	}
	s.Cells[1].InForce = map[string]string{"path" + odd: "other"}
	for i := range s.Metrics {
		m := &s.Metrics[i]
		m.Name, m.Noun, m.Title = m.Name+odd, m.Noun+odd, m.Title+odd
		for k := range m.MeanOf {
			m.MeanOf[k] += odd
		}
	}
	for i := range s.Runs {
		s.Runs[i].Cell += odd
		for k := range s.Runs[i].Measured {
			m := &s.Runs[i].Measured[k]
			m.Name += odd
			values, samples := map[string]float64{}, map[string]results.Samples{}
			for name, v := range m.Values {
				values[name+odd] = v
			}
			for name, v := range m.Samples {
				samples[name+odd] = v
			}
			m.Values, m.Samples = values, samples
		}
	}
	s.Scenario.Name += odd
	s.Scenario.Aims.Cell += odd
	for i := range s.Scenario.Aims.Goals {
		s.Scenario.Aims.Goals[i].Metric += odd
	}
	return s
}

func stored(t *testing.T, s results.Session) report.Document {
	t.Helper()
	d, err := report.Store(t.TempDir(), s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func written(t *testing.T, name string, d report.Document) string {
	t.Helper()
	f, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := f.Write(&first, d); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(&second, d); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("%s is another the second time (%v)", name, err)
	}
	return first.String()
}

// blocks is how many values of runs a session has.
func blocks(d report.Document) (n int) {
	for _, c := range d.Summary().Cells {
		for _, f := range c.Figures {
			n += len(f.Blocks)
		}
	}
	return n
}

// each calls back with a usual session and one with odd names.
func each(t *testing.T, test func(*testing.T, report.Document)) {
	t.Helper()
	for name, s := range map[string]results.Session{"usual": session.Quick(t), "odd": oddly(t)} {
		t.Run(name, func(t *testing.T) { test(t, stored(t, s)) })
	}
}

func TestCSV(t *testing.T) {
	each(t, func(t *testing.T, d report.Document) {
		t.Helper()
		all, err := csv.NewReader(strings.NewReader(written(t, "csv", d))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]int{}
		for k, name := range all[0] {
			at[name] = k
		}
		found, seen := map[string]float64{}, 0
		for _, row := range all[1:] {
			v, err := strconv.ParseFloat(row[at["value"]], 64)
			if err != nil {
				t.Fatal(err)
			}
			if row[at["block"]] != "" {
				seen++
			}
			found[strings.Join([]string{row[0], row[at["metric"]], row[at["statistic"]], row[at["block"]]}, "|")] = v
		}
		if seen != blocks(d) || len(found) != len(all)-1 {
			t.Errorf("%d rows of blocks, want %d; %d of %d rows differ", seen, blocks(d), len(found), len(all)-1)
		}
		for _, c := range d.Summary().Cells {
			for _, m := range d.Summary().Metrics {
				f := c.Figure(m)
				for _, b := range f.Blocks {
					statistic := map[bool]string{true: "P50", false: "value"}[m.Sampled]
					// encoding/csv reads \r\n as \n, as RFC 4180 ends lines.
					key := strings.Join([]string{c.Name, m.Name, statistic, strconv.Itoa(b.Block)}, "|")
					if found[key] != b.Value {
						t.Errorf("%q is %v, want %v", key, found[key], b.Value)
					}
				}
				if !m.Sampled || f.Merged.N() == 0 {
					continue
				}
				v, has := found[c.Name+"|"+m.Name+"|P99.9|"]
				if want := f.Merged.Quantile(0.999); has == math.IsNaN(want) || has && v != want {
					t.Errorf("%s, %s: P99.9 %v (%v), want %v", c.Name, m.Name, v, has, want)
				}
			}
		}
	})
}

// The grammar is that of golang.org/design/14313-benchmark-format, as golang.org/x/perf/benchfmt reads it.
func TestBenchstat(t *testing.T) {
	each(t, func(t *testing.T, d report.Document) {
		t.Helper()
		config := regexp.MustCompile(`^[\p{Ll}][^\s\p{Lu}]*: .*$`)
		unit := regexp.MustCompile(`^Unit (\S+) better=(higher|lower)$`)
		names, n, units := map[string]int{}, 0, map[string]bool{}
		for line := range strings.Lines(written(t, "benchstat", d)) {
			line = strings.TrimSuffix(line, "\n")
			fields := strings.Fields(line)
			switch {
			case len(fields) == 4 && strings.HasPrefix(line, "Benchmark"):
				if regexp.MustCompile(`^Benchmark\p{Ll}|-[0-9]+$`).MatchString(fields[0]) {
					t.Errorf("%q has no name, or ends with GOMAXPROCS", fields[0])
				}
				if _, err := strconv.ParseFloat(fields[2], 64); err != nil || fields[1] != "1" || !units[fields[3]] {
					t.Errorf("%q: %v", line, err)
				}
				names[fields[0]]++
				n++
			case unit.MatchString(line):
				units[fields[1]] = true
			case !config.MatchString(line):
				t.Errorf("not in the format: %q", line)
			}
		}
		if n != blocks(d) {
			t.Errorf("%d lines, want %d", n, blocks(d))
		}
		for _, c := range d.Summary().Cells {
			for _, m := range d.Summary().Metrics {
				want := len(c.Figure(m).Blocks)
				name := named(benchmark(m), d.Summary(), c)
				if names[name] != want {
					t.Errorf("%q: %d lines, want %d", name, names[name], want)
				}
				back, err := url.PathUnescape(name)
				for _, f := range d.Summary().Session.Factors {
					l := level(c, f.Name)
					if err != nil || l != "" && !strings.Contains(back, "/"+f.Name+"="+l) {
						t.Errorf("%q says nothing of %s=%s (%v)", back, f.Name, l, err)
					}
				}
			}
		}
	})
}

// Metrics of one unit of which one is better high and the other low have no direction; of names that differ in
// the case of their first letter both stay.
func TestBenchstatNames(t *testing.T) {
	s := session.Quick(t)
	s.Metrics[3].Unit, s.Metrics[2].Name = "bit/s", "Throughput"
	s.Metrics[0].MeanOf = s.Metrics[0].MeanOf[:1]
	for i := range s.Runs {
		for _, m := range s.Runs[i].Measured {
			if v, is := m.Values["throughput-tcp-down"]; is {
				delete(m.Values, "throughput-tcp-down")
				m.Values["Throughput"] = v
			}
		}
	}
	got := written(t, "benchstat", stored(t, s))
	if strings.Contains(got, "Unit bit/s") || !strings.Contains(got, "\nBenchmarkThroughput/") || !strings.Contains(got, "\nBenchmarkThroughput_/") {
		t.Errorf("got %.600s", got)
	}
}

func TestHistogramLog(t *testing.T) {
	each(t, func(t *testing.T, d report.Document) {
		t.Helper()
		text := written(t, "hdr", d)
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, `"`) && len(strings.Split(line, ",")) != 5 {
				t.Errorf("expected a tag and four fields: %q", line)
			}
		}
		r := hdrhistogram.NewHistogramLogReader(strings.NewReader(text))
		merged := map[string]*hdrhistogram.Histogram{}
		intervals := 0
		for {
			h, err := r.NextIntervalHistogram()
			if err != nil {
				t.Fatal(err)
			}
			if h == nil {
				break
			}
			intervals++
			if h.EndTimeMs()-h.StartTimeMs() != 1000 || h.StartTimeMs() < d.Summary().Session.Started.UnixMilli() {
				t.Errorf("from %d to %d", h.StartTimeMs(), h.EndTimeMs())
			}
			if merged[h.Tag()] == nil {
				merged[h.Tag()] = results.NewHistogram()
			}
			merged[h.Tag()].Merge(h)
		}
		want := 0
		for _, c := range d.Summary().Cells {
			for _, m := range d.Summary().Metrics {
				f := c.Figure(m)
				if !m.Sampled || f.Merged.N() == 0 {
					continue
				}
				want += len(f.Blocks)
				if got := merged[word(c.Name, ",/")+"/"+word(m.Name, ",/")]; got == nil || !got.Equals(f.Merged.Histogram) {
					t.Errorf("%s, %s: not the histogram of the used runs", c.Name, m.Name)
				}
			}
		}
		if intervals != want {
			t.Errorf("%d intervals, want %d", intervals, want)
		}
	})
}

// The grammar is the ABNF of OpenMetrics 1.0: a family's lines together, its name with the unit at its end.
func TestOpenMetrics(t *testing.T) {
	each(t, func(t *testing.T, d report.Document) {
		t.Helper()
		text := written(t, "openmetrics", d)
		if !strings.HasSuffix(text, "\n# EOF\n") {
			t.Error("no # EOF at the end")
		}
		label := `[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*"`
		sample := regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)\{(` + label + `(?:,` + label + `)*)\} (\S+)$`)
		labelName := regexp.MustCompile(`([a-zA-Z0-9_]+)="(?:[^"\\\n]|\\[\\n"])*"`)
		family, kind, seen, values := "", "", map[string]bool{}, map[string]float64{}
		for _, line := range strings.Split(strings.TrimSuffix(text, "# EOF\n"), "\n") {
			f := strings.SplitN(line, " ", 4)
			switch {
			case line == "":
			case len(f) == 4 && f[1] == "TYPE":
				if family, kind = f[2], f[3]; seen[family] {
					t.Errorf("family %s twice", family)
				}
				seen[family] = true
			case len(f) == 4 && f[1] == "UNIT":
				if f[2] != family || !strings.HasSuffix(family, "_"+f[3]) {
					t.Errorf("%q in family %s", line, family)
				}
			case len(f) == 4 && f[1] == "HELP" && f[2] == family:
			case sample.MatchString(line):
				m := sample.FindStringSubmatch(line)
				of := strings.TrimPrefix(m[1], family)
				if !strings.HasPrefix(m[1], family) || of != "" && (kind != "summary" || of != "_count" && of != "_sum") {
					t.Errorf("%q in family %s", line, family)
				}
				v, err := strconv.ParseFloat(m[3], 64)
				if key := m[1] + m[2]; err != nil || math.IsNaN(v) || seen[key] {
					t.Errorf("%q: %v, or twice", line, err)
				} else {
					seen[key] = true
				}
				names := map[string]bool{}
				for _, n := range labelName.FindAllStringSubmatch(m[2], -1) {
					if names[n[1]] {
						t.Errorf("label %s twice: %q", n[1], line)
					}
					names[n[1]] = true
				}
				values[line[:strings.LastIndex(line, " ")]] = v
			default:
				t.Errorf("not in the format: %q", line)
			}
		}
		s := d.Summary()
		for _, c := range s.Cells {
			m := s.PrimaryDistribution()
			key := fmt.Sprintf("isolane_merged_seconds{%s}", labels(s, c, m.Name, "quantile", "0.5"))
			if got, want := values[key], c.Figure(m).Merged.Quantile(0.5)/1e9; got != want {
				t.Errorf("%s is %v, want %v", key, got, want)
			}
		}
	})
}

func TestJUnit(t *testing.T) {
	each(t, func(t *testing.T, d report.Document) {
		t.Helper()
		text := written(t, "junit", d)
		var got suites
		if err := xml.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(d.Scenario, "\x01", "\uFFFD") // XML 1.0 has no such character
		if got.Suite.Tests != 3 || len(got.Suite.Cases) != 3 || got.Suite.Name != want {
			t.Errorf("got %+v", got.Suite)
		}
		void := slices.ContainsFunc(got.Suite.Properties, func(p property) bool {
			return strings.HasPrefix(p.Name, "void: block 2, noisy-pinned-bridge") && strings.Contains(p.Value, "ran on CPU 2")
		})
		if !void {
			t.Error("no property says which run is void")
		}
	})
}

func TestJUnitStates(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	s.Scenario.Aims.Goals[0].Percent = 900
	s.Scenario.Aims.Goals[1].Percent = 1
	one := session.Made(t, "standard", 1, session.SixCells())
	one.Scenario.Aims.Goals[2].Percent = 1
	quick := session.Made(t, "quick", 10, session.SixCells())
	for name, c := range map[string]struct {
		s                        results.Session
		tests, failures, skipped int
	}{"a verdict": {s, 3, 2, 0}, "one block": {one, 3, 1, 2}, "reached, and no verdict": {quick, 3, 0, 3},
		"an objective": {session.Proved(t, "standard", 10, lane.Objective{RTT: map[string]quantity.Duration{
			"p50": 1000, "p99": 1_000_000_000, "p99.9999": 1_000_000_000}}), 3, 1, 1}} {
		var got suites
		if err := xml.Unmarshal([]byte(written(t, "junit", stored(t, c.s))), &got); err != nil {
			t.Fatal(err)
		}
		if got.Suite.Tests != c.tests || got.Suite.Failures != c.failures || got.Suite.Skipped != c.skipped {
			t.Errorf("%s: %+v", name, got.Suite)
		}
	}
}

func TestMarkdown(t *testing.T) {
	each(t, func(t *testing.T, d report.Document) {
		t.Helper()
		text := written(t, "markdown", d)
		columns := 0
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "|") {
				columns = 0
				continue
			}
			if n := strings.Count(line, "|"); columns == 0 {
				columns = n
			} else if n != columns {
				t.Errorf("%d columns, want %d: %q", n-1, columns-1, line)
			}
		}
		if strings.ContainsAny(text, "<>\r\t\x01") || !strings.Contains(text, "noisy-lane-express") {
			t.Errorf("got %.800q", text)
		}
		for _, a := range d.Aims {
			if !strings.Contains(text, "- "+strings.ToUpper(string(a.State))) {
				t.Errorf("no aim is %s", a.State)
			}
		}
	})
}

func TestJSON(t *testing.T) {
	each(t, func(t *testing.T, d report.Document) {
		t.Helper()
		var got report.Document
		if err := json.Unmarshal([]byte(written(t, "json", d)), &got); err != nil || got.Kind != "Report" || got.Scenario != d.Scenario {
			t.Errorf("%v: %+v", err, got)
		}
	})
}

// A session of which nothing counts is valid in each format.
func TestNothing(t *testing.T) {
	s := session.Quick(t)
	s.Runs, s.Complete = nil, false
	d := stored(t, s)
	for _, f := range Formats() {
		var b bytes.Buffer
		if err := f.Write(&b, d); err != nil || b.Len() == 0 {
			t.Errorf("%s: %v, %d bytes", f.Name, err, b.Len())
		}
		if err := f.Write(failing{}, d); err == nil {
			t.Errorf("%s: what cannot be written is no error", f.Name)
		}
	}
	if _, err := Find("xls"); err == nil || !strings.Contains(err.Error(), "expected benchstat, csv") {
		t.Errorf("got %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// The ends of a search's brackets are rows of the CSV.
func TestSearchesInCSV(t *testing.T) {
	s := session.Quick(t)
	holds, fails := 2000.0, 2100.5
	s.Searches = []results.Search{{Name: "limits", Kind: results.Bounds, Unit: "/s", Goals: []results.SearchGoal{{Name: "noiseless"}, {Name: "deterministic"}},
		Cells: []results.Searched{{Name: s.Cells[1].Name, Cells: s.Cells[1:2], Trials: make([]results.Trial, 7),
			Brackets: []results.Bracket{{Holds: &holds, Fails: &fails, Throughput: &holds}, {Fails: &fails}}}}}}
	rows, err := csv.NewReader(strings.NewReader(written(t, "csv", stored(t, s)))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, row := range rows {
		if len(row) != len(rows[0]) {
			t.Errorf("%d columns, want %d: %q", len(row), len(rows[0]), row)
		}
		if k := slices.Index(row, "limits"); k > 0 {
			found = append(found, strings.Join(row[k:], ","))
		}
	}
	want := []string{"limits,/s,noiseless holds,,2000,7,", "limits,/s,noiseless fails,,2100.5,7,", "limits,/s,noiseless throughput,,2000,7,",
		"limits,/s,deterministic fails,,2100.5,7,"}
	if !slices.Equal(found, want) {
		t.Errorf("%q, want %q", found, want)
	}
}

// What a late client found is a bound in each format that can say so, and the ratio to it one in the other direction.
func TestLateClient(t *testing.T) {
	const base, ping = "quiet-floating-bridge", "rtt-udp-64-pingpong"
	s := session.Made(t, "standard", 10, session.SixCells())
	inTime := stored(t, session.Made(t, "standard", 10, session.SixCells()))
	for i, r := range s.Runs {
		for k := range r.Measured {
			if m := &s.Runs[i].Measured[k]; r.Cell == base && m.Name == ping {
				one := m.Samples[ping]
				one.Lag = one.Histogram
				m.Samples[ping], m.Window = one, 1e9
				m.ClientLate("the client could not keep up")
			}
		}
	}
	d := stored(t, s)
	for format, c := range map[string]struct{ line, want string }{
		"openmetrics": {`^isolane_run_median_seconds\{.*cell="` + base + `".*metric="` + ping + `"`, `bound="at most"`},
		"OpenMetrics": {`^isolane_to_baseline_ratio\{.*cell="noisy.*metric="` + ping + `"`, `bound="at least"`},
		"csv":         {`^` + base + `,.*,` + ping + `,ns,P50,1,`, ",at most$"},
		"benchstat":   {`^BenchmarkRtt-udp-64-pingpong/noise=quiet/placement=floating/path=bridge `, "none"},
		"hdr":         {`^Tag=` + base + `/` + ping + `,`, "none"},
		"json":        {`"bound": "at (most|least)`, "at"},
	} {
		n, line := 0, regexp.MustCompile("(?m)"+c.line)
		if in := line.MatchString(written(t, strings.ToLower(format), inTime)); in != (format != "json") {
			t.Errorf("%s: it has such a line: %t", format, in)
		}
		for text := range strings.Lines(written(t, strings.ToLower(format), d)) {
			if line.MatchString(text) {
				if n++; !regexp.MustCompile(c.want).MatchString(strings.TrimSpace(text)) {
					t.Errorf("%s: %s", format, text)
				}
			}
		}
		if (n == 0) != (c.want == "none") {
			t.Errorf("%s: %d lines", format, n)
		}
	}
	for _, cell := range d.Cells {
		for _, f := range cell.Figures {
			if r := f.Ratio; f.Name == ping && r != nil && r.Bound != "at least" {
				t.Errorf("%s: the ratio is %q", cell.Name, r.Bound)
			}
		}
	}
}

// What was lost, and what late clients find, cannot stand in all formats as it is: then they say so.
func TestLost(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	const cell, probe = "noisy-lane-express", "rtt-udp-64-open"
	for i, r := range s.Runs {
		m := &s.Runs[i].Measured[1]
		if one := m.Samples[probe]; r.Cell == cell && r.Block == 2 {
			one.Lost, one.Wanted = 12, one.Wanted+12
			m.Samples[probe] = one
		} else if r.Cell == cell && r.Block == 3 {
			m.ClientLate("the client could not keep up")
		}
	}
	d := stored(t, s)
	for format, want := range map[string]string{
		"csv":         cell + ",noisy,lane,express," + probe + ",samples,lost,,12,40000,\n",
		"openmetrics": `isolane_merged_lost{scenario="edge",cell="` + cell + `",metric="` + probe + `",factor_noise="noisy",factor_placement="lane",factor_path="express"} 12` + "\n",
		"hdr":         "[" + cell + "/" + probe + ", block 2: 12 of 4012 were lost: longer than all that follow]\nTag=" + cell + "/" + probe + ",",
	} {
		if text := written(t, format, d); !strings.Contains(text, want) {
			t.Errorf("%s does not say %q", format, want)
		}
	}
	text := written(t, "hdr", d)
	if !strings.Contains(text, "["+cell+"/"+probe+", block 3: left out, for its client was late, so it is a bound]\n") ||
		strings.Count(text, "Tag="+cell+"/"+probe+",") != 9 {
		t.Errorf("%d intervals", strings.Count(text, "Tag="+cell+"/"+probe+","))
	}
}
