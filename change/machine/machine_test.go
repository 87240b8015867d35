package machine

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A program that a container lacks is the machine's, in the machine's root directory. Its own is preferred.
func TestCommand(t *testing.T) {
	const name = "isolane-test-tool"
	own, machine := t.TempDir(), t.TempDir()
	t.Setenv("PATH", own)
	if cmd := command(t.Context(), machine, name, nil); !errors.Is(cmd.Err, exec.ErrNotFound) {
		t.Errorf("nobody has it: %v", cmd.Err)
	}
	for _, c := range []struct{ file, path, root string }{
		{machine + "/usr/sbin/" + name, "/usr/sbin/" + name, machine},
		{own + "/" + name, own + "/" + name, ""},
	} {
		if err := os.MkdirAll(filepath.Dir(c.file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := command(t.Context(), machine, name, []string{"a"})
		if cmd.Err != nil || cmd.Path != c.path || cmd.SysProcAttr.Chroot != c.root || cmd.Args[1] != "a" {
			t.Errorf("%s: %+v", c.file, cmd)
		}
	}
	if cmd := command(t.Context(), "/", "true", nil); !errors.Is(cmd.Err, exec.ErrNotFound) {
		t.Errorf("not in a container: %+v; expected PATH alone to count", cmd)
	}
}

// What only the machine has is there too: Open vSwitch that does not answer is not one that was removed.
func TestHas(t *testing.T) {
	machine, file := t.TempDir(), filepath.Join(t.TempDir(), "conf.db")
	if has(machine, file) {
		t.Error("nobody has it")
	}
	for _, at := range []string{machine + file, file} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if !has(machine, file) {
			t.Errorf("%s: expected it there", at)
		}
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
	}
}
