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
	var b Markdown
	b.Line("### %s: %s", s.Session.Scenario.Name, s.Session.Scenario.Title)
	if why := s.Unfinished(); why != "" {
		b.Line("**%s**", why)
	}
	e := s.Session.Environment
	b.List(append(firstLines(s), fmt.Sprintf("machine: %s, CPUs %s, kernel %s", e.CPUModel, e.Online, e.Kernel)))
	if s.Used > 0 {
		for _, m := range s.Primary() {
			b.table(valueTable(s, m))
		}
		b.table(costTable(s))
		b.table(winTable(s))
	}
	b.table(searchTable(s))
	if len(s.Aims) > 0 {
		b.Line("**Aims: %s**", s.AimPair()+s.AimNote())
		var aims []string
		for _, a := range s.Aims {
			aims = append(aims, strings.ToUpper(string(a.State))+": "+aimSentence(a))
		}
		b.List(aims)
	}
	if title, lines := objectiveLines(s); title != "" {
		b.Line("**%s**", title)
		b.List(lines)
	}
	var care []string
	for _, n := range s.Session.Notes {
		care = append(care, "note: "+n)
	}
	b.List(append(care, caveats(s)...))
	_, err := io.WriteString(w, b.String())
	return err
}

// Markdown writes GitHub's Markdown.
type Markdown struct{ strings.Builder }

// Line writes a paragraph. Markup in its texts is escaped.
func (m *Markdown) Line(form string, texts ...any) {
	for i, t := range texts {
		if text, is := t.(string); is {
			texts[i] = verbatim(text)
		}
	}
	fmt.Fprintf(m, form+"\n\n", texts...)
}

// List writes items. Markup in them is escaped.
func (m *Markdown) List(items []string) {
	for _, i := range items {
		m.WriteString("- " + verbatim(i) + "\n")
	}
	m.WriteString("\n")
}

// Row writes a row of a table, as wide as the table is. Markup in its cells is escaped.
func (m *Markdown) Row(columns int, cells ...string) {
	for k := range columns {
		cell := ""
		if k < len(cells) {
			cell = verbatim(cells[k])
		}
		m.WriteString("| " + cell + " ")
	}
	m.WriteString("|\n")
}

func (m *Markdown) table(t table) {
	if len(t.Rows) == 0 {
		return
	}
	m.Line("**%s**", t.Title)
	var names []string
	rule := "|"
	for _, c := range t.Columns {
		names = append(names, c.Name)
		rule += map[bool]string{true: " --- |", false: " ---: |"}[c.Words]
	}
	m.Row(len(t.Columns), names...)
	m.WriteString(rule + "\n")
	for _, r := range t.Rows {
		m.Row(len(t.Columns), r...)
	}
	m.WriteString("\n")
	for _, n := range t.Notes {
		if n != "" {
			m.Line("%s", n)
		}
	}
}

// verbatim escapes markup in text and puts it on one line. ASCII punctuation with a meaning is written behind
// a backslash (CommonMark 0.31, section 2.4), and a pipe as an entity, also in a table.
func verbatim(text string) string {
	text = strings.Join(strings.Fields(terminal.Clean(text)), " ")
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", "&#124;",
		`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "#", `\#`, "~", `\~`,
		"@", "@\u200b").Replace(text) // GitHub would notify a name behind @
}
