package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Output is a command's -o. What the command cannot print is refused before it begins.
type Output struct {
	format  string
	formats []string
}

// Flags defines -o with the formats of the command; the first one is the default.
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

// Set takes the flag's value.
func (o *Output) Set(format string) error {
	if !slices.Contains(o.formats, format) {
		return fmt.Errorf("expected %s", o.expected())
	}
	o.format = format
	return nil
}

// String is the flag's value.
func (o *Output) String() string { return o.format }

// Type is what the flag's help calls its value.
func (o *Output) Type() string { return "format" }

// JSON says whether the command prints one JSON document.
func (o *Output) JSON() bool { return o.format == "json" }

// Print prints a document as the user wants it, if there is one.
func (o *Output) Print(cmd *cobra.Command, d interface{ Write(w io.Writer) }, err error) error {
	if err != nil {
		return err
	}
	return o.PrintAs(cmd, d, d.Write)
}

// PrintAs is Print for a document that is written in several ways.
func (o *Output) PrintAs(cmd *cobra.Command, d any, write func(io.Writer)) error {
	if o.JSON() {
		return PrintJSON(cmd.OutOrStdout(), d)
	}
	write(cmd.OutOrStdout())
	return nil
}

// PrintJSON prints a document as people can read it too.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
