package main

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra/doc"
)

var manDir = flag.String("man", "", "folder for the man pages")

// Each command has a man page. packaging/build keeps them, by -man.
func TestManPages(t *testing.T) {
	dir := cmp.Or(*manDir, t.TempDir())
	root := command()
	root.DisableAutoGenTag = true
	commands := append(root.Commands(), root) // before it adds one for help
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Isolane", Manual: "Isolane"}, dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range commands {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(page), ".SH SYNOPSIS") || !strings.Contains(string(page), c.Short) {
			t.Errorf("%s: %v, expected a synopsis and %q", name, err, c.Short)
		}
	}
}
