package change

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"isolane.dev/isolane/journal"
)

func TestFileAndGroup(t *testing.T) {
	root := t.TempDir()
	const knob, made = "/sys/devices/virtual/workqueue/cpumask", "/sys/isolane-made"
	if err := os.MkdirAll(filepath.Join(root, filepath.Dir(knob)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, knob), []byte("0-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", Ops(root, knob))
	if err != nil {
		t.Fatal(err)
	}
	_, err = j.Apply(t.Context(), []journal.Step{{Kind: "cgroup", Target: made, After: Present},
		{Kind: "attribute", Target: made + "/cpuset.cpus", After: "1"}, {Kind: "file", Target: knob, After: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if data, rerr := os.ReadFile(filepath.Join(root, made, "cpuset.cpus")); rerr != nil || string(data) != "1\n" {
		t.Error(data, rerr)
	}
	if err = errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(filepath.Join(root, knob))
	if err != nil || string(data) != "0-1\n" {
		t.Errorf("knob %q, %v", data, err)
	}
	if _, err := os.Stat(filepath.Join(root, made)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory still there: %v", err)
	}
}
