package terminal

import "unicode"

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

// columnsOfRune is 0 for what joins the character before it, and 2 for the wide and fullwidth blocks of
// UAX #11 (East Asian scripts, emoji).
func columnsOfRune(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r < 0x1100:
		return 1
	case r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf && r != 0x303f, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff01 && r <= 0xff60,
		r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1f64f, r >= 0x1f680 && r <= 0x1f6ff,
		r >= 0x1f900 && r <= 0x1f9ff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}
