package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// A package's program takes precedence over one on the path. A program that cannot be started does not count.
func TestProgram(t *testing.T) {
	packaged, path := t.TempDir(), t.TempDir()
	t.Setenv("PATH", path)
	const name = "isolane-test-program"
	if at, err := Program(name, packaged); err == nil {
		t.Errorf("found %s", at)
	}
	for _, row := range []struct {
		dir  string
		mode os.FileMode
		want string
	}{{path, 0o755, path}, {packaged, 0o644, path}, {packaged, 0o755, packaged}} {
		err := os.WriteFile(filepath.Join(row.dir, name), nil, row.mode)
		if err == nil {
			err = os.Chmod(filepath.Join(row.dir, name), row.mode)
		}
		if err != nil {
			t.Fatal(err)
		}
		if at, err := Program(name, packaged); err != nil || at != filepath.Join(row.want, name) {
			t.Errorf("found %s, %v; expected it in %s", at, err, row.want)
		}
	}
}
