// Package terminal knows what a reader's terminal can show, columns and colour, and folds text and tables
// into the columns.
package terminal

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Columns for which output is made. A narrower terminal wraps lines itself.
const (
	Least   = 60
	Most    = 200
	Without = 100 // if no terminal reads
)

// Terminal says how wide lines may be, and whether they may be coloured.
type Terminal struct {
	Columns int
	Colour  bool
}

// Of returns what reads w. COLUMNS overrides the size of the window. NO_COLOR, if not empty, and TERM=dumb
// turn colours off.
func Of(w io.Writer) Terminal {
	t := Terminal{Columns: Without}
	if file, ok := w.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(file.Fd())) {
		t.Colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			t.Columns = width
		}
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		t.Columns = n
	}
	t.Columns = min(max(t.Columns, Least), Most)
	return t
}

// Folded returns a writer that folds lines for a terminal. It leaves alone what moves the cursor, and output
// that goes elsewhere.
func Folded(w io.Writer) io.Writer {
	if file, ok := w.(*os.File); ok && Height(w) > 0 {
		return folded{file}
	}
	return w
}

type folded struct{ file *os.File }

// Fd is for those who ask what the terminal can show.
func (f folded) Fd() uintptr { return f.file.Fd() }

func (f folded) Write(p []byte) (int, error) {
	if bytes.ContainsAny(p, "\r\x1b") {
		return f.file.Write(p)
	}
	var b strings.Builder
	for line := range strings.Lines(string(p)) {
		text := strings.TrimSuffix(line, "\n")
		folds := Of(f.file).Fold("", text)
		if text == line {
			folds = strings.TrimSuffix(folds, "\n")
		}
		b.WriteString(folds)
	}
	_, err := f.file.WriteString(b.String())
	return len(p), err
}

// Height returns how many lines the window that reads w shows; 0 if no terminal reads.
func Height(w io.Writer) int {
	file, ok := w.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	_, height, err := term.GetSize(int(file.Fd()))
	if err != nil || height <= 0 {
		return 24 // the size of early terminals
	}
	return height
}

// Red is for what is wrong.
func (t Terminal) Red(text string) string { return t.paint("31", text) }

// Yellow is for what needs attention.
func (t Terminal) Yellow(text string) string { return t.paint("33", text) }

// Green is for what is as it should be.
func (t Terminal) Green(text string) string { return t.paint("32", text) }

// Bold is for what to read first.
func (t Terminal) Bold(text string) string { return t.paint("1", text) }

// Dim is for what most readers may skip.
func (t Terminal) Dim(text string) string { return t.paint("2", text) }

const plain = "\x1b[0m"

func (t Terminal) paint(code, text string) string {
	if !t.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + plain
}

// Width returns how many columns a text takes. Colours take none.
func Width(text string) int {
	n := columnsOf(text)
	for {
		_, rest, found := strings.Cut(text, "\x1b[")
		code, after, closed := strings.Cut(rest, "m")
		if !found || !closed {
			return n
		}
		n -= len("\x1b[m") + len(code)
		text = after
	}
}

// Cut shortens a text without colours to so many columns.
func Cut(text string, columns int) string {
	if columnsOf(text) <= columns {
		return text
	}
	return text[:fitting(text, columns-1)] + "…"
}

// Clean replaces control characters in text from another machine or program.
func Clean(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 || c == utf8.RuneError {
			return ' '
		}
		return c
	}, text)
}

// Fold puts text after head, in lines that each end with a line break. Lines after the first are indented by
// the width of head. A no-break space keeps words together, and is written as a space.
func (t Terminal) Fold(head, text string) string {
	var b strings.Builder
	for i, line := range fold(text, max(t.Columns-Width(head), 20)) {
		if i == 1 {
			head = strings.Repeat(" ", Width(head))
		}
		b.WriteString(strings.TrimRight(head+strings.ReplaceAll(line, "\u00a0", " "), " ") + "\n")
	}
	return b.String()
}

// fold returns at least one line. It breaks a word that is wider than a line after a comma, slash or hyphen
// or, if there is none, at the end of the line.
func fold(text string, columns int) []string {
	var lines []string
	line := ""
	flush := func() {
		if line != "" {
			lines, line = append(lines, line), ""
		}
	}
	breaks := func(c rune) bool { return c == ' ' || c == '\n' || c == '\t' }
	for _, word := range strings.FieldsFunc(text, breaks) {
		if line != "" && Width(line)+1+Width(word) > columns {
			flush()
		}
		for Width(word) > columns {
			_, first := utf8.DecodeRuneInString(word)
			at := max(fitting(word, columns), first)
			if k := strings.LastIndexAny(word[:at], ",/-"); k > 0 {
				at = k + 1
			}
			lines, word = append(lines, word[:at]), word[at:]
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	flush()
	return carry(append(lines, make([]string, max(0, 1-len(lines)))...))
}

// carry ends a colour at the end of a line and resumes it in the next, so that it colours nothing in between.
func carry(lines []string) []string {
	open := ""
	for i, line := range lines {
		line = open + line
		open = ""
		if k := strings.LastIndex(line, "\x1b["); k >= 0 && !strings.HasPrefix(line[k:], plain) {
			code, _, _ := strings.Cut(line[k:], "m")
			open, line = code+"m", line+plain
		}
		lines[i] = line
	}
	return lines
}
