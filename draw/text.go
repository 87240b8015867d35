package draw

import (
	"fmt"
	"io"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/terminal"
)

// Text draws the machine in characters. CPUs in brackets are one core. A CPU is followed by its lane, or by a
// mark that is explained below the picture.
func Text(w io.Writer, h host.Host, p plan.Placement, on terminal.Terminal) error {
	t := texter{on: on}
	var key []mark
	t.of, key = marks(h, p, shortName)
	lines := t.box(build(h), on.Columns)
	var words []string
	for _, m := range key {
		switch word := terminal.Clean(m.name); {
		case len(m.lanes) > 0 && m.sign == p.Lanes[m.lanes[0]].Name:
			words = append(words, word)
		case m.sign == "":
			words = append(words, "no mark: "+word)
		default:
			words = append(words, m.sign+": "+word)
		}
	}
	text := strings.Join(lines, "\n") + "\n"
	for _, line := range flow(words, on.Columns, "   ") {
		if terminal.Width(line) > on.Columns {
			line = strings.TrimSuffix(on.Fold("", line), "\n")
		}
		text += line + "\n"
	}
	for _, warning := range h.Warnings {
		text += on.Fold(on.Yellow("warning: "), terminal.Clean(warning))
	}
	_, err := io.WriteString(w, text)
	return err
}

type texter struct {
	on terminal.Terminal
	of map[int]mark
}

// box draws a box within a width, no wider than necessary.
func (t texter) box(b box, width int) []string {
	title := lines(terminal.Clean(b.title), width-6)
	inner := append(title[1:], t.cores(b.cores, width-4)...)
	var row [][]string // boxes side by side
	used := 0
	flush := func() {
		inner = append(inner, beside(row)...)
		row, used = nil, 0
	}
	for _, child := range b.children {
		lines := t.box(child, width-4)
		if used > 0 && used+1+terminal.Width(lines[0]) > width-4 {
			flush()
		}
		row = append(row, lines)
		used += terminal.Width(lines[0]) + 1
	}
	flush()
	for _, note := range b.notes {
		inner = append(inner, lines(terminal.Clean(note), width-4)...)
	}
	return frame(title[0], inner)
}

// lines folds a text.
func lines(text string, width int) []string {
	folded := terminal.Terminal{Columns: width}.Fold("", text)
	return strings.Split(strings.TrimSuffix(folded, "\n"), "\n")
}

func (t texter) cores(cores []core, width int) []string {
	var words []string
	for i, c := range cores {
		cpus := make([]string, len(c.cpus))
		for j, id := range c.cpus {
			cpus[j] = t.cpu(id)
		}
		before, after := c.kind+"[", "]"
		if c.cluster >= 0 && (i == 0 || cores[i-1].cluster != c.cluster) {
			before = "L2{" + before
		}
		if c.cluster >= 0 && (i == len(cores)-1 || cores[i+1].cluster != c.cluster) {
			after += "}"
		}
		cpus[0] = before + cpus[0]
		cpus[len(cpus)-1] += after
		if word := strings.Join(cpus, " "); terminal.Width(word) <= width {
			cpus = []string{word}
		}
		words = append(words, cpus...)
	}
	return flow(words, width, " ")
}

// cpu returns a CPU with its mark.
func (t texter) cpu(id int) string {
	text := fmt.Sprint(id)
	switch m, marked := t.of[id]; {
	case !marked || m.sign == "":
		return text
	case m.idle:
		return t.on.Dim(text + ":" + m.sign)
	case len(m.lanes) > 0:
		return t.on.Bold(text + ":" + terminal.Clean(m.sign))
	case m.sign == outside:
		return t.on.Dim(text + m.sign)
	default:
		return text + m.sign
	}
}

// flow fills lines with words.
func flow(words []string, width int, gap string) []string {
	var lines []string
	line := ""
	for _, w := range words {
		switch {
		case line == "":
			line = w
		case terminal.Width(line)+len(gap)+terminal.Width(w) > width:
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

// beside puts boxes side by side, and pads the shorter ones.
func beside(boxes [][]string) []string {
	height := 0
	for _, b := range boxes {
		height = max(height, len(b))
	}
	lines := make([]string, height)
	for n, b := range boxes {
		for i := range lines {
			text := strings.Repeat(" ", terminal.Width(b[0]))
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
	wide := terminal.Width(title) + 2
	for _, line := range inner {
		wide = max(wide, terminal.Width(line))
	}
	lines := []string{"┌ " + title + " " + strings.Repeat("─", wide-terminal.Width(title)) + "┐"}
	for _, line := range inner {
		lines = append(lines, "│ "+line+strings.Repeat(" ", wide-terminal.Width(line))+" │")
	}
	return append(lines, "└"+strings.Repeat("─", wide+2)+"┘")
}
