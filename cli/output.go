package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Output is a command's flag -o. It rejects unsupported formats before the command begins.
type Output struct {
	format  string
	formats []string
}

// Flags defines -o with the formats of a command. The first is the default.
func (o *Output) Flags(cmd *cobra.Command, formats ...string) {
	o.format, o.formats = formats[0], formats
	cmd.Flags().VarP(o, "output", "o", o.expected())
	complete := cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)
	Must(cmd.RegisterFlagCompletionFunc("output", complete))
}

func (o *Output) expected() string {
	last := len(o.formats) - 1
	return strings.Join(o.formats[:last], ", ") + " or " + o.formats[last]
}

// Set sets the flag's value.
func (o *Output) Set(format string) error {
	if !slices.Contains(o.formats, format) {
		return fmt.Errorf("expected %s", o.expected())
	}
	o.format = format
	return nil
}

// String returns the flag's value.
func (o *Output) String() string { return o.format }

// Type is the name of the flag's value in help.
func (o *Output) Type() string { return "format" }

// JSON reports whether the command prints one JSON document.
func (o *Output) JSON() bool { return o.format == "json" }

// Document is what a command prints, as JSON or for people.
type Document interface{ Write(w io.Writer) }

// Written is a document whose text for people, or whose picture, is made by a function.
type Written struct {
	Document  any
	Text, SVG func(io.Writer) // nil: there is none
}

// Write prints the text.
func (d Written) Write(w io.Writer) {
	if d.Text != nil {
		d.Text(w)
	}
}

// besideError is an error that a document does not replace.
type besideError struct{ error }

func (e besideError) Unwrap() error { return e.error }

// Beside returns an error of a command that prints its document nevertheless; nil stays nil.
func Beside(err error) error {
	if err == nil {
		return nil
	}
	return besideError{err}
}

// Prints makes a command print the document that run returns, in the format that -o names: text, JSON, or one
// of more. If run fails it prints none, unless the error is Beside it.
func Prints(cmd *cobra.Command, run func(*cobra.Command, []string) (Document, error),
	more ...string) *cobra.Command {
	var out Output
	out.Flags(cmd, append([]string{"text", "json"}, more...)...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := run(cmd, args)
		if _, beside := errors.AsType[besideError](err); err != nil && !beside || d == nil {
			return err
		}
		return cmp.Or(out.print(cmd.OutOrStdout(), d), err)
	}
	return cmd
}

func (o *Output) print(w io.Writer, d Document) error {
	written, is := d.(Written)
	switch {
	case o.JSON() && is:
		return PrintJSON(w, written.Document)
	case o.JSON():
		return PrintJSON(w, d)
	case o.format == "svg" && written.SVG != nil:
		written.SVG(w)
	case o.format == "text":
		d.Write(w)
	}
	return nil
}

// PrintJSON prints an indented JSON document.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
