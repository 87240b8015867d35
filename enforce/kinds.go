package enforce

import (
	"strings"

	"isolane.dev/isolane/journal"
)

// operations adds to the operations of the journal the optional methods that package change describes.
type operations map[string]journal.Op

// file returns the file whose content is the value of a step, or "" if there is none.
func (o operations) file(s journal.Step) string {
	if op, ok := o[s.Kind].(interface{ File(s journal.Step) string }); ok {
		return op.File(s)
	}
	return ""
}

// name returns for people what a step sets: a file, or which setting of which thread.
func (o operations) name(s journal.Step) string {
	if op, ok := o[s.Kind].(interface{ Name(s journal.Step) string }); ok {
		return op.Name(s)
	}
	return s.Target
}

// describe returns for people what a step changes, from which value to which.
func (o operations) describe(s journal.Step) (name, from, to string) {
	if op, ok := o[s.Kind].(interface {
		Describe(s journal.Step) (name, from, to string)
	}); ok {
		return op.Describe(s)
	}
	return o.name(s), firstLine(s.Before), firstLine(s.After)
}

// describeDrift describes a step that is not in force. Its Before is the value of the host now.
func (o operations) describeDrift(s journal.Step) Drift {
	d := Drift{Name: o.name(s), Expected: s.After, Found: firstLine(s.Before), Step: s}
	if op, ok := o[s.Kind].(interface {
		DescribeDrift(s journal.Step) (expected, found string)
	}); ok {
		d.Expected, d.Found = op.DescribeDrift(s)
	}
	return d
}

// firstLine returns a value without the lines for single threads.
func firstLine(value string) string {
	line, _, _ := strings.Cut(value, "\n")
	return line
}
