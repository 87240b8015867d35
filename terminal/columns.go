package terminal

import (
	"unicode"

	"golang.org/x/text/width"
)

// columnsOf is how many columns the characters of a text take.
func columnsOf(text string) (n int) {
	for _, r := range text {
		n += columnsOfRune(r)
	}
	return n
}

// fitting is how many bytes of a text fit into so many columns.
func fitting(text string, columns int) int {
	for at, r := range text {
		if columns -= columnsOfRune(r); columns < 0 {
			return at
		}
	}
	return len(text)
}

// columnsOfRune is 0 for what joins the character before it, and 2 for what is wide by UAX #11 (East Asian
// scripts, emoji).
func columnsOfRune(r rune) int {
	if r <= unicode.MaxASCII { // nearly all there is
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
		return 2
	}
	return 1
}
