package change

import (
	"fmt"
	"strings"

	"isolane.dev/isolane/journal"
)

// Shell is the command that a person would type for a step of op. Some steps only Isolane can do: of these
// it is a comment that says what changes.
func Shell(op journal.Op, s journal.Step) string {
	if o, ok := op.(interface{ Shell(s journal.Step) string }); ok {
		return o.Shell(s)
	}
	return fmt.Sprintf("# %s %s: %q, was %q", s.Kind, s.Target, s.After, s.Before)
}

// echo is the command that writes a line to a file.
func echo(value, file string) string { return "echo " + Quote(value) + " > " + file }

const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// Quote makes a word that a shell takes as it is.
func Quote(text string) string {
	if text != "" && strings.Trim(text, alphanumeric+"-_,./:+") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
