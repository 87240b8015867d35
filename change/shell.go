package change

import (
	"fmt"
	"strings"

	"isolane.dev/isolane/journal"
)

// Shell returns the command that a person would type for a step of op. For a step that only Isolane can do it
// returns a comment that says what changes.
func Shell(op journal.Op, s journal.Step) string {
	if o, ok := op.(interface{ Shell(s journal.Step) string }); ok {
		return o.Shell(s)
	}
	return fmt.Sprintf("# %s %s: %q, was %q", s.Kind, s.Target, s.After, s.Before)
}

// echoCommand returns the command that writes a line to a file.
func echoCommand(value, file string) string { return "echo " + Quote(value) + " > " + file }

const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// Quote quotes words for a shell.
func Quote(words ...string) string {
	var quoted []string
	for _, w := range words {
		if w == "" || strings.Trim(w, alphanumeric+"-_,./:+") != "" {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		quoted = append(quoted, w)
	}
	return strings.Join(quoted, " ")
}
