package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/curves"
	"isolane.dev/isolane/report/evidence"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/terminal"
)

// Text prints the session as a terminal can show it.
func Text(w io.Writer, s figures.Summary, on terminal.Terminal) error {
	p := printer{on: on}
	p.WriteString(on.Fold("", on.Bold(terminal.Clean(s.Session.Scenario.Name+": "+s.Session.Scenario.Title))))
	if why := s.Unfinished(); why != "" {
		p.fold("", why)
	}
	for _, l := range firstLines(&s) {
		p.fold("", l)
	}
	e := s.Session.Environment
	p.fold("machine: ", fmt.Sprintf("%s, CPUs %s, kernel %s", e.CPUModel, e.Online, e.Kernel))
	for _, l := range evidence.BootLines(s.Session) {
		p.fold("", l)
	}
	for _, n := range s.Session.Notes {
		p.fold("note: ", n)
	}
	if s.Baseline == "" {
		p.fold("note: ", "no cell is the baseline: nothing can be compared.")
	}
	if s.Used > 0 {
		p.figures(&s)
	}
	p.table(searchTable(&s))
	if title, lines := objectiveLines(&s); title != "" {
		p.title(title)
		for _, l := range lines {
			p.fold("- ", l)
		}
	}
	p.WriteString("\n")
	for _, row := range factTable(&s).Rows {
		p.fold("- ", fmt.Sprintf("%s of %s: %s", row[0], row[1], row[2]))
	}
	for _, c := range caveats(&s) {
		p.fold("- ", c)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// figures prints the tables and the aims.
func (p *printer) figures(s *figures.Summary) {
	for _, m := range s.Primary() {
		p.table(valueTable(s, m))
	}
	for _, curve := range curves.Of(s) {
		for _, m := range s.Primary() {
			if s.Has(m) {
				p.table(curveTable(curve, m, false))
			}
		}
	}
	p.table(costTable(s))
	p.table(winTable(s))
	if cells := tailCells(s); len(cells) > 0 {
		p.title(tailTable(s).Title)
		for _, c := range cells {
			p.fold("- ", tailLine(c))
		}
		p.fold("  ", tailNote)
	}
	p.table(distanceTable(s))
	p.table(publishedTable(s))
	p.table(workTable(s))
	p.table(roleTable(s, results.Cost, "What the figures were paid with"))
	if len(s.Aims) > 0 {
		p.title("Aims: " + s.AimPair() + s.AimNote())
		for _, a := range s.Aims {
			p.fold("  "+p.state(a), aimSentence(a))
		}
	}
}

// firstLines says what was measured, how much of it counts, and what it can show.
func firstLines(s *figures.Summary) []string {
	sc := s.Session.Scenario
	mode := fmt.Sprintf("%s, %s, seed %d", sc.Mode, quantity.Count(sc.Blocks, "block"), sc.Seed)
	if !s.Verdicts {
		mode += ": figures, no verdict"
	}
	runs := fmt.Sprintf("%d of %s void", s.Void, quantity.Count(len(s.Session.Runs), "run"))
	if s.Again > 0 {
		runs += fmt.Sprintf(" (%d made again within their block)", s.Again)
	}
	runs += fmt.Sprintf(", %d used", s.Used)
	for _, why := range slices.Sorted(maps.Keys(s.Dropped)) {
		runs += fmt.Sprintf(", %d dropped (%s)", s.Dropped[why], why)
	}
	if len(s.Dropped) == 0 {
		runs += ", 0 dropped"
	}
	lines := []string{mode, runs}
	if s.Void > 0 {
		lines = append(lines, voidRuns(s))
	}
	if s.Used == 0 {
		return append(lines, "No run counts, so there are no figures.")
	}
	if unused := unused(s); len(unused) > 0 {
		lines = append(lines, fmt.Sprintf("%s in %d cells: %s", figures.NoRun, len(unused),
			strings.Join(unused, ", ")))
	}
	void := fmt.Sprintf("%d of %s in used runs void", s.VoidValues, quantity.Count(s.Values, "measurement"))
	found := voidValues(s)
	for _, why := range slices.Sorted(maps.Keys(found)) {
		void += fmt.Sprintf("; %d× %s", found[why], why)
	}
	if s.Late > 0 {
		void += fmt.Sprintf("; %d of late clients, which are bounds", s.Late)
	}
	return append(lines, void)
}

// voidRuns counts the void runs by their first reason, the most frequent first.
func voidRuns(s *figures.Summary) string {
	found := map[string]int{}
	for _, r := range s.Session.Runs {
		if len(r.Void) > 0 {
			found[r.Void[0]]++
		}
	}
	reasons := slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(found[b]-found[a], cmp.Compare(a, b))
	})
	var parts []string
	for k, why := range reasons {
		if k == 3 {
			parts = append(parts, quantity.Count(len(reasons)-k, "other reason")+
				": see the void ledger in report.html")
			break
		}
		parts = append(parts, fmt.Sprintf("%d× %s", found[why], why))
	}
	return "void: " + strings.Join(parts, "; ")
}

// voidValues counts the void measurements of used runs by name and reason, without the reason's figures.
func voidValues(s *figures.Summary) map[string]int {
	found := map[string]int{}
	for _, r := range s.Session.Runs {
		for _, m := range r.Measured {
			if late, err := m.Censored(); r.Used() && len(m.Void) > 0 && !late && err == nil {
				found[m.Name+": "+withoutFigures(m.Void[0])]++
			}
		}
	}
	return found
}

// withoutFigures returns the part of a reason before its figures, without the instance that it is about.
func withoutFigures(why string) string {
	first, rest, _ := strings.Cut(why, ": ")
	if strings.HasPrefix(first, "instance ") && rest != "" {
		first, rest, _ = strings.Cut(rest, ": ")
	}
	if strings.HasPrefix(rest, "expected ") {
		first += ": not as expected"
	}
	return regexp.MustCompile(`^[0-9]+ of [0-9]+ `).ReplaceAllString(first, "")
}

// objectiveLines says what was found for each bound. The title is empty if no lane was proved.
func objectiveLines(s *figures.Summary) (title string, lines []string) {
	if s.Session.Lane == nil {
		return "", nil
	}
	for _, j := range s.Objective {
		lines = append(lines, j.String())
	}
	if len(lines) == 0 {
		lines = append(lines, "It declares none: with spec.objective it is judged.")
	}
	return "Objective of lane " + s.Session.Lane.Name, lines
}

// shared reports whether the neighbours of some cell share the client's CPUs for lack of others.
func shared(s *figures.Summary) bool {
	return slices.ContainsFunc(s.Cells, func(c figures.Cell) bool { return c.Neighbours.Intersects(c.Client) })
}

// aimSentence says what was to be reached and what was found.
func aimSentence(a figures.Aim) string {
	text := fmt.Sprintf("%s: %s; aim: %s", a.Text, a.Found, a.Goal)
	if a.Paper != "" {
		text += "; paper: " + a.Paper
	}
	if len(a.Doubts) > 0 {
		return text + ". Open, for a guard failed: " + strings.Join(a.Doubts, ", ")
	}
	if a.State == figures.Open {
		text += ". The estimate reaches the aim, the blocks do not show it"
	}
	return text
}

// caveats returns what a reader must know not to be misled by the figures.
func caveats(s *figures.Summary) []string {
	var all []string
	if text := s.Undecided(); text != "" {
		all = append(all, text)
	}
	for _, g := range s.Guards {
		if g.State == figures.Failed {
			all = append(all, g.Name+": "+g.Text+".")
		}
	}
	all = append(all, tailCaveats(s)...)
	if slices.ContainsFunc(s.Cells, func(c figures.Cell) bool { return c.Label() != c.Name }) {
		all = append(all, "* another level than the one asked was in force: see the notes.")
	}
	if shared(s) {
		all = append(all, "In some cells the neighbours share the client's CPUs, so their loss beside a lane is "+
			"that of a machine without a CPU to spare.")
	}
	if m := s.PrimaryDistribution(); m.Loop == results.Closed {
		all = append(all, m.Name+" is a closed loop: service time, one message in flight. It cannot show "+
			"queueing; the open loop can.")
	}
	if slices.ContainsFunc(s.Metrics, func(m metric.Metric) bool { return m.Sampled }) {
		all = append(all, "A maximum has no interval and grows with the time measured.")
	}
	for _, c := range s.Cells {
		for _, p := range c.Published {
			if p.Source != "" {
				all = append(all, "paper: "+p.Source)
			}
		}
	}
	return once(all)
}

// tailCaveats names the noisy cells whose median flatters them.
func tailCaveats(s *figures.Summary) []string {
	base, m := s.Cell(s.Baseline), s.PrimaryDistribution()
	if base == nil {
		return nil
	}
	var all []string
	for _, c := range s.Cells {
		f, ref := c.Figure(m), base.Figure(m).Merged
		p := 0.999
		if !(f.Merged.Quantile(p) > 0) || !(ref.Quantile(p) > 0) {
			p = 0.99
		}
		own, other := f.Merged.Quantile(p), ref.Quantile(p)
		if f.Ratio.Known() && f.Ratio.Estimate < 1 && own > 2*other && !f.AtMost {
			all = append(all, fmt.Sprintf("%s: %s is below that of %s, but %s is %s× as long (%s against %s %s): "+
				"judge it by its tail.", c.Name, m.Statistic, s.Baseline, format.Quantile(p), format.Ratio(own/other),
				m.Unit.Plain(own), m.Unit.Plain(other), m.Unit.Name))
		}
	}
	return all
}

type printer struct {
	strings.Builder
	on terminal.Terminal
}

func (p *printer) fold(head, text string) { p.WriteString(p.on.Fold(head, terminal.Clean(text))) }

func (p *printer) title(text string) {
	p.WriteString("\n" + p.on.Fold("", p.on.Bold(terminal.Clean(text))))
}

// state prints the state of an aim, coloured if it is a verdict.
func (p *printer) state(a figures.Aim) string {
	text := fmt.Sprintf("%-12s ", strings.ToUpper(string(a.State)))
	switch {
	case !a.Firm:
	case a.State == figures.Reached:
		return p.on.Green(text)
	case a.State == figures.NotReached:
		return p.on.Red(text)
	case a.State == figures.Open:
		return p.on.Yellow(text)
	}
	return text
}

// table prints t, unless it has no rows.
func (p *printer) table(t table) {
	if len(t.Rows) == 0 && len(t.Notes) == 0 {
		return
	}
	p.title(t.Title)
	out := terminal.Table{Rows: t.Rows}
	for k, c := range t.Columns {
		out.Head = append(out.Head, c.Name)
		if !c.Words {
			out.Figures = append(out.Figures, k)
		}
	}
	if len(t.Rows) > 0 {
		p.WriteString(p.on.Table(out.Clean()))
	}
	for _, n := range t.Notes {
		if n != "" {
			p.fold("  ", n)
		}
	}
}
