// Package cli is what the commands of all our programs share: exit codes, -o, and cobra with errors in
// Isolane's words and help that fits the terminal.
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

// Root completes the command of a program, with the given subcommands.
func Root(root *cobra.Command, parts ...*cobra.Command) *cobra.Command {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.Args = noSuchCommand
	version, asked := root.Version, root.Flags().BoolP("version", "v", false, "version for "+root.Name())
	root.Version, root.SuggestionsMinimumDistance = "", 2 // with cobra's template, the linker keeps all methods
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*asked {
			return cmd.Help()
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Name(), version)
		return err
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); cmd == root && len(args) > 0 { // the flag may belong to the intended command
			err = noSuchCommand(cmd, args)
		}
		return Usage(flagError(err))
	})
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var text bytes.Buffer
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		fmt.Fprint(out, fit(text.String(), terminal.Of(out)))
	})
	root.AddCommand(parts...)
	return root
}

// Code sets how the commands below one turn errors into exit codes. A command without Args accepts no
// arguments.
func Code(parent *cobra.Command, code func(*cobra.Command, error) error) {
	for _, cmd := range parent.Commands() {
		takes := cmd.Args
		if takes == nil {
			takes = cobra.NoArgs
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := takes(cmd, args)
			if _, ours := errors.AsType[*Error](err); err == nil || ours {
				return err
			}
			return &Error{Code: ExitUsage, Err: plain(err), Hint: strings.TrimSuffix(cmd.UseLine(), " [flags]")}
		}
		if run := cmd.RunE; run != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error { return code(cmd, run(cmd, args)) }
		}
		Code(cmd, code)
	}
}

// noSuchCommand rejects an unknown command, and names similar ones.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unknown command %.40q, did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %.40q: %s help lists the commands", args[0], cmd.Name())
}

// Alone says that a flag goes with none of the others.
func Alone(cmd *cobra.Command, flag string, others ...string) {
	for _, other := range others {
		cmd.MarkFlagsMutuallyExclusive(flag, other)
	}
}

// Must is for errors that only a bug in the program can cause, such as a flag that is not defined.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// fit folds lines that are too wide, indented past the name of a flag or command at their beginning.
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

// flagError words what is wrong with a flag like other errors.
func flagError(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	name := "--" + invalid.GetFlag().Name
	if short := invalid.GetFlag().Shorthand; short != "" {
		name = "-" + short
	}
	err = invalid.Unwrap()
	switch invalid.GetFlag().Value.Type() {
	case "duration":
		err = errors.New("expected a number with its unit, such as 50us, 30s or 2h")
	case "int":
		err = errors.New("expected a whole number")
	}
	return fmt.Errorf("%s %q: %w", name, invalid.GetValue(), err)
}

// plain rewords what cobra found wrong with a whole command line. Cobra's errors have no types.
func plain(err error) error {
	text := err.Error()
	for _, form := range []struct{ theirs, ours string }{
		{`^if any flags in the group \[.*\] are set none of the others can be; \[(\S+) (\S+).*\] were all set$`,
			"--$1 does not go with --$2"},
		{`^at least one of the flags in the group \[(\S+) (\S+)\] is required$`, "expected --$1 or --$2"},
		{`^required flag\(s\) "(\S+)".* not set$`, "expected --$1"},
		{`^requires at least (\d+) arg\(s\), only received (\d+)$`, "expected at least $1 arguments, found $2"},
		{`^accepts (?:at most )?(\S+) arg\(s\), received (\d+)$`, "expected $1 arguments, found $2"},
		{`^accepts between (\d+) and (\d+) arg\(s\), received (\d+)$`, "expected $1 to $2 arguments, found $3"},
		{`^unknown command (".*") for "\S+ (\S+)"$`, "$2: $1: expected no argument"},
	} {
		if theirs := regexp.MustCompile(form.theirs); theirs.MatchString(text) {
			ours := theirs.ReplaceAllString(text, form.ours)
			return errors.New(strings.Replace(ours, " 1 arguments,", " 1 argument,", 1))
		}
	}
	return err
}
