package isolane_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"isolane.dev/isolane/report"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/test/golden"
)

const (
	resultBegin = "<!-- result: make golden writes this from docs/edge -->\n"
	resultEnd   = "<!-- end of result -->"
)

// The table and the charts in the README are what the program makes of the stored session.
func TestReadme(t *testing.T) {
	const dir = "docs/edge"
	session, err := results.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	summary, err := figures.Summarize(session)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err = report.Text(&table, summary, terminal.Terminal{Columns: 100}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), resultBegin)
	_, tail, closed := strings.Cut(rest, resultEnd)
	if !ok || !closed {
		t.Fatal("README.md: expected the marks of the result")
	}
	tail = drawing(t, tail)
	want := head + resultBegin + "```\n" + table.String() + "```\n" + resultEnd + tail
	made := t.TempDir()
	if err = results.Write(made, session); err == nil {
		err = report.Write(made, summary)
	}
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"README.md": want}
	for _, chart := range []string{"chart-throughput.svg", "chart-range.svg"} {
		svg, err := os.ReadFile(filepath.Join(made, chart))
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Join(dir, chart)] = string(svg)
	}
	for name, content := range files {
		golden.Check(t, name, []byte(content))
	}
}

// drawing puts the file into the README that its mark names.
func drawing(t *testing.T, readme string) string {
	t.Helper()
	head, rest, ok := strings.Cut(readme, "<!-- file: ")
	name, rest, named := strings.Cut(rest, " -->\n")
	_, tail, closed := strings.Cut(rest, "<!-- end of file -->")
	if !ok || !named || !closed {
		t.Fatal("README.md: expected the marks of a file")
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return head + "<!-- file: " + name + " -->\n```\n" + string(text) + "```\n<!-- end of file -->" + tail
}
