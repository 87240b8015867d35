package host

import (
	"slices"
	"strings"
)

// Bootline is a kernel command line (Documentation/admin-guide/kernel-parameters.rst). A parameter
// may stand several times; the last one counts.
type Bootline []parameter

type parameter struct {
	name  string // with underscores, as the kernel compares them
	value string
}

// ParseBootline splits a command line at white space outside quotes. What stands after "--" is for init.
func ParseBootline(cmdline string) Bootline {
	var b Bootline
	quoted := false
	words := strings.FieldsFunc(cmdline, func(c rune) bool {
		if c == '"' {
			quoted = !quoted
		}
		return !quoted && (c == ' ' || c == '\t' || c == '\n')
	})
	for _, word := range words {
		if word == "--" {
			break
		}
		name, value, _ := strings.Cut(strings.Trim(word, `"`), "=")
		b = append(b, parameter{strings.ReplaceAll(name, "-", "_"), strings.Trim(value, `"`)})
	}
	return b
}

// Get returns the value of the last parameter of exactly that name: tuned.non_isolcpus is not
// isolcpus.
func (b Bootline) Get(name string) (string, bool) {
	for _, p := range slices.Backward(b) {
		if p.name == name {
			return p.value, true
		}
	}
	return "", false
}
