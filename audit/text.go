package audit

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	width       = 100 // columns of the text
	mostLines   = 3   // of the evidence; JSON has all
	fieldIndent = "            "
)

// Verdict is the report in one line.
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
		counted(count[Fault], "fault"), counted(count[Warn], "warning"), counted(count[Info], "note"), len(r.Passed), len(r.Unknown))
}

func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Write prints the report for a person: the verdict, then the findings, the worst first, with a few
// lines of evidence each.
func (r Report) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", orUnknown(r.Hostname), r.Verdict())
	wrap(&b, "lane CPUs", fmt.Sprintf("%s (%s)", r.LaneCPUs, r.LaneSource))
	for _, f := range r.Findings {
		f.write(&b)
	}
	r.writeUnknown(&b)
	if len(r.NeedLanes) > 0 {
		fmt.Fprintf(&b, "\n%s ask about lanes; name some with --lane-cpus to have them checked.\n", counted(len(r.NeedLanes), "rule"))
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", printable(warning))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeUnknown gathers the rules by what they miss.
func (r Report) writeUnknown(b *strings.Builder) {
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
		wrap(b, "", fmt.Sprintf("%s: there is no %s", strings.Join(rules[missing], ", "), missing))
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown host"
	}
	return printable(s)
}

func (f Finding) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s  %s: %s\n", strings.ToUpper(f.Severity.String()), f.Rule, f.Title)
	if f.Severity > Info {
		wrap(b, "for", fmt.Sprintf("poll mode %s, real-time %s, throughput %s", f.Classes.PollMode, f.Classes.RealTime, f.Classes.Throughput))
	}
	if !f.CPUs.IsEmpty() {
		wrap(b, "CPUs", f.CPUs.String())
	}
	wrap(b, "asked", f.Asked)
	wrap(b, "in force", f.InForce)
	for i, line := range f.Evidence {
		if i == mostLines && len(f.Evidence) > mostLines+1 {
			fmt.Fprintf(b, "%s… and %d more, which -o json lists\n", fieldIndent, len(f.Evidence)-mostLines)
			break
		}
		wrap(b, "", line)
	}
	wrap(b, "costs", f.Cost)
	wrap(b, "mend now", f.RunTime)
	wrap(b, "at boot", f.Boot)
	wrap(b, "see", f.Source)
}

// wrap prints a field, if there is something to print. A list that is longer than a line is broken
// at its commas.
func wrap(b *strings.Builder, field, text string) {
	if text == "" {
		return
	}
	const room = width - len(fieldIndent)
	line := fmt.Sprintf("  %-10s", field)
	start := true
	for _, word := range strings.Fields(printable(text)) {
		for utf8.RuneCountInString(word) > room && strings.Contains(word[:room], ",") {
			at := strings.LastIndexByte(word[:room], ',') + 1
			if !start {
				b.WriteString(line + "\n")
				line = fieldIndent
			}
			b.WriteString(line + word[:at] + "\n")
			line, start, word = fieldIndent, true, word[at:]
		}
		if !start && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			b.WriteString(line + "\n")
			line, start = fieldIndent, true
		}
		if !start {
			line += " "
		}
		line, start = line+word, false
	}
	b.WriteString(line + "\n")
}

// printable takes the control characters out of what a foreign machine says.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, s)
}
