package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"isolane.dev/isolane/plan"
)

// output is a command's -o. What the command cannot print is refused before it begins.
type output struct {
	format  string
	formats []string
}

// flags defines -o with the formats of the command; the first one is the default.
func (o *output) flags(cmd *cobra.Command, formats ...string) {
	o.format, o.formats = formats[0], formats
	cmd.Flags().VarP(o, "output", "o", o.expected())
	complete := cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc("output", complete); err != nil {
		panic(err) // the flag is defined above
	}
}

func (o *output) expected() string {
	last := len(o.formats) - 1
	return strings.Join(o.formats[:last], ", ") + " or " + o.formats[last]
}

// Set takes the flag's value.
func (o *output) Set(format string) error {
	if !slices.Contains(o.formats, format) {
		return fmt.Errorf("expected %s", o.expected())
	}
	o.format = format
	return nil
}

// String is the flag's value.
func (o *output) String() string { return o.format }

// Type is what the flag's help calls its value.
func (o *output) Type() string { return "format" }

// json says whether the command prints one JSON document.
func (o *output) json() bool { return o.format == "json" }

// head begins each JSON document.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

func document(kind string) head { return head{APIVersion: plan.APIVersion, Kind: kind} }

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fail(err)
	}
	return nil
}

// outputError is a failure to write to standard output.
type outputError struct{ err error }

func (e *outputError) Error() string { return "standard output: " + e.err.Error() }
func (e *outputError) Unwrap() error { return e.err }

// report says that what was printed is not complete, and what else the command failed in. Who has
// closed a pipe knows it, and is told nothing.
func (e *outputError) report(stderr io.Writer, err error) int {
	if err != nil && !errors.Is(err, e.err) && !errors.Is(err, context.Canceled) {
		explain(stderr, err)
	}
	if !errors.Is(e.err, syscall.EPIPE) {
		fmt.Fprintf(stderr, "isolane: %v\n", e)
	}
	return exitFailed
}

// checkedWriter cancels the command when nobody gets what it prints.
type checkedWriter struct {
	w      io.Writer
	cancel context.CancelCauseFunc
}

// checked checks what is written, but leaves a terminal to those who want one.
func checked(w io.Writer, cancel context.CancelCauseFunc) io.Writer {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return w
	}
	return checkedWriter{w, cancel}
}

// Write writes, and remembers the first failure.
func (c checkedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err // the file's name is standard output, and said elsewhere
	}
	if err != nil {
		c.cancel(&outputError{err})
	}
	return n, err
}
