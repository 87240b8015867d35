// Package cli has cobra speak as Isolane does: its errors in our words, its help in the reader's columns.
package cli

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"isolane.dev/isolane/terminal"
)

// Fit has the help of a command and of those below it fit the columns of who reads it.
func Fit(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var text bytes.Buffer
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		fmt.Fprint(out, fit(text.String(), terminal.Of(out)))
	})
}

// fit folds lines that are too wide, behind the name of a flag or command where they begin with one.
func fit(text string, t terminal.Terminal) string {
	begin := regexp.MustCompile(`^ *(\S+( \S+)*  +)?`)
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if terminal.Width(line) <= t.Columns {
			b.WriteString(line + "\n")
			continue
		}
		head := begin.FindString(line)
		if terminal.Width(head) > t.Columns/2 {
			b.WriteString(strings.TrimRight(head, " ") + "\n")
			head, line = strings.Repeat(" ", 8), strings.Repeat(" ", 8)+line[len(head):]
		}
		b.WriteString(t.Fold(head, line[len(head):]))
	}
	return b.String()
}

// FlagError says what is wrong with a flag as all our errors do.
func FlagError(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	name := "--" + invalid.GetFlag().Name
	if short := invalid.GetFlag().Shorthand; short != "" {
		name = "-" + short
	}
	return fmt.Errorf("%s %q: %w", name, invalid.GetValue(), invalid.Unwrap())
}

// Plain says in our words what cobra found wrong with a command line as a whole. Its errors have no types.
func Plain(err error) error {
	text := err.Error()
	for _, form := range []struct{ theirs, ours string }{
		{`^if any flags in the group \[.*\] are set none of the others can be; \[(\S+) (\S+).*\] were all set$`,
			"--$1 does not go with --$2"},
		{`^at least one of the flags in the group \[(\S+) (\S+)\] is required$`, "expected --$1 or --$2"},
		{`^required flag\(s\) "(\S+)".* not set$`, "expected --$1"},
		{`^requires at least (\d+) arg\(s\), only received (\d+)$`, "expected at least $1 argument, found $2"},
		{`^accepts (?:at most )?(\S+) arg\(s\), received (\d+)$`, "expected $1 argument, found $2"},
		{`^accepts between (\d+) and (\d+) arg\(s\), received (\d+)$`, "expected $1 to $2 arguments, found $3"},
		{`^unknown command (".*") for "isolane (\S+)"$`, "$2: $1: expected no argument"},
	} {
		if theirs := regexp.MustCompile(form.theirs); theirs.MatchString(text) {
			return errors.New(theirs.ReplaceAllString(text, form.ours))
		}
	}
	return err
}
