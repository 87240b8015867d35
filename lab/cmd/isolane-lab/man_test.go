package main

import (
	"cmp"
	"flag"
	"testing"

	"github.com/spf13/cobra/doc"
)

var manDir = flag.String("man", "", "folder for the man pages")

// Commands have a man page. packaging/build stores them, with -man.
func TestManPages(t *testing.T) {
	dir := cmp.Or(*manDir, t.TempDir())
	root := command()
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Isolane", Manual: "Isolane"}, dir); err != nil {
		t.Fatal(err)
	}
}
