package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

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
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
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
