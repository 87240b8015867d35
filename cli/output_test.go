package cli

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/spf13/cobra"
)

type word string

func (w word) Write(to io.Writer) { _, _ = io.WriteString(to, string(w)+"\n") }

// A document is printed in the format that is asked for, and beside an error only if the command says so.
func TestPrints(t *testing.T) {
	no := errors.New("no")
	drawn := Written{Document: word("w"), Text: word("text").Write, SVG: word("picture").Write}
	for _, row := range []struct {
		format   string
		document Document
		err      error
		want     string
	}{
		{"text", word("w"), nil, "w\n"},
		{"json", word("w"), nil, "\"w\"\n"},
		{"text", word("w"), no, ""},
		{"text", word("w"), Beside(no), "w\n"},
		{"json", word("w"), Beside(no), "\"w\"\n"},
		{"text", nil, no, ""},
		{"text", nil, nil, ""},
		{"text", word("w"), Beside(nil), "w\n"},
		{"text", drawn, nil, "text\n"},
		{"json", drawn, nil, "\"w\"\n"},
		{"svg", drawn, nil, "picture\n"},
	} {
		var out bytes.Buffer
		cmd := Prints(&cobra.Command{Use: "say"},
			func(*cobra.Command, []string) (Document, error) { return row.document, row.err }, "svg")
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"-o", row.format})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.Execute(); out.String() != row.want || errors.Is(err, no) != errors.Is(row.err, no) {
			t.Errorf("-o %s, %v, %v: printed %q, expected %q; %v", row.format, row.document, row.err, out.String(), row.want, err)
		}
	}
}
