package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Output is a command's flag -o. It rejects unsupported formats before the command begins.
type Output struct {
	format, expected string
	formats          []string
}

// Flags defines -o with the formats of a command. The first is the default.
func (o *Output) Flags(cmd *cobra.Command, formats ...string) {
	last := len(formats) - 1
	*o = Output{formats[0], strings.Join(formats[:last], ", ") + " or " + formats[last], formats}
	cmd.Flags().VarP(o, "output", "o", o.expected)
	complete := cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)
	Must(cmd.RegisterFlagCompletionFunc("output", complete))
}

// Set sets the flag's value.
func (o *Output) Set(format string) error {
	if !slices.Contains(o.formats, format) {
		return errors.New("expected " + o.expected)
	}
	o.format = format
	return nil
}

// String returns the flag's value.
func (o *Output) String() string { return o.format }

// Type is the name of the flag's value in help.
func (o *Output) Type() string { return "format" }

// JSON reports whether the command prints JSON.
func (o *Output) JSON() bool { return o.format == "json" }

// Document is what a command prints, as JSON or for people.
type Document interface{ Write(w io.Writer) }

// Written is a document whose text for people is made by a function, and its picture where it can be drawn.
type Written struct {
	Document  any
	Text, SVG func(io.Writer)
}

// Write prints the text.
func (d Written) Write(w io.Writer) { d.Text(w) }

type besideError struct{ error }

func (e besideError) Unwrap() error { return e.error }

// Beside is an error of a command that prints its document nevertheless; nil stays nil.
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
	var o Output
	o.Flags(cmd, append([]string{"text", "json"}, more...)...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := run(cmd, args)
		if d == nil || err != nil && !errors.As(err, new(besideError)) {
			return err
		}
		written, is := d.(Written)
		switch w := cmd.OutOrStdout(); {
		case o.JSON() && is:
			return cmp.Or(PrintJSON(w, written.Document), err)
		case o.JSON():
			return cmp.Or(PrintJSON(w, d), err)
		case o.format == "text":
			d.Write(w)
		case is && written.SVG != nil:
			written.SVG(w)
		}
		return err
	}
	return cmd
}

// PrintJSON prints an indented JSON document.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
