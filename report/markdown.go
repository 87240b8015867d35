package report

import (
	"fmt"
	"io"
	"strings"

	"isolane.dev/isolane/terminal"
)

// Markdown writes the summary as GitHub's Markdown, for a comment on a pull request: what was measured, the
// primary figures, the aims, the objective, and what a reader must know.
func (d Document) Markdown(w io.Writer) error {
	s := &d.summary
	var b markdown
	b.line("### %s: %s", s.Session.Scenario.Name, s.Session.Scenario.Title)
	if why := s.Unfinished(); why != "" {
		b.line("**%s**", why)
	}
	e := s.Session.Environment
	b.list(append(firstLines(s), fmt.Sprintf("machine: %s, CPUs %s, kernel %s", e.CPUModel, e.Online, e.Kernel)))
	if s.Used > 0 {
		for _, m := range s.Primary() {
			b.table(valueTable(s, m))
		}
		b.table(costTable(s))
		b.table(winTable(s))
	}
	b.table(searchTable(s))
	if len(s.Aims) > 0 {
		b.line("**Aims: %s**", s.AimPair()+s.AimNote())
		var aims []string
		for _, a := range s.Aims {
			aims = append(aims, strings.ToUpper(string(a.State))+": "+aimSentence(a))
		}
		b.list(aims)
	}
	if title, lines := objectiveLines(s); title != "" {
		b.line("**%s**", title)
		b.list(lines)
	}
	var care []string
	for _, n := range s.Session.Notes {
		care = append(care, "note: "+n)
	}
	b.list(append(care, caveats(s)...))
	_, err := io.WriteString(w, b.String())
	return err
}

type markdown struct{ strings.Builder }

// line writes a paragraph. The texts in it are not markup.
func (m *markdown) line(form string, texts ...any) {
	for i, t := range texts {
		if text, is := t.(string); is {
			texts[i] = Verbatim(text)
		}
	}
	fmt.Fprintf(m, form+"\n\n", texts...)
}

func (m *markdown) list(items []string) {
	for _, i := range items {
		m.WriteString("- " + Verbatim(i) + "\n")
	}
	m.WriteString("\n")
}

func (m *markdown) table(t table) {
	if len(t.Rows) == 0 {
		return
	}
	m.line("**%s**", t.Title)
	row := func(cells []string) {
		for k := range t.Columns {
			cell := ""
			if k < len(cells) {
				cell = Verbatim(cells[k])
			}
			m.WriteString("| " + cell + " ")
		}
		m.WriteString("|\n")
	}
	var names []string
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	row(names)
	for _, c := range t.Columns {
		m.WriteString(map[bool]string{true: "| --- ", false: "| ---: "}[c.Words])
	}
	m.WriteString("|\n")
	for _, r := range t.Rows {
		row(r)
	}
	m.WriteString("\n")
	for _, n := range t.Notes {
		if n != "" {
			m.line("%s", n)
		}
	}
}

// Verbatim keeps text from being markup, and in one line: ASCII punctuation that means something may be
// written behind a backslash (CommonMark 0.31, section 2.4), a pipe as an entity also in a table.
func Verbatim(text string) string {
	text = strings.Join(strings.Fields(terminal.Clean(text)), " ")
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", "&#124;",
		`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "#", `\#`, "~", `\~`,
		"@", "@\u200b").Replace(text) // a name behind @ would be told of it
}
