package draw

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/terminal"
)

// Sizes of the picture in pixels. It is narrow, with large type, so that it can be read on a telephone. A
// character is assumed to be 0.62 of its size wide, somewhat more than in most fonts.
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

// head begins the picture. In dark mode, lanes and the text on them keep their colours.
const head = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d"
class="isolane" style="max-width:100%%;height:auto" fill="#222" role="img"
font-family="'Liberation Sans', Arial, Helvetica, sans-serif">
<title>%[3]s</title>
<defs>
<style>@media (prefers-color-scheme: dark) {
.isolane { fill: #e4e4e2 } .isolane .ground { fill: #16181a } .isolane .box { fill: #fff; stroke: #777 }
.isolane .core { fill: #202427; stroke: #888 } .isolane .plain { fill: #3a4046 }
.isolane .soft { fill: #b0b4b8 } }</style>
<pattern id="idle" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="5" height="5" fill="#fff" fill-opacity="0.75"/>
<path d="M0 0V5" stroke="#222" stroke-opacity="0.3"/>
</pattern>
</defs>
<rect width="%[1]d" height="%[2]d" fill="#fff" class="ground"/>
`

// Attributes of painted elements.
const (
	boxStyle     = `rx="4" fill="#000" fill-opacity="0.025" stroke="#888" class="box"`
	coreStyle    = `rx="2" fill="#fff" stroke="#595959" class="core"`
	soft         = `fill="#595959" class="soft"`
	bold         = `font-weight="bold"`
	middle       = `text-anchor="middle"`
	onLane       = `fill="#222"` // in dark mode too
	idleStyle    = `fill="url(#idle)"`
	plainStyle   = `fill="#e8e8e8" class="plain"`
	kernelStyle  = `fill="none" stroke="#0072b2" stroke-width="2"`
	outsideStyle = `fill="none" stroke="#888" stroke-dasharray="2 2"`
)

// element is a rectangle or a text of the picture, or a group of elements. Its position is relative to the
// element that contains it.
type element struct {
	x, y, width, height int
	rect                string // attributes of the painted rectangle
	text                string
	size                int    // of the text, whose baseline is at y
	style               string // attributes of the text
	after               string // follows the text in its own <tspan>
	inner               []element
}

func (e element) paint(out *strings.Builder, x, y int) {
	x, y = x+e.x, y+e.y
	if e.rect != "" {
		fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" %s/>`+"\n", x, y, e.width, e.height, e.rect)
	}
	if e.text != "" {
		text := html.EscapeString(e.text)
		fmt.Fprintf(out, `<text x="%d" y="%d" font-size="%d" %s>%s`, x, y, e.size, e.style, text)
		if e.after != "" {
			fmt.Fprintf(out, "<tspan>%s</tspan>", e.after)
		}
		out.WriteString("</text>\n")
	}
	for _, inner := range e.inner {
		inner.paint(out, x, y)
	}
}

// wrap puts elements side by side, at most `most` in a row, and the rows below each other. All elements of a
// row get the same height.
func wrap(elements []element, width, most, gap int) (all element, rows int) {
	all.inner = elements
	for left := elements; len(left) > 0; rows++ {
		n, x, high := 0, 0, 0
		for n < len(left) && n < most && (n == 0 || x+left[n].width <= width) {
			left[n].x, left[n].y = x, all.height
			x += left[n].width + gap
			high = max(high, left[n].height)
			n++
		}
		for i := range left[:n] {
			left[i].height = high
		}
		all.width, all.height, left = max(all.width, x-gap), all.height+high+gap, left[n:]
	}
	return all, rows
}

// column puts elements below each other.
func column(elements ...element) element {
	all, _ := wrap(elements, 0, 1, 0)
	return all
}

// fold breaks a text into lines that fit into a width.
func fold(text string, size, width int, style string) element {
	var folded []element
	if strings.TrimSpace(text) != "" {
		for _, line := range lines(text, int(float64(width)/(float64(size)*perCharacter))) {
			folded = append(folded, element{width: textWidth(line, size), height: lineHeight,
				inner: []element{{y: noteSize, text: line, size: size, style: style}}})
		}
	}
	return column(folded...)
}

func textWidth(text string, size int) int {
	return int(float64(len([]rune(text))*size)*perCharacter) + 1
}

// SVG draws the machine as a picture. Names or letters distinguish lanes, not colour alone.
func SVG(w io.Writer, h host.Host, p plan.Placement) error {
	s := newPicture(h, p)
	machine := s.box(build(h), pictureWidth-2*margin)
	machine.width = pictureWidth - 2*margin
	all := column(machine, element{height: gap}, s.legend(h.Warnings))
	var out strings.Builder
	name := html.EscapeString(strings.ReplaceAll(terminal.Clean(title(h)), "\u00a0", " "))
	fmt.Fprintf(&out, head, pictureWidth, all.height+2*margin, name)
	all.paint(&out, margin, margin)
	_, err := io.WriteString(w, out.String()+"</svg>\n")
	return err
}

type picture struct {
	of       map[int]mark
	key      []mark
	cpuWidth int
	high     int // of a CPU; larger if the names of lanes are below the numbers
}

// newPicture marks the CPUs, and computes how large each must be for its number and the name of its lane.
func newPicture(h host.Host, p plan.Placement) picture {
	threads := 1
	for id := range h.Online().All() {
		threads = max(threads, h.Siblings(id).Len())
	}
	const inset = 110 // of the boxes around cores
	room := (pictureWidth-inset)/threads - 4
	var s picture
	s.of, s.key = marks(h, p, min(shortName, max(1, int(float64(room)/(nameSize*perCharacter)))))
	digits := len(fmt.Sprint(h.Online().Last()))
	s.cpuWidth, s.high = textWidth(strings.Repeat("0", digits+1), cpuSize)+5, cpuHeight
	for _, m := range s.of {
		if len(m.lanes) > 0 {
			s.cpuWidth = max(s.cpuWidth, min(room, textWidth(m.sign, nameSize)+4))
			s.high = cpuHeight + nameHeight
		}
	}
	return s
}

// box puts the title, the cores, the inner boxes and the notes of a box below each other.
func (s picture) box(b box, width int) element {
	width -= 2 * gap
	var children []element
	for _, child := range b.children {
		children = append(children, s.box(child, width))
	}
	// As few rows as necessary, with about as many in each.
	inside, rows := wrap(children, width, len(children), gap)
	if rows > 0 {
		inside, _ = wrap(children, width, (len(children)+rows-1)/rows, gap)
	}
	cores, _ := wrap(s.clusters(b.cores, width), width, len(b.cores), coreGap)
	parts := []element{fold(terminal.Clean(b.title), titleSize, width, bold), {height: 2}, cores, inside}
	for _, note := range b.notes {
		parts = append(parts, fold(terminal.Clean(note), noteSize, width, ""))
	}
	all := column(parts...)
	all.x, all.y = gap, gap
	return element{width: all.width + 2*gap, height: all.height + 2*gap, rect: boxStyle, inner: []element{all}}
}

// clusters returns the cores. Those with the same L2 stand side by side if there is room, with a line and the
// name of the cache below them.
func (s picture) clusters(cores []core, width int) []element {
	var all []element
	for len(cores) > 0 {
		n, first := 0, cores[0]
		group := element{height: s.high + 2}
		for n < len(cores) && (n == 0 || first.cluster >= 0 && cores[n].cluster == first.cluster) {
			c := s.core(cores[n])
			if n > 0 && group.width+coreGap+c.width > width {
				break
			}
			if n > 0 {
				group.width += coreGap
			}
			c.x = group.width
			group.inner, group.width = append(group.inner, c), group.width+c.width
			n++
		}
		if first.cluster >= 0 {
			label := first.cache
			if textWidth(label, nameSize) > group.width {
				label = "L2"
			}
			group.inner = append(group.inner,
				element{x: 1, y: s.high + 4, width: group.width - 2, height: 2, rect: `fill="#777"`},
				element{x: 1, y: s.high + 16, text: label, size: nameSize, style: soft})
			group.height += lineHeight - 2
		}
		all, cores = append(all, group), cores[n:]
	}
	return all
}

func (s picture) core(c core) element {
	e := element{width: len(c.cpus)*s.cpuWidth + 4, height: s.high + 2, rect: coreStyle}
	x := 2
	if c.kind != "" {
		e.inner = []element{{x: 3, y: s.high/2 + 5, text: c.kind, size: nameSize, style: soft}}
		e.width, x = e.width+11, x+11
	}
	for i, id := range c.cpus {
		cpu := s.cpu(id)
		cpu.x, cpu.y = x+i*s.cpuWidth, 2
		e.inner = append(e.inner, cpu)
	}
	return e
}

// cpu returns a CPU with the name of its lane.
func (s picture) cpu(id int) element {
	m, marked := s.of[id]
	number := element{x: (s.cpuWidth - 1) / 2, y: s.high/2 + 4, text: fmt.Sprint(id), size: cpuSize,
		style: `class="cpu" ` + middle}
	var e element
	if marked {
		e = swatch(m, s.cpuWidth-1, s.high-2)
	}
	if len(m.lanes) == 0 {
		number.after = m.sign
	} else {
		number.style += " " + onLane + " " + bold
		if name := s.name(m); name != "" {
			number.y = 14
			e.inner = append(e.inner, element{x: number.x, y: number.y + nameHeight, text: name, size: nameSize,
				style: middle + " " + onLane})
		}
	}
	e.inner = append(e.inner, number)
	return e
}

// name returns the text below a CPU's number: the name of its lane or, if several lanes share the CPU and
// their names do not fit, how many they are.
func (s picture) name(m mark) string {
	names := []string{terminal.Clean(m.sign)}
	if len(m.lanes) > 1 {
		names = append(names, quantity.Count(len(m.lanes), "lane"))
	}
	for _, name := range names {
		if textWidth(name, nameSize) <= s.cpuWidth {
			return name
		}
	}
	return ""
}

// swatch draws a mark. Each lane that shares a CPU has a part of it.
func swatch(m mark, width, height int) element {
	e := element{width: width, height: height}
	// The palette of Okabe and Ito, which colour-blind people can tell apart, lightened for black text.
	colors := []string{"#f2b44d", "#8fcdf0", "#4dbb9d", "#f5ec7b", "#6aa5d8", "#e58d50", "#dba6c4"}
	for i, lane := range m.lanes {
		from, to := width*i/len(m.lanes), width*(i+1)/len(m.lanes)
		e.inner = append(e.inner, element{x: from, width: to - from, height: height,
			rect: `fill="` + colors[lane%len(colors)] + `"`})
	}
	switch {
	case m.idle:
		e.inner = append(e.inner, element{width: width, height: height, rect: idleStyle})
	case len(m.lanes) > 0:
	case m.sign == "":
		e.rect = plainStyle
	case m.sign == byKernel:
		e.rect = kernelStyle
	default:
		e.rect = outsideStyle
	}
	return e
}

// legend returns the key and the warnings below the machine.
func (s picture) legend(warnings []string) element {
	key := slices.Clone(s.key)
	for _, m := range s.of {
		if m.idle {
			key = append(key, mark{name: "hatched: a sibling that the lane keeps idle", lanes: []int{0}, idle: true})
			break
		}
	}
	var all []element
	for _, m := range key {
		text := fold(terminal.Clean(m.name), noteSize, pictureWidth-3*margin-s.cpuWidth, "")
		text.x = margin + s.cpuWidth
		sign := element{x: s.cpuWidth / 2, y: noteSize, text: terminal.Clean(m.sign), size: nameSize, style: middle}
		if len(m.lanes) > 0 {
			sign.style += " " + onLane
		}
		color := swatch(m, s.cpuWidth, lineHeight)
		all = append(all, element{height: text.height + 4, inner: []element{color, sign, text}})
	}
	for _, warning := range warnings {
		all = append(all, fold("warning: "+terminal.Clean(warning), noteSize, pictureWidth-2*margin, ""))
	}
	return column(all...)
}
