package lane

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// FieldError says what is wrong with one field of a declaration, and where it is.
type FieldError struct {
	File  string // "" if the declaration is in no file
	Line  int    // 0 if unknown
	Field string // spec.cpus.count; "" for a document as a whole
	Text  string
}

// Error names file, line and field, and says what was expected.
func (e *FieldError) Error() string {
	text := e.Text
	if e.Field != "" {
		text = printable(e.Field, 100) + ": " + text
	}
	switch {
	case e.File == "":
		return text
	case e.Line == 0:
		return e.File + ": " + text
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, text)
}

// Hint names the command that explains the field, or what contains it: isolane explain lane.spec.cpus.
func (e *FieldError) Hint() string {
	table := Fields()
	for path := e.Field; path != ""; path = parent(path) {
		if f, ok := field(table, path); ok {
			return "isolane explain lane." + strings.TrimSuffix(f.Path, ".*")
		}
	}
	return "isolane explain lane"
}

// wrong returns an error about a field.
func wrong(path, format string, args ...any) error {
	return &FieldError{Field: path, Text: fmt.Sprintf(format, args...)}
}

// located adds file and line to an error about a field.
func located(err error, file string, lines map[string]int) error {
	f, is := errors.AsType[*FieldError](err)
	if !is {
		return fmt.Errorf("%s: %w", file, err)
	}
	at := *f
	at.File = file
	for path := at.Field; at.Line == 0 && path != ""; path = parent(path) {
		at.Line = lines[path]
	}
	if at.Line == 0 {
		at.Line = lines[""]
	}
	return &at
}

func parent(path string) string { return path[:max(0, strings.LastIndexByte(path, '.'))] }

// longest is how many characters of a value errors repeat.
const longest = 40

// quoted quotes a value, shortened if it is long.
func quoted(s string) string { return fmt.Sprintf("%q", cut(s, longest)) }

// printable turns any text into one printable line.
func printable(s string, most int) string {
	q := strconv.Quote(cut(s, most))
	return q[1 : len(q)-1]
}

func cut(s string, most int) string {
	runes := 0
	for i := range s {
		if runes++; runes > most {
			return s[:i] + "…"
		}
	}
	return s
}

// or lists words as in a sentence.
func or(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// nearest returns the word that a misspelt one probably means, or "".
func nearest(misspelt string, words []string) string {
	if len(misspelt) > longest {
		return ""
	}
	best, least := "", max(1, min(3, len(misspelt)/2))+1
	for _, w := range words {
		if d := distance(strings.ToLower(misspelt), strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance returns how many letters must be added, dropped, replaced or swapped with a neighbour.
func distance(a, b string) int {
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
