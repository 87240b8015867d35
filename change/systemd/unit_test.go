package systemd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// In a container without systemctl it is the machine's; where there is none that is no unit that has gone.
func TestRootOf(t *testing.T) {
	container, machine := t.TempDir(), t.TempDir()
	if root, err := rootOf(container, machine); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a program: %q %v; expected an error that no unit has", root, err)
	}
	for _, have := range []string{machine, container} { // its own is preferred
		if err := os.Mkdir(filepath.Join(have, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(have+program, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if root, err := rootOf(container, machine); root != have || err != nil {
			t.Errorf("%q %v; expected %q", root, err, have)
		}
	}
}
