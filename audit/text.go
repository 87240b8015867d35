package audit

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/terminal"
)

const mostLines = 3 // lines of evidence; JSON has all

// Verdict returns the report in one line.
func (r Report) Verdict() string {
	count := map[Severity]int{}
	for _, f := range r.Findings {
		count[f.Severity]++
	}
	verdict := "no fault found"
	switch {
	case r.Readiness && count[Warn] > 0:
		verdict = "not prepared for lanes"
	case r.Readiness:
		verdict = "prepared for lanes"
	case count[Fault] > 0:
		verdict = "not deterministic"
	case count[Warn] > 0:
		verdict = "nearly deterministic"
	}
	return fmt.Sprintf("%s: %s, %s, %s; %d rules passed, %d could not be checked", verdict,
		quantity.Count(count[Fault], "fault"), quantity.Count(count[Warn], "warning"),
		quantity.Count(count[Info], "note"), len(r.Passed), len(r.Unknown))
}

// Write prints the report for people, as Text.
func (r Report) Write(w io.Writer) {
	_, _ = io.WriteString(w, r.Text(terminal.Of(w))) // a failed write ends the command, see terminal.Checked
}

// Text returns the report for people: the verdict, then the findings with a few lines of evidence each, the
// worst first.
func (r Report) Text(on terminal.Terminal) string {
	b := &printer{on: on}
	b.WriteString(on.Fold(on.Bold(terminal.Clean(cmp.Or(r.Hostname, "unknown host"))+": "), r.Verdict()))
	b.field("lane CPUs", fmt.Sprintf("%s (%s)", r.CPUs, r.LaneSource))
	for _, f := range r.Findings {
		f.write(b)
	}
	r.writeUnknown(b)
	if len(r.NeedLanes) > 0 {
		b.WriteString("\n" + on.Fold("", quantity.Count(len(r.NeedLanes), "rule")+
			" need lanes; name some with --lane-cpus to have them checked."))
	}
	for _, warning := range r.Warnings {
		b.WriteString(on.Fold(on.Yellow("warning: "), terminal.Clean(warning)))
	}
	return b.String()
}

// writeUnknown groups the unknown rules by the missing file.
func (r Report) writeUnknown(b *printer) {
	rules := map[string][]string{}
	var order []string
	for _, u := range r.Unknown {
		if rules[u.Missing] == nil {
			order = append(order, u.Missing)
		}
		rules[u.Missing] = append(rules[u.Missing], u.Rule)
	}
	if len(order) > 0 {
		b.WriteString("\nCould not be checked:\n")
	}
	for _, missing := range order {
		b.field("", fmt.Sprintf("%s: there is no %s", strings.Join(rules[missing], ", "), missing))
	}
}

// printer writes fields within the columns of the terminal.
type printer struct {
	strings.Builder
	on terminal.Terminal
}

// field prints a field, if it has text.
func (b *printer) field(name, text string) {
	if text != "" {
		b.WriteString(b.on.Fold(fmt.Sprintf("  %-10s", name), terminal.Clean(text)))
	}
}

func (f Finding) write(b *printer) {
	severity := strings.ToUpper(f.Severity.String())
	switch f.Severity {
	case Fault:
		severity = b.on.Red(severity)
	case Warn:
		severity = b.on.Yellow(severity)
	default:
		severity = b.on.Dim(severity)
	}
	b.WriteString("\n" + b.on.Fold(severity+"  ", f.Rule+": "+f.Title))
	if f.Severity > Info {
		b.field("for", fmt.Sprintf("poll mode %s, real-time %s, throughput %s",
			f.Classes.PollMode, f.Classes.RealTime, f.Classes.Throughput))
	}
	if !f.CPUs.IsEmpty() {
		b.field("CPUs", f.CPUs.String())
	}
	b.field("requested", f.Requested)
	b.field("in force", f.InForce)
	shown := f.Evidence
	if len(shown) > mostLines+1 {
		more := fmt.Sprintf("… and %d more, which -o json lists", len(shown)-mostLines)
		shown = append(slices.Clone(shown[:mostLines]), more)
	}
	for _, line := range shown {
		b.field("", line)
	}
	b.field("impact", f.Impact)
	b.field("fix", f.Fix)
	b.field("at boot", f.FixAtBoot)
	b.field("see", f.Source)
}
