package draw

import (
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

// Sizes of the picture, in pixels: narrow and with large type, so that it can be read on a telephone. Text
// is taken to be 0.58 of its size wide a character, and somewhat wider in its bounds, because fonts differ.
const (
	pictureWidth = 480
	margin       = 8
	gap          = 7
	titleSize    = 13
	noteSize     = 12
	cpuSize      = 12
	nameSize     = 10
	lineHeight   = 16
	coreGap      = 4
	cpuHeight    = 20
	nameHeight   = 12
	perCharacter = 0.62
)

// style is what the picture looks like in the dark. Lanes keep their colours, and the text on them.
const style = `@media (prefers-color-scheme: dark) {
.isolane { fill: #e4e4e2 } .isolane .ground { fill: #16181a } .isolane .box { fill: #fff; stroke: #777 }
.isolane .core { fill: #202427; stroke: #888 } .isolane .plain { fill: #3a4046 } .isolane .soft { fill: #b0b4b8 } }`

// SVG draws the machine as a picture. Lanes are told apart by their names, or letters, and not by colour
// alone.
func SVG(w io.Writer, h host.Host, p plan.Placement) error {
	s := &svg{}
	s.arrange(h, p)
	top := s.measure(build(h), pictureWidth-2*margin)
	top.width = pictureWidth - 2*margin
	s.paint(top, margin, margin)
	bottom := s.legend(margin+top.height+gap, h.Warnings)
	name := html.EscapeString(strings.ReplaceAll(clean(title(h)), "\u00a0", " "))
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" `+
		`class="isolane" style="max-width:100%%;height:auto" font-family="'Liberation Sans', Arial, Helvetica, sans-serif" `+
		`fill="#222" role="img">
<title>%[3]s</title>
<defs>
<style>%[4]s</style>
<pattern id="idle" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" fill="#fff" fill-opacity="0.75"/><path d="M0 0V5" stroke="#222" stroke-opacity="0.3"/></pattern>
</defs>
<rect width="%[1]d" height="%[2]d" fill="#fff" class="ground"/>
%[5]s</svg>
`, pictureWidth, bottom+margin, name, style, s.out.String())
	return err
}

type svg struct {
	out      strings.Builder
	of       map[int]mark
	key      []mark
	cpuWidth int
	high     int // of a CPU: higher where lanes have their names below the numbers
}

// measured is a box with its place relative to the one around it.
type measured struct {
	box
	titles              []string // lines
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

// arrange marks the CPUs, and says how large one has to be for its number and the name of its lane.
func (s *svg) arrange(h host.Host, p plan.Placement) {
	threads, high := 1, 0
	for id := range h.Online().All() {
		threads, high = max(threads, h.Siblings(id).Len()), id
	}
	const inset = 110 // of the boxes around cores
	room := (pictureWidth-inset)/threads - 4
	short := min(shortName, max(1, int(float64(room)/(nameSize*perCharacter))))
	s.of, s.key = marks(h, p, short)
	s.cpuWidth, s.high = textWidth(strings.Repeat("0", len(fmt.Sprint(high))+1), cpuSize)+5, cpuHeight
	for _, m := range s.of {
		if len(m.lanes) > 0 {
			s.cpuWidth, s.high = max(s.cpuWidth, min(room, textWidth(m.sign, nameSize)+4)), cpuHeight+nameHeight
		}
	}
}

// measure lays a box out within a width.
func (s *svg) measure(b box, width int) measured {
	m := measured{box: b, titles: fold(clean(b.title), titleSize, width-2*gap)}
	y := gap
	for _, line := range m.titles {
		m.width = max(m.width, textWidth(line, titleSize)+2*gap)
		y += lineHeight
	}
	y = s.placeCores(&m, width-2*gap, y+2)
	y = s.placeChildren(&m, width-2*gap, y)
	m.notes, m.notesY = nil, y
	for _, note := range b.notes {
		for _, line := range fold(clean(note), noteSize, width-2*gap) {
			m.notes = append(m.notes, line)
			m.width = max(m.width, textWidth(line, noteSize)+2*gap)
			y += lineHeight
		}
	}
	m.height = y + gap
	return m
}

// fold breaks a text into lines that fit into a width.
func fold(text string, size, width int) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return lines(text, int(float64(width)/(float64(size)*perCharacter)))
}

// placeCores puts the cores into rows. Cores with the same L2 stay in one row where there is room.
func (s *svg) placeCores(m *measured, width, y int) int {
	if len(m.box.cores) == 0 {
		return y
	}
	high := s.high + 6
	for _, c := range m.box.cores {
		if c.cluster >= 0 {
			high = s.high + 6 + lineHeight - 2
		}
	}
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
	fmt.Fprintf(&s.out, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="#000" fill-opacity="0.025" stroke="#888" class="box"/>`+"\n", x, y, m.width, m.height)
	for i, line := range m.titles {
		s.text(x+gap, y+gap+titleSize-2+i*lineHeight, titleSize, line, ` font-weight="bold"`)
	}
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
		below := y + s.high + 5
		fmt.Fprintf(&s.out, `<path d="M%d %dh%d" stroke="#777" stroke-width="2"/>`+"\n", x+1, below, c.run-2)
		label := c.cache
		if textWidth(label, nameSize) > c.run {
			label = "L2"
		}
		s.text(x+1, below+11, nameSize, label, ` fill="#595959" class="soft"`)
	}
	fmt.Fprintf(&s.out, `<rect x="%d" y="%d" width="%d" height="%d" rx="2" fill="#fff" stroke="#595959" class="core"/>`+"\n",
		x, y, wide, s.high+2)
	if c.kind != "" {
		s.text(x+3, y+s.high/2+5, nameSize, c.kind, ` fill="#595959" class="soft"`)
		x += 11
	}
	for i, id := range c.cpus {
		s.cpu(id, x+2+i*s.cpuWidth, y+2)
	}
}

// cpu paints one, with the name of its lane.
func (s *svg) cpu(id, x, y int) {
	m, marked := s.of[id]
	middle, low, class := x+(s.cpuWidth-1)/2, y+s.high/2+4, `class="cpu"`
	if marked {
		s.swatch(m, x, y, s.cpuWidth-1, s.high-2)
	}
	if len(m.lanes) > 0 {
		class = `class="cpu" fill="#222" font-weight="bold"`
		if name := s.name(m); name != "" {
			low = y + 14
			s.text(middle, low+nameHeight, nameSize, name, ` text-anchor="middle" fill="#222"`)
		}
	}
	fmt.Fprintf(&s.out, `<text x="%d" y="%d" font-size="%d" text-anchor="middle" %s>%d`, middle, low, cpuSize, class, id)
	if len(m.lanes) == 0 && m.sign != "" {
		fmt.Fprintf(&s.out, `<tspan>%s</tspan>`, m.sign)
	}
	s.out.WriteString("</text>\n")
}

// name is what stands below a CPU's number: that of the lane; where several share it and there is no room
// for all, how many.
func (s *svg) name(m mark) string {
	if textWidth(clean(m.sign), nameSize) <= s.cpuWidth {
		return clean(m.sign)
	}
	if text := quantity.Count(len(m.lanes), "lane"); len(m.lanes) > 1 && textWidth(text, nameSize) <= s.cpuWidth {
		return text
	}
	return ""
}

// swatch paints what a mark looks like. Lanes that share a CPU have a part of it each.
func (s *svg) swatch(m mark, x, y, width, height int) {
	rect := func(x, width int, more string) {
		fmt.Fprintf(&s.out, `<rect x="%d" y="%d" width="%d" height="%d" %s/>`, x, y, width, height, more)
	}
	switch {
	case len(m.lanes) > 0:
		// Okabe and Ito's palette, which colour-blind people can tell apart, lightened for black text.
		colors := []string{"#f2b44d", "#8fcdf0", "#4dbb9d", "#f5ec7b", "#6aa5d8", "#e58d50", "#dba6c4"}
		for i, lane := range m.lanes {
			from, to := width*i/len(m.lanes), width*(i+1)/len(m.lanes)
			rect(x+from, to-from, `fill="`+colors[lane%len(colors)]+`"`)
		}
		if m.idle {
			rect(x, width, `fill="url(#idle)"`)
		}
	case m.sign == "":
		rect(x, width, `fill="#e8e8e8" class="plain"`)
	case m.sign == byKernel:
		rect(x, width, `fill="none" stroke="#0072b2" stroke-width="2"`)
	default:
		rect(x, width, `fill="none" stroke="#888" stroke-dasharray="2 2"`)
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
	line := func(text string) {
		for _, l := range fold(text, noteSize, pictureWidth-3*margin-s.cpuWidth) {
			s.text(2*margin+s.cpuWidth, y+13, noteSize, l, "")
			y += lineHeight
		}
		y += 4
	}
	for _, m := range s.key {
		s.swatch(m, margin, y+1, s.cpuWidth, lineHeight)
		fill := ""
		if len(m.lanes) > 0 {
			fill = ` fill="#222"`
		}
		s.text(margin+s.cpuWidth/2, y+13, nameSize, clean(m.sign), ` text-anchor="middle"`+fill)
		line(clean(m.name))
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(s.of)), func(m mark) bool { return m.idle }) {
		s.swatch(mark{lanes: []int{0}, idle: true}, margin, y+1, s.cpuWidth, lineHeight)
		line("hatched: a sibling that the lane keeps idle")
	}
	for _, warning := range warnings {
		for _, l := range fold("warning: "+clean(warning), noteSize, pictureWidth-2*margin) {
			s.text(margin, y+13, noteSize, l, "")
			y += lineHeight
		}
	}
	return y
}
