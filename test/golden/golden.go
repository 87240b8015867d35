// Package golden compares what a test has made with a file in the repository, and writes that file if the
// test runs with -update.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// Update reports whether the tests run with -update.
func Update() bool { return *update }

// Check compares got with a file. -update writes the file first.
func Check(tb testing.TB, file string, got []byte) {
	tb.Helper()
	if Update() {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		tb.Errorf("%s differs, make golden writes it (-want +got):\n%.4000s", file, d)
	}
}
