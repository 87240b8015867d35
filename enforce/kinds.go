package enforce

import (
	"strings"

	"isolane.dev/isolane/journal"
)

// operations have more methods than the journal needs, see package change.
type operations map[string]journal.Op

// file is the file whose content is the value of a step, "" where there is none.
func (o operations) file(s journal.Step) string {
	if op, ok := o[s.Kind].(interface{ File(s journal.Step) string }); ok {
		return op.File(s)
	}
	return ""
}

// name says for people what a step sets: a file, or what of a thread.
func (o operations) name(s journal.Step) string {
	if op, ok := o[s.Kind].(interface{ Name(s journal.Step) string }); ok {
		return op.Name(s)
	}
	return s.Target
}

// describe says for people what a step changes from what to what.
func (o operations) describe(s journal.Step) (name, from, to string) {
	if op, ok := o[s.Kind].(interface {
		Describe(s journal.Step) (name, from, to string)
	}); ok {
		return op.Describe(s)
	}
	return o.name(s), firstLine(s.Before), firstLine(s.After)
}

// drift is that a step is not in force: Before is what is there now.
func (o operations) drift(s journal.Step) Drift {
	d := Drift{Name: o.name(s), Expected: s.After, Found: firstLine(s.Before), Step: s}
	if op, ok := o[s.Kind].(interface {
		DescribeDrift(s journal.Step) (expected, found string)
	}); ok {
		d.Expected, d.Found = op.DescribeDrift(s)
	}
	return d
}

// firstLine is a value without what each thread had.
func firstLine(value string) string {
	line, _, _ := strings.Cut(value, "\n")
	return line
}
