package claims

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/terminal"
)

// Verdict returns the report in one line.
func (r Report) Verdict() string {
	number := map[Severity]int{}
	for _, f := range r.Findings {
		number[f.Severity]++
	}
	verdict := map[Severity]string{Contradiction: "the figures do not agree",
		Impossible: "there are impossible figures",
		Suspicious: "there are suspicious figures"}[r.Worst()]
	if r.Compared == 0 {
		verdict = cmp.Or(verdict, "no figure could be compared")
	}
	return cmp.Or(verdict, "the figures agree") + ": " +
		quantity.Count(number[Contradiction], "contradiction") + ", " +
		quantity.Count(number[Impossible], "impossible finding") + ", " +
		quantity.Count(number[Suspicious], "suspicious finding") + "; " +
		quantity.Count(number[Unsaid], "thing") + " that the table does not say"
}

const mostFigures = 4 // of a finding; JSON has all

// Write prints the report for people, as Text.
func (r Report) Write(w io.Writer) {
	_, _ = io.WriteString(w, r.Text(terminal.Of(w))) // a failed write ends the command, see terminal.Checked
}

// Text returns the report for people: the verdict, then the findings with their arithmetic, the worst first.
func (r Report) Text(on terminal.Terminal) string {
	var b strings.Builder
	b.WriteString(on.Fold(on.Bold(terminal.Clean(r.File)+": "), r.Verdict()))
	b.WriteString(on.Fold("  ", quantity.Count(r.Rows, "row")+" of "+quantity.Count(r.Sources, "source")+
		fmt.Sprintf("; %d compared with others, or with a limit", r.Compared)))
	for _, f := range r.Findings {
		f.write(&b, on)
	}
	return b.String()
}

func (f Finding) write(b *strings.Builder, on terminal.Terminal) {
	severity := strings.ToUpper(f.Severity.String())
	switch f.Severity {
	case Contradiction, Impossible:
		severity = on.Red(severity)
	case Suspicious:
		severity = on.Yellow(severity)
	default:
		severity = on.Dim(severity)
	}
	field := func(name, text string) {
		b.WriteString(on.Fold(fmt.Sprintf("  %-10s", name), terminal.Clean(text)))
	}
	b.WriteString("\n" + on.Fold(severity+"  ", f.Rule+": "+f.Title))
	shown := f.Figures
	if len(shown) > mostFigures+1 {
		shown = shown[:mostFigures]
	}
	scenario := ""
	for _, row := range shown {
		if row.Scenario != scenario {
			field("in", row.Scenario)
			scenario = row.Scenario
		}
		qualifier := " " + row.Qualifier
		if row.Qualifier == "exact" || row.Qualifier == "" {
			qualifier = ""
		}
		field(fmt.Sprintf("line %d", row.Line), fmt.Sprintf("%s %s %s%s (%s)", row.Metric, row.Value, row.Unit,
			qualifier, row.Config))
	}
	if more := len(f.Figures) - len(shown); more > 0 {
		field("", fmt.Sprintf("… and %d more, which -o json lists", more))
	}
	for k, line := range f.Sum {
		name := "sum"
		if k > 0 {
			name = ""
		}
		field(name, line)
	}
	field("so", f.Conclusion)
}
