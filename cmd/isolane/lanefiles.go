package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/lane"
)

// laneFiles are the files with lanes that -f names: a file, a directory of them, or - for standard input.
type laneFiles struct{ names []string }

func (f *laneFiles) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.names, "file", "f", nil,
		"file with lanes (YAML), directory of such files, or - for standard input; may be given several times")
	if err := cmd.MarkFlagFilename("file", "yaml", "yml", "json"); err != nil {
		panic(err) // the flag is defined above
	}
}

// read reads the lanes; without -f there are none.
func (f *laneFiles) read(cmd *cobra.Command) ([]lane.Lane, error) {
	if len(f.names) == 0 {
		return nil, nil
	}
	lanes, err := lane.ReadAll(f.names, cmd.InOrStdin())
	var field *lane.FieldError
	if errors.As(err, &field) {
		return nil, &exitError{code: exitUsage, err: err, hint: "isolane explain " + field.Topic()}
	}
	if err != nil {
		return nil, usage(err)
	}
	return lanes, nil
}

// String names the files, for errors.
func (f *laneFiles) String() string { return strings.Join(f.names, ", ") }
