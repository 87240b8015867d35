package answers

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/report"
)

// Write writes the page as GitHub's Markdown.
func (p Page) Write(w io.Writer) error {
	b := &page{Page: p, said: map[int]bool{}}
	b.Line("# Published figures, answered")
	b.Line("Made by `isolane report --answers TABLE.csv SESSION...` from stored results. Each row of a " +
		"published table that a scenario asks has our figure beside it, and what `isolane audit-claims` " +
		"finds in the row. What differs in the conditions comes first: read it before the verdicts.")
	b.Line("A ratio is of cells of one session, block by block, with the interval of its median. **held**: " +
		"all of the interval lies within the margin beyond which a difference matters (5%% of a rate, 10%% " +
		"of a latency, and 5%% more around a published figure that is about). **better**, **not held**: all " +
		"of it lies on one side, and not all within the margin. **absolute**: figures of two machines; it " +
		"says what this one does, not that the published figure is wrong, and has the range of the blocks " +
		"in place of an interval. **open**: our session does not decide it, as its interval is too wide, a " +
		"guard failed, or another load was asked.")
	for _, s := range p.Scenarios {
		for _, from := range s.Spec.Published {
			b.source(s, from)
		}
	}
	b.rest()
	_, err := io.WriteString(w, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}

type page struct {
	report.Markdown
	Page
	said map[int]bool // lines of the table that have an answer
}

// source writes what a scenario answers to one source.
func (b *page) source(s scenario.Scenario, from scenario.PublishedSource) {
	all := b.answers(s, from)
	if len(all) == 0 {
		return
	}
	b.Line("## %s", from.Source)
	b.Line("**What differs**")
	b.List(append(slices.Clone(from.Differs), b.ours(s)))
	b.WriteString("| line | published | ours | verdict | audit-claims |\n| --- | --- | --- | --- | --- |\n")
	for _, a := range all {
		var rules []string
		for _, row := range a.rows {
			b.said[row.Line] = true
			for _, f := range b.findings(row) {
				if !slices.Contains(rules, f.Rule) {
					rules = append(rules, f.Rule)
				}
			}
		}
		b.Row(5, a.rows[0].At, a.published, a.ours, a.verdict, strings.Join(rules, ", "))
	}
	b.WriteString("\n")
	b.failed(s, all)
	b.found(all)
	if len(from.Doubts) > 0 {
		b.Line("**What does not hold in these figures**")
		b.List(from.Doubts)
	}
}

// ours says on which machine and how our figures were made.
func (b *page) ours(s scenario.Scenario) string {
	sum := b.session(s)
	if sum == nil {
		return fmt.Sprintf("Ours: none. isolane prove %s --standard makes a session.", s.Metadata.Name)
	}
	e, run := sum.Session.Environment, sum.Session.Scenario
	kind := "a machine"
	if e.Hypervisor {
		kind = "a virtual machine"
	}
	text := fmt.Sprintf("Ours: %s on %s with %d CPUs (%s), Linux %s; %d blocks; %d of %d runs void; begun %s.",
		sum.Command(), kind, e.Online.Len(), e.CPUModel, strings.Fields(e.Kernel + " ?")[0], run.Blocks,
		sum.Void, len(sum.Session.Runs), begun(*sum))
	return strings.Join(append([]string{text}, sum.Session.Notes...), " ")
}

// failed says how the guards failed that leave answers open.
func (b *page) failed(s scenario.Scenario, all []answer) {
	sum := b.session(s)
	if sum == nil {
		return
	}
	var items []string
	for _, g := range sum.Guards {
		if slices.ContainsFunc(all, func(a answer) bool { return slices.Contains(a.failed, g.Name) }) {
			items = append(items, g.Name+": "+g.Text)
		}
	}
	if len(items) > 0 {
		b.Line("**Guards that failed**")
		b.List(items)
	}
}

// findings returns the findings about a row.
func (b *page) findings(row claims.Figure) (all []claims.Finding) {
	for _, f := range b.Table.Findings {
		if slices.ContainsFunc(f.Figures, func(o claims.Figure) bool { return o.Line == row.Line }) {
			all = append(all, f)
		}
	}
	return all
}

// found lists what audit-claims says about the rows, each finding once.
func (b *page) found(all []answer) {
	var items []string
	for _, a := range all {
		for _, row := range a.rows {
			for _, f := range b.findings(row) {
				text := fmt.Sprintf("%s (%s): %s. %s", f.Rule, f.Severity, f.Title, f.Conclusion)
				if !slices.Contains(items, text) {
					items = append(items, text)
				}
			}
		}
	}
	if len(items) > 0 {
		b.Line("**What audit-claims finds**")
		b.List(items)
	}
}

// rest lists the rows about which no scenario asks; those of the setup are conditions.
func (b *page) rest() {
	setup := 0
	var items []string
	for _, f := range b.Table.Table {
		switch {
		case b.said[f.Line]:
		case f.Setup:
			setup++
		default:
			items = append(items, fmt.Sprintf("%s, line %s: %s", f.Scenario, f.At, printed([]claims.Figure{f})))
		}
	}
	b.Line("## Rows that no scenario asks")
	left := "none is left."
	if len(items) > 0 {
		left = "these are left:"
	}
	b.Line("Of %d rows %d have an answer above, %d describe conditions, and %s", b.Table.Rows, len(b.said),
		setup, left)
	b.List(items)
}
