// Command summary reads `go test -json`. It prints what failed, why tests were skipped, which tests took
// longest, and the counts. It exits with 1 when a test or a package failed.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	failed, err := summarize(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// summarize counts leaf results: a test with subtests counts as itself too, as go test does.
func summarize(r io.Reader, w io.Writer) (bool, error) {
	output := map[string]*strings.Builder{} // by package and test
	count := map[string]int{}
	skips := map[string]int{}
	took := map[string]float64{} // seconds, by package and test
	failed := false
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(w, lines.Text()) // what the go command itself says
			continue
		}
		key := cmp.Or(e.Package, e.ImportPath) + " " + e.Test
		if output[key] == nil {
			output[key] = &strings.Builder{}
		}
		switch e.Action {
		case "output", "build-output":
			output[key].WriteString(e.Output)
		case "pass", "fail", "skip":
			if e.Test != "" {
				count[e.Action]++
			}
			if e.Test != "" && !strings.Contains(e.Test, "/") {
				took[key] = e.Elapsed
			}
			if e.Action == "skip" && e.Test != "" {
				skips[reason(output[key].String())]++
			}
			if e.Action == "fail" {
				failed = true
				fmt.Fprintf(w, "FAIL %s\n%s", key, output[key])
			}
			if e.Test == "" && e.Action != "skip" { // a package without tests says skip
				fmt.Fprintf(w, "%s %s\n", e.Action, e.Package)
			}
		case "build-fail":
			failed = true
			fmt.Fprintf(w, "FAIL %s\n%s", key, output[key])
		}
	}
	for _, why := range slices.Sorted(maps.Keys(skips)) {
		fmt.Fprintf(w, "skipped %d: %s\n", skips[why], why)
	}
	slowest := slices.SortedFunc(maps.Keys(took), func(a, b string) int { return cmp.Compare(took[b], took[a]) })
	for _, name := range slowest[:min(len(slowest), 10)] {
		fmt.Fprintf(w, "took %.0f s: %s\n", took[name], name)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", count["pass"], count["fail"], count["skip"])
	if count["pass"]+count["fail"] == 0 {
		failed = true
	}
	return failed, lines.Err()
}

// reason finds the text of t.Skip: the line "    file_test.go:12: why".
func reason(output string) string {
	for line := range strings.Lines(output) {
		if _, why, ok := strings.Cut(line, "_test.go:"); ok {
			if _, text, ok := strings.Cut(why, ": "); ok {
				return strings.TrimPrefix(strings.TrimSpace(text), "skipped: ")
			}
		}
		if _, text, ok := strings.Cut(line, "skipped: "); ok {
			return strings.TrimSpace(text)
		}
	}
	return "no reason given"
}
