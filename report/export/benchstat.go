package export

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"isolane.dev/isolane/report"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/terminal"
)

// benchstat writes the format of Go's benchmarks (golang.org/design/14313-benchmark-format, and the package
// golang.org/x/perf/benchfmt): a name per metric, its levels as /factor=level, and a line per used run. The
// baseline comes first, because benchstat compares with the first that it meets. benchstat takes the lines
// for independent samples and does not know which ran in one block, so its p-values are those of a rank sum
// test.
func benchstat(w io.Writer, d report.Document) error {
	s := d.Summary()
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "scenario: %s\ncpu: %s\n", oneLine(s.Session.Scenario.Name),
		oneLine(s.Session.Environment.CPUModel))
	for _, m := range s.Metrics {
		same := func(o metric.Metric) bool { return o.Metric.Unit == m.Metric.Unit }
		first := slices.IndexFunc(s.Metrics, same)
		differs := slices.ContainsFunc(s.Metrics, func(o metric.Metric) bool {
			return same(o) && o.Better != m.Better
		})
		if s.Metrics[first].Name == m.Name && !differs {
			fmt.Fprintf(out, "Unit %s better=%s\n", unit(m), m.Better)
		}
	}
	cells := slices.Clone(s.Cells)
	rank := map[bool]int{true: -1}
	slices.SortStableFunc(cells, func(a, b figures.Cell) int { return rank[a.Baseline] - rank[b.Baseline] })
	taken := map[string]bool{}
	for _, m := range s.Metrics {
		name := benchmark(m)
		for taken[name] { // rtt and Rtt
			name += "_"
		}
		taken[name] = true
		for _, c := range cells {
			for _, b := range c.Figure(m).Blocks {
				if b.Late {
					continue // a bound, for which benchstat has no column
				}
				fmt.Fprintf(out, "%s 1 %s %s\n", named(name, s, c), number(b.Value), unit(m))
			}
		}
	}
	return out.Flush()
}

// benchmark returns the name of a metric, which may not begin with a small letter.
func benchmark(m metric.Metric) string {
	name := word(m.Name, "/")
	first, size := utf8.DecodeRuneInString(name)
	if first = unicode.ToUpper(first); unicode.IsLower(first) {
		return "Benchmark_" + name
	}
	return "Benchmark" + string(first) + name[size:]
}

// named appends the levels to a name. A trailing dash and number would be taken for GOMAXPROCS.
func named(name string, s *figures.Summary, c figures.Cell) string {
	for _, f := range s.Session.Factors {
		if l := level(c, f.Name); l != "" {
			name += "/" + word(f.Name, "/=") + "=" + word(l, "/")
		}
	}
	return regexp.MustCompile(`-([0-9]+)$`).ReplaceAllString(name, "%2D$1")
}

// unit returns a metric's unit; benchstat knows times as ns/op.
func unit(m metric.Metric) string {
	switch m.Metric.Unit {
	case results.TimeUnit:
		return "ns/op"
	case "":
		return "value"
	case "%":
		return "%"
	}
	return word(m.Metric.Unit, "")
}

func oneLine(text string) string { return strings.Join(strings.Fields(terminal.Clean(text)), " ") }
