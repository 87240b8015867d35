package draw

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
)

// Sizes of the picture, in pixels. Text is taken to be 0.58 of its size wide a character, and
// somewhat wider in its bounds, because fonts differ.
const (
	pictureWidth = 1200
	margin       = 10
	gap          = 8
	titleSize    = 13
	noteSize     = 11
	cpuSize      = 11
	lineHeight   = 16
	coreGap      = 4
	cpuHeight    = 20
	perCharacter = 0.62
)

// SVG draws the machine as a picture on white, at most 1,200 pixels wide. Lanes are told apart by
// letters and not by colour alone.
func SVG(w io.Writer, h host.Host, p plan.Placement) error {
	s := &svg{}
	s.of, s.key = marks(h, p)
	s.cpuWidth = s.widest(h)
	top := s.measure(build(h), pictureWidth-2*margin)
	s.paint(top, margin, margin)
	s.width = max(top.width+2*margin, 600)
	bottom := s.legend(margin+top.height+gap, h.Warnings)
	name := html.EscapeString(clean(title(h)))
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="'Liberation Sans', Arial, Helvetica, sans-serif" fill="#222" role="img">
<title>%[3]s</title>
<defs>
<pattern id="idle" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" fill="#fff" fill-opacity="0.75"/><path d="M0 0V5" stroke="#222" stroke-opacity="0.45"/></pattern>
</defs>
<rect width="%[1]d" height="%[2]d" fill="#fff"/>
%[4]s</svg>
`, s.width, bottom+margin, name, s.out.String())
	return err
}

type svg struct {
	out      strings.Builder
	of       map[int]mark
	key      []mark
	cpuWidth int
	width    int // of the picture
}

// measured is a box with its place relative to the one around it.
type measured struct {
	box
	x, y, width, height int
	notesY              int
	inner               []measured
	cores               []placed
}

type placed struct {
	core
	x, y int
	run  int // width of the line that joins it with those after it that share its L2, 0 without
}

func textWidth(text string, size int) int {
	return int(float64(len([]rune(text))*size)*perCharacter) + 1
}

// widest is the width of a CPU: that of the highest number and the longest mark.
func (s *svg) widest(h host.Host) int {
	chars := len(fmt.Sprint(h.CPUs[len(h.CPUs)-1].ID))
	sign := 0
	for _, m := range s.key {
		sign = max(sign, len(m.sign))
	}
	return textWidth(strings.Repeat("0", chars+sign), cpuSize) + 7
}

// measure lays a box out within a width.
func (s *svg) measure(b box, width int) measured {
	m := measured{box: b}
	m.title = fit(clean(b.title), titleSize, width-2*gap)
	m.width = textWidth(m.title, titleSize) + 2*gap
	y := gap
	if m.title != "" {
		y += lineHeight + 2
	}
	y = s.placeCores(&m, width-2*gap, y)
	y = s.placeChildren(&m, width-2*gap, y)
	m.notes, m.notesY = nil, y
	for _, note := range b.notes {
		note = fit(clean(note), noteSize, width-2*gap)
		m.notes = append(m.notes, note)
		m.width = max(m.width, textWidth(note, noteSize)+2*gap)
		y += lineHeight
	}
	m.height = y + gap
	return m
}

// placeCores puts the cores into rows, in all about three times as wide as high. Cores with the same
// L2 stay in one row where there is room.
func (s *svg) placeCores(m *measured, width, y int) int {
	if len(m.box.cores) == 0 {
		return y
	}
	high, total := cpuHeight+6, 0
	for _, c := range m.box.cores {
		total += s.coreWidth(c) + coreGap
		if c.cluster >= 0 {
			high = cpuHeight + 6 + lineHeight - 2
		}
	}
	width = min(width, max(int(math.Sqrt(float64(3*total*high))), m.width-2*gap))
	x := gap
	for start := 0; start < len(m.box.cores); {
		end, run := s.cluster(m.box.cores, start)
		if x > gap && x+run > gap+width {
			x, y = gap, y+high
		}
		first := len(m.cores)
		for _, c := range m.box.cores[start:end] {
			if x > gap && x+s.coreWidth(c) > gap+width {
				x, y = gap, y+high
				first = len(m.cores)
			}
			m.cores = append(m.cores, placed{core: c, x: x, y: y})
			if c.cluster >= 0 {
				m.cores[first].run = x + s.coreWidth(c) - m.cores[first].x
			}
			x += s.coreWidth(c) + coreGap
			m.width = max(m.width, x-coreGap+gap)
		}
		start = end
	}
	return y + high
}

// cluster returns where the cores with the L2 of the first end, and how wide they are together.
func (s *svg) cluster(cores []core, start int) (end, wide int) {
	for end = start; end < len(cores) && (end == start || cores[start].cluster >= 0 && cores[end].cluster == cores[start].cluster); end++ {
		wide += s.coreWidth(cores[end]) + coreGap
	}
	return end, wide - coreGap
}

func (s *svg) coreWidth(c core) int {
	wide := len(c.cpus)*s.cpuWidth + 4
	if c.kind != "" {
		wide += 11
	}
	return wide
}

// placeChildren puts boxes side by side, in as few rows as they need and about as many in each. The
// boxes of a row get the same height.
func (s *svg) placeChildren(m *measured, width, y int) int {
	for _, child := range m.children {
		m.inner = append(m.inner, s.measure(child, width))
	}
	rows := 0
	for left := m.inner; len(left) > 0; rows++ {
		left = left[inRow(left, width, len(left)):]
	}
	for left := m.inner; len(left) > 0; {
		n := inRow(left, width, (len(m.inner)+rows-1)/rows)
		x, high := gap, 0
		for i := range left[:n] {
			left[i].x, left[i].y = x, y
			x += left[i].width + gap
			high = max(high, left[i].height)
		}
		for i := range left[:n] {
			left[i].height = high
		}
		m.width = max(m.width, x)
		y += high + gap
		left = left[n:]
	}
	return y
}

// inRow is how many boxes fit side by side, at most so many and at least one.
func inRow(boxes []measured, width, most int) int {
	n, used := 0, 0
	for n < len(boxes) && n < most && (n == 0 || used+boxes[n].width <= width) {
		used += boxes[n].width + gap
		n++
	}
	return n
}

func (s *svg) paint(m measured, x, y int) {
	fmt.Fprintf(&s.out, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="#000" fill-opacity="0.025" stroke="#888"/>`+"\n", x, y, m.width, m.height)
	s.text(x+gap, y+gap+titleSize-2, titleSize, m.title, ` font-weight="bold"`)
	for _, c := range m.cores {
		s.core(c, x+c.x, y+c.y)
	}
	for _, child := range m.inner {
		s.paint(child, x+child.x, y+child.y)
	}
	for i, note := range m.notes {
		s.text(x+gap, y+m.notesY+i*lineHeight+noteSize, noteSize, note, "")
	}
}

func (s *svg) core(c placed, x, y int) {
	wide := s.coreWidth(c.core)
	if c.run > 0 {
		below := y + cpuHeight + 5
		fmt.Fprintf(&s.out, `<path d="M%d %dh%d" stroke="#595959" stroke-width="2"/>`+"\n", x+1, below, c.run-2)
		label := c.cache
		if textWidth(label, 9) > c.run {
			label = "L2"
		}
		s.text(x+1, below+10, 9, label, ` fill="#595959"`)
	}
	fmt.Fprintf(&s.out, `<rect x="%d" y="%d" width="%d" height="%d" rx="2" fill="#fff" stroke="#595959"/>`+"\n", x, y, wide, cpuHeight+2)
	if c.kind != "" {
		s.text(x+3, y+15, 10, c.kind, ` fill="#595959"`)
		x += 11
	}
	for i, id := range c.cpus {
		s.cpu(id, x+2+i*s.cpuWidth, y+2)
	}
}

// cpu paints one, with its mark.
func (s *svg) cpu(id, x, y int) {
	m, marked := s.of[id]
	if marked {
		s.swatch(m, x, y, s.cpuWidth-1, cpuHeight-2)
	}
	label := fmt.Sprint(id)
	fmt.Fprintf(&s.out, `<text x="%d" y="%d" font-size="%d" text-anchor="middle" class="cpu">%s`, x+(s.cpuWidth-1)/2, y+13, cpuSize, label)
	if m.sign != "" {
		fmt.Fprintf(&s.out, `<tspan font-weight="bold">%s</tspan>`, m.sign)
	}
	s.out.WriteString("</text>\n")
}

// swatch paints what a mark looks like.
func (s *svg) swatch(m mark, x, y, width, height int) {
	rect := fmt.Sprintf(`<rect x="%d" y="%d" width="%d" height="%d" `, x, y, width, height)
	switch {
	case m.lane >= 0:
		// Okabe and Ito's palette, which colour-blind people can tell apart, lightened for black text.
		colors := []string{"#f2b44d", "#8fcdf0", "#4dbb9d", "#f5ec7b", "#6aa5d8", "#e58d50", "#dba6c4"}
		s.out.WriteString(rect + `fill="` + colors[m.lane%len(colors)] + `"/>`)
		if m.idle {
			s.out.WriteString(rect + `fill="url(#idle)"/>`)
		}
	case m.sign == "":
		s.out.WriteString(rect + `fill="#eee"/>`)
	case m.sign == "i":
		s.out.WriteString(rect + `fill="#fff" stroke="#0072b2" stroke-width="2"/>`)
	default:
		s.out.WriteString(rect + `fill="#fff" stroke="#888" stroke-dasharray="2 2"/>`)
	}
	s.out.WriteString("\n")
}

func (s *svg) text(x, y, size int, text, more string) {
	if text != "" {
		fmt.Fprintf(&s.out, `<text x="%d" y="%d" font-size="%d"%s>%s</text>`+"\n", x, y, size, more, html.EscapeString(text))
	}
}

// legend paints the key and the warnings below the machine, and returns where it ends.
func (s *svg) legend(y int, warnings []string) int {
	x := margin
	for _, m := range s.key {
		label := fit(clean(m.name), noteSize, s.width/2)
		wide := s.cpuWidth + 6 + textWidth(label, noteSize) + 14
		if x > margin && x+wide > s.width-margin {
			x, y = margin, y+lineHeight+6
		}
		s.swatch(m, x+1, y, s.cpuWidth-2, lineHeight)
		fmt.Fprintf(&s.out, `<text x="%d" y="%d" font-size="%d" font-weight="bold" text-anchor="middle">%s</text>`+"\n",
			x+s.cpuWidth/2, y+12, noteSize, m.sign)
		s.text(x+s.cpuWidth+5, y+12, noteSize, label, "")
		x += wide
	}
	if len(s.key) > 0 {
		y += lineHeight + 6
	}
	for _, warning := range warnings {
		s.text(margin, y+12, noteSize, fit("warning: "+clean(warning), noteSize, s.width-2*margin), "")
		y += lineHeight
	}
	return y
}

// fit cuts a text to a width.
func fit(text string, size, width int) string {
	if textWidth(text, size) <= width {
		return text
	}
	return cut(text, max(2, int(float64(width-1)/(float64(size)*perCharacter))))
}
