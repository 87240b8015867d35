package terminal

import (
	"unicode"

	"golang.org/x/text/width"
)

// columnsOf returns how many columns the characters of a text take.
func columnsOf(text string) (n int) {
	for _, r := range text {
		n += columnsOfRune(r)
	}
	return n
}

// fitting returns how many bytes of a text fit into so many columns.
func fitting(text string, columns int) int {
	for at, r := range text {
		if columns -= columnsOfRune(r); columns < 0 {
			return at
		}
	}
	return len(text)
}

// columnsOfRune returns 0 for a character that joins the one before it, and 2 for one that is wide by UAX #11
// (East Asian scripts, emoji).
func columnsOfRune(r rune) int {
	if r <= unicode.MaxASCII { // nearly all characters
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
