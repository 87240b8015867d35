package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Text prints the session for a terminal of that many columns. Prose is wrapped; tables of ordinary
// figures need 100 columns.
func Text(w io.Writer, s Summary, width int) error {
	p := printer{w: w, width: width}
	for _, l := range s.firstLines() {
		p.wrap("", l)
	}
	e := s.Session.Environment
	p.wrap("machine: ", fmt.Sprintf("%s, CPUs %s, kernel %s", e.CPUModel, e.Online, e.Kernel))
	for _, n := range s.Session.Notes {
		p.wrap("note: ", n)
	}
	if s.Baseline == "" {
		p.wrap("note: ", "no cell is the baseline: nothing can be compared.")
	}
	if len(s.Directions) > 0 {
		p.table(s.throughputTable())
	}
	if s.RTT != "" {
		p.table(s.rttTable(s.RTT))
	}
	if len(s.Costs) > 0 {
		p.table(s.costTable())
	}
	if slices.ContainsFunc(s.Cells, func(c Cell) bool { return c.Tail.Runs > 0 }) {
		p.line("")
		p.wrap("", "What the worst samples met ("+s.RTT+")")
		for _, c := range s.Cells {
			if c.Tail.Runs > 0 {
				p.wrap(c.tailLine())
			}
		}
		p.wrap("  ", tailNote)
	}
	if t := s.workTable(); len(t.Rows) > 0 {
		p.table(t)
	}
	if len(s.Aims) > 0 {
		p.line("")
		p.line("Aims: %s against %s", aimCell, aimBase)
		for _, a := range s.Aims {
			p.wrap(fmt.Sprintf("  %-12s ", strings.ToUpper(string(a.State))), a.sentence())
		}
	}
	p.line("")
	for _, c := range s.caveats() {
		p.wrap("- ", c)
	}
	return p.err
}

// firstLines say what was measured, how much of it counts, and what it can show.
func (s *Summary) firstLines() []string {
	sc := s.Session.Scenario
	lines := []string{sc.Name + ": " + sc.Title}
	if !s.Session.Complete {
		lines = append(lines, fmt.Sprintf("INTERRUPTED: %d of %d runs were made. What follows is of those.",
			len(s.Session.Runs), s.Planned))
	}
	mode := fmt.Sprintf("%s, %s, seed %d", sc.Mode, plural(sc.Blocks, "block"), sc.Seed)
	if !s.Verdicts {
		mode += ": figures, no verdict"
	}
	dropped := "0 dropped"
	if len(s.Dropped) > 0 {
		var parts []string
		for _, why := range slices.Sorted(maps.Keys(s.Dropped)) {
			parts = append(parts, fmt.Sprintf("%d dropped (%s)", s.Dropped[why], why))
		}
		dropped = strings.Join(parts, ", ")
	}
	lines = append(lines, mode, fmt.Sprintf("%d of %s void, %d used, %s", s.Void,
		plural(len(s.Session.Runs), "run"), s.Used, dropped))
	void := fmt.Sprintf("%d of %s in used runs void", s.VoidFigures, plural(s.Figures, "measurement"))
	for _, t := range s.voidFigures() {
		void += fmt.Sprintf("; %d× %s", t.Count, t.Text)
	}
	return append(lines, void)
}

// sentence says what was to be reached and what was found.
func (a Aim) sentence() string {
	text := fmt.Sprintf("%s: %s; aim: %s", a.Text, a.Found, a.Goal)
	if a.Paper != "" {
		text += "; paper: " + a.Paper
	}
	if a.State == Open {
		text += ". The estimate reaches the aim, the blocks do not show it"
	}
	return text
}

// caveats are what a reader must know not to be misled by the figures.
func (s *Summary) caveats() []string {
	var all []string
	if s.Verdicts && s.Inconclusive > 0 {
		all = append(all, fmt.Sprintf("%s on the primary figures: inconclusive. More blocks narrow the intervals.",
			plural(s.Inconclusive, "verdict")))
	}
	all = append(all, s.tailCaveats()...)
	if slices.ContainsFunc(s.Cells, func(c Cell) bool { return c.Label() != c.Name }) {
		all = append(all, "* another path than the one asked was in force: see the notes.")
	}
	if s.shared() {
		all = append(all, "In some cells the neighbours share the client's CPUs, so their loss beside a lane is "+
			"that of a machine without a CPU to spare.")
	}
	if strings.HasSuffix(s.RTT, "pingpong") {
		all = append(all, s.RTT+" is a closed loop: service time, one message in flight. It cannot show queueing; "+
			"the open loop can.")
	}
	all = append(all, "A maximum has no interval and grows with the time measured.")
	for _, source := range s.sources() {
		all = append(all, "paper: "+source)
	}
	return all
}

// sources are where the published figures come from.
func (s *Summary) sources() []string {
	var all []string
	for _, c := range s.Cells {
		for _, p := range c.Published {
			if p.Source != "" && !slices.Contains(all, p.Source) {
				all = append(all, p.Source)
			}
		}
	}
	return all
}

// tailCaveats name the noisy cells whose median flatters them.
func (s *Summary) tailCaveats() []string {
	base := s.cell(s.Baseline)
	if base == nil {
		return nil
	}
	var all []string
	for _, c := range s.Cells {
		f := c.Figures[s.RTT]
		p := 0.999
		if !(f.RTT.Quantile(p) > 0) || !(base.Figures[s.RTT].RTT.Quantile(p) > 0) {
			p = 0.99
		}
		own, quiet := f.RTT.Quantile(p), base.Figures[s.RTT].RTT.Quantile(p)
		if f.Ratio.Known() && f.Ratio.Estimate < 1 && own > 2*quiet {
			all = append(all, fmt.Sprintf("%s: P50 is below that of %s, but %s is %s× as long (%s against %s µs): "+
				"judge it by its tail.", c.Name, s.Baseline, pname(p), digits(own/quiet), micro(own), micro(quiet)))
		}
	}
	return all
}

type printer struct {
	w     io.Writer
	width int
	err   error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, strings.TrimRight(fmt.Sprintf(format, args...), " "))
	}
}

// wrap prints text behind head, with the lines that follow indented as far.
func (p *printer) wrap(head, text string) {
	line, empty := head, true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > p.width {
			p.line("%s", line)
			line, empty = strings.Repeat(" ", utf8.RuneCountInString(head)), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	p.line("%s", line)
}

// table prints t with columns as wide as they need to be; text stands left, figures right.
func (p *printer) table(t table) {
	p.line("")
	p.wrap("", t.Title)
	widths := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for k, cell := range row {
			if k > 0 && t.Short(row) {
				continue // a remark that stands in for the figures
			}
			widths[k] = max(widths[k], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		line := ""
		for k, cell := range row {
			pad := strings.Repeat(" ", max(0, widths[k]-utf8.RuneCountInString(cell)))
			switch {
			case k == 0:
				line = cell + pad
			case t.Words(k) || t.Short(row):
				line += "  " + cell + pad
			default:
				line += "  " + pad + cell
			}
		}
		p.line("%s", line)
	}
	for _, n := range t.Notes {
		if n != "" {
			p.wrap("  ", n)
		}
	}
}
