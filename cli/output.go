package cli

import (
	"encoding/json"
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

// Print prints a document in the chosen format, unless there is an error.
func (o *Output) Print(cmd *cobra.Command, d interface{ Write(w io.Writer) }, err error) error {
	if err != nil {
		return err
	}
	return o.PrintAs(cmd, d, d.Write)
}

// PrintAs is Print for a document that can be written in several ways.
func (o *Output) PrintAs(cmd *cobra.Command, d any, write func(io.Writer)) error {
	if o.JSON() {
		return PrintJSON(cmd.OutOrStdout(), d)
	}
	write(cmd.OutOrStdout())
	return nil
}

// PrintJSON prints an indented JSON document.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
