package report

import (
	"fmt"
	"slices"
	"strings"
)

// chart is a picture with its data.
type chart struct {
	File  string // name of the SVG, without directory
	Title string
	Alt   string
	SVG   []byte
	Data  table
	Minor bool // one of the further charts
}

// charts draws all that the session has data for: first those of the primary figures.
func (s *Summary) charts() ([]chart, error) {
	var all []chart
	add := func(f frame, c chart) error {
		c.Title = f.title
		svg, err := f.svg(c.Alt)
		c.SVG = svg
		all = append(all, c)
		return err
	}
	if s.compared(Throughput) {
		if err := s.throughputChart(Throughput, add); err != nil {
			return nil, err
		}
	}
	names := slices.Clone(s.RTTs)
	slices.SortStableFunc(names, func(a, b string) int { return s.rank(a) - s.rank(b) })
	for _, name := range names {
		if !s.has(name) {
			continue
		}
		draws := []func(string, adder) error{s.rttChart, s.rttRanges, s.rttPercentiles}
		if !s.compared(name) {
			draws = draws[1:]
		}
		for _, draw := range draws {
			if err := draw(name, add); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range s.Directions {
		if s.compared(name) && len(s.Directions) > 1 {
			if err := s.throughputChart(name, add); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

type adder func(frame, chart) error

// rank puts the primary measurement first.
func (s *Summary) rank(name string) int {
	if name == s.RTT {
		return 0
	}
	return 1
}

func (s *Summary) has(name string) bool {
	return slices.ContainsFunc(s.Cells, func(c Cell) bool { return len(c.Figures[name].Blocks) > 0 })
}

// compared says whether there is anything in percent of the baseline.
func (s *Summary) compared(name string) bool {
	return slices.ContainsFunc(s.Cells, func(c Cell) bool { return c.Figures[name].Ratio.Known() })
}

// file names a chart: the primary ones by what they are, the others by their measurement too.
func (s *Summary) file(what, name string) string {
	if name == s.RTT || name == Throughput {
		return "chart-" + what + ".svg"
	}
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
	return "chart-" + what + "-" + clean + ".svg"
}

func (s *Summary) throughputChart(name string, add adder) error {
	title, what, paper := "Throughput in percent of "+s.Baseline, s.directions(), "throughput"
	data := s.throughputTable()
	if name != Throughput {
		title, what, paper = "Throughput "+short(name)+" in percent of "+s.Baseline, name, ""
		data = s.blockTable(name)
	}
	hint := fmt.Sprintf("TCP, %s. On the right the Hodges–Lehmann estimate, and the median of the runs. More is better.", what)
	f := s.barsChart(name, title, hint, paper, func(f Figure) string { return rate(f.Centre) })
	return add(f, chart{File: s.file("throughput", strings.TrimPrefix(name, "throughput-")), Data: data,
		Alt: s.alt(title, name), Minor: name != Throughput})
}

// averages says whether the published round trips are averages.
func (s *Summary) averages() bool {
	return slices.ContainsFunc(s.Cells, func(c Cell) bool {
		p, ok := c.paper("rtt")
		return ok && strings.Contains(p.Qualifier, "average")
	})
}

func (s *Summary) rttChart(name string, add adder) error {
	paper := ""
	hint := "Median round trip (P50). On the right the Hodges–Lehmann estimate, and P50 of all runs merged. Less is better."
	if name == s.RTT {
		paper = "rtt"
		if s.averages() {
			hint += " The paper gives averages, not medians."
		}
	}
	title := fmt.Sprintf("RTT P50 in percent of %s: %s", s.Baseline, name)
	f := s.barsChart(name, title, hint, paper, func(f Figure) string { return micros(f.RTT.Quantile(0.5)) })
	return add(f, chart{File: s.file("rtt", name), Data: s.rttTable(name), Alt: s.alt(title, name),
		Minor: name != s.RTT})
}

func (s *Summary) rttRanges(name string, add adder) error {
	title := "RTT from the shortest to the longest: " + name
	f := s.rangesChart(name, title, "All used runs of a cell merged, in µs. A maximum grows with the time measured; "+
		"a percentile that the sample does not support is left out.")
	return add(f, chart{File: s.file("range", name), Data: s.distributionTable(name),
		Alt: s.tailAlt(title, name), Minor: name != s.RTT})
}

func (s *Summary) rttPercentiles(name string, add adder) error {
	title := "RTT by percentile: " + name
	f := s.percentilesChart(name, title, "All used runs of a cell merged. Each line ends at the highest "+
		"percentile that its sample supports. Lower is better; a flat line is a predictable one.")
	return add(f, chart{File: s.file("percentiles", name), Alt: s.tailAlt(title, name), Minor: name != s.RTT})
}

// alt says in words what the bars show.
func (s *Summary) alt(title, name string) string {
	var parts []string
	for _, c := range s.Cells {
		f := c.Figures[name]
		switch estimate, around := c.ratio(f.Ratio); {
		case len(f.Blocks) == 0:
			parts = append(parts, c.Label()+" "+c.missing(name))
		case around == none:
			parts = append(parts, c.Label()+" "+estimate)
		default:
			parts = append(parts, fmt.Sprintf("%s %s %s", c.Label(), estimate, around))
		}
	}
	return title + ": " + strings.Join(parts, ", ") + "."
}

// tailAlt says in words where the distributions lie.
func (s *Summary) tailAlt(title, name string) string {
	var parts []string
	for _, c := range s.Cells {
		d := c.Figures[name].RTT
		if d.N() == 0 {
			continue
		}
		text := c.Label() + " P50 " + micros(d.Quantile(0.5))
		if d.Supported > 0.5 {
			text += ", " + pname(d.Supported) + " " + micros(d.Quantile(d.Supported))
		}
		parts = append(parts, text+", max "+micros(d.Max()))
	}
	return title + ": " + strings.Join(parts, "; ") + "."
}
