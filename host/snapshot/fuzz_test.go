package snapshot_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/snapshot"
)

// Any bytes are refused or read as an archive, and nothing in it leads out of it.
func FuzzArchive(f *testing.F) {
	for _, name := range []string{"hwloc/16em64t-4s2c2t-offlines.tar.bz2", "ghw/linux-amd64-offlineCPUs.tar.gz"} {
		data, err := os.ReadFile("../hosttest/machines/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:2000])
	}
	var tiny bytes.Buffer
	w := tar.NewWriter(&tiny)
	for _, h := range []tar.Header{{Name: "../../etc/passwd", Size: 1, Typeflag: tar.TypeReg}, {Name: "m/sys/x", Linkname: "/../..", Typeflag: tar.TypeSymlink},
		{Name: "m/sys/devices/system/cpu/online", Size: 1, Typeflag: tar.TypeReg}} {
		_ = w.WriteHeader(&h)
		_, _ = w.Write([]byte("0")[:h.Size])
	}
	_ = w.Close()
	f.Add(tiny.Bytes())
	file := filepath.Join(f.TempDir(), "a.tar")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := snapshot.Open(file, "")
		if err != nil {
			return
		}
		if h, err := host.Read(root); err == nil && len(h.CPUs) == 0 {
			t.Error("a machine without CPUs was read without an error")
		}
	})
}
