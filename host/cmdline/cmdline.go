// Package cmdline parses a kernel command line as the kernel does.
//
//	line := cmdline.Parse("isolcpus=managed_irq,2-7 nohz_full=2-7")
//	tickless, given := line.Get("nohz_full")
package cmdline

import (
	"slices"
	"strings"
)

// Line is a kernel command line (Documentation/admin-guide/kernel-parameters.rst). A parameter
// may be given several times.
type Line []parameter

type parameter struct {
	name  string // with underscores, as the kernel compares them
	value string
}

// Parse splits a command line at white space outside quotes. What follows "--" is for init.
func Parse(cmdline string) Line {
	var b Line
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

// Get returns the value of the parameter with exactly that name: tuned.non_isolcpus is not isolcpus. If it is
// given several times, the last value counts. Of isolcpus and nohz_full the first counts, because the kernel
// refuses a second list (housekeeping_setup in kernel/sched/isolation.c).
func (b Line) Get(name string) (string, bool) {
	values := b.values(name)
	switch {
	case len(values) == 0:
		return "", false
	case name == "isolcpus", name == "nohz_full":
		return values[0], true
	}
	return values[len(values)-1], true
}

// Has reports whether a parameter is given with a value, once or among others.
func (b Line) Has(name, value string) bool { return slices.Contains(b.values(name), value) }

func (b Line) values(name string) []string {
	var values []string
	for _, p := range b {
		if p.name == name {
			values = append(values, p.value)
		}
	}
	return values
}

// Names returns the names of the parameters, each once, with underscores.
func (b Line) Names() []string {
	var names []string
	for _, p := range b {
		if !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}

// Repeat is a parameter that is given more than once.
type Repeat struct {
	Name   string
	Values []string
}

// Repeated returns the parameters that are given more than once, in the order of their first values.
func (b Line) Repeated() []Repeat {
	var all []Repeat
	for i, p := range b {
		values := b.values(p.name)
		if len(values) > 1 && slices.IndexFunc(b, func(o parameter) bool { return o.name == p.name }) == i {
			all = append(all, Repeat{p.name, values})
		}
	}
	return all
}
