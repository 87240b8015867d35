package draw

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
)

const columns = 100

// Text draws the machine in characters, 100 columns wide at most. CPUs in brackets are one core; a
// letter behind a CPU is explained below the picture.
func Text(w io.Writer, h host.Host, p plan.Placement) error {
	t := texter{}
	t.of, t.key = marks(h, p)
	lines := t.box(build(h), columns)
	if len(t.key) > 0 {
		names := make([]string, len(t.key))
		for i, m := range t.key {
			names[i] = cmp.Or(m.sign, "no letter:") + " " + clean(m.name)
		}
		lines = append(lines, flow(names, columns, "  ")...)
	}
	for _, warning := range h.Warnings {
		lines = append(lines, "warning: "+clean(warning))
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

type texter struct {
	of  map[int]mark
	key []mark
}

// box draws one within a width, and no wider than it has to be.
func (t texter) box(b box, width int) []string {
	var inner []string
	inner = append(inner, t.cores(b.cores, width-4)...)
	var row [][]string // boxes side by side
	used := 0
	flush := func() {
		inner = append(inner, beside(row)...)
		row, used = nil, 0
	}
	for _, child := range b.children {
		lines := t.box(child, width-4)
		if used > 0 && used+1+length(lines[0]) > width-4 {
			flush()
		}
		row = append(row, lines)
		used += length(lines[0]) + 1
	}
	flush()
	for _, note := range b.notes {
		inner = append(inner, cut(clean(note), width-4))
	}
	return frame(cut(clean(b.title), width-6), inner)
}

func (t texter) cores(cores []core, width int) []string {
	var words []string
	for i, c := range cores {
		cpus := make([]string, len(c.cpus))
		for j, id := range c.cpus {
			cpus[j] = fmt.Sprint(id)
			if m, ok := t.of[id]; ok {
				cpus[j] += m.sign
			}
		}
		word := c.kind + "[" + strings.Join(cpus, "\u00a0") + "]"
		if c.cluster >= 0 && (i == 0 || cores[i-1].cluster != c.cluster) {
			word = "L2{" + word
		}
		if c.cluster >= 0 && (i == len(cores)-1 || cores[i+1].cluster != c.cluster) {
			word += "}"
		}
		words = append(words, word)
	}
	lines := flow(words, width, " ")
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "\u00a0", " ")
	}
	return lines
}

// flow puts words into lines.
func flow(words []string, width int, gap string) []string {
	var lines []string
	line := ""
	for _, w := range words {
		switch {
		case line == "":
			line = w
		case length(line)+len(gap)+length(w) > width:
			lines, line = append(lines, line), w
		default:
			line += gap + w
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// beside joins boxes, and fills up the shorter ones.
func beside(boxes [][]string) []string {
	height := 0
	for _, b := range boxes {
		height = max(height, len(b))
	}
	lines := make([]string, height)
	for n, b := range boxes {
		for i := range lines {
			text := strings.Repeat(" ", length(b[0]))
			if i < len(b) {
				text = b[i]
			}
			if n > 0 {
				text = " " + text
			}
			lines[i] += text
		}
	}
	return lines
}

func frame(title string, inner []string) []string {
	wide := length(title) + 2
	for _, line := range inner {
		wide = max(wide, length(line))
	}
	lines := []string{"┌ " + title + " " + strings.Repeat("─", wide-length(title)) + "┐"}
	for _, line := range inner {
		lines = append(lines, "│ "+line+strings.Repeat(" ", wide-length(line))+" │")
	}
	return append(lines, "└"+strings.Repeat("─", wide+2)+"┘")
}

func length(s string) int { return utf8.RuneCountInString(s) }

func cut(s string, width int) string {
	if length(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

// clean takes the control characters out of what a foreign machine says.
func clean(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 || c == utf8.RuneError {
			return ' '
		}
		return c
	}, s)
}
