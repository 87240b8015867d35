package hosttest

import (
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"isolane.dev/isolane/host/snapshot"
)

// Machines returns the folder with the snapshots of real machines.
func Machines(tb testing.TB) string {
	tb.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		tb.Fatal("no caller")
	}
	return filepath.Join(filepath.Dir(file), "machines")
}

// Snapshot returns a snapshot of a real machine as its /. The name is that of an archive in the folder
// machines, "hwloc/64amd64-4s2n4ca2co.tar.bz2". If that holds several machines, the name ends with the folder
// inside it: "nri-plugins/sample2.tar.xz:sys_2".
func Snapshot(tb testing.TB, name string) fs.FS {
	tb.Helper()
	file, folder, _ := strings.Cut(name, ":")
	root, err := snapshot.Open(filepath.Join(Machines(tb), file), folder)
	if err != nil {
		tb.Fatal(err)
	}
	return root
}
