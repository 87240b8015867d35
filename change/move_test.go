package change

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
)

// Processes each of which makes the next one and ends are all moved, and the cgroup is removed: also where one that
// was killed has left them frozen.
func TestMoveFromForkStorm(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	mount := unified(t)
	top := filepath.Join(mount, "test-isolane-move") // not one of Isolane's: what is moved goes there
	from := filepath.Join(top, "isolane-from")
	if err := os.MkdirAll(from, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := os.WriteFile(filepath.Join(top, "cgroup.kill"), []byte("1"), 0)
		err = errors.Join(err, groupDir{kernel{"/"}}.Write(context.Background(), journal.Step{Target: top}, ""))
		if err != nil {
			t.Error(err)
		}
	})
	dir, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for range 20 {
		storm := exec.CommandContext(t.Context(), "sh", "-c", "next() { next & }; next")
		storm.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		if err = storm.Run(); err != nil {
			t.Fatal(err)
		}
	}
	if !(kernel{"/"}).freeze(from) {
		t.Error("they are not frozen")
	}
	step := journal.Step{Kind: KindCgroup, Target: from, Before: "", After: Present}
	if err = (groupDir{kernel{"/"}}).Write(t.Context(), step, ""); err != nil {
		t.Fatal(err)
	}
	left, err := (kernel{"/"}).members(top)
	if _, serr := os.Stat(from); !errors.Is(serr, os.ErrNotExist) || err != nil || len(left) == 0 {
		t.Errorf("%d processes above, %v, %v", len(left), err, serr)
	}
}

// Where moving never ends, the error says how many were left, and to try again.
func TestMoveThatNeverEnds(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"from/cgroup.procs": "77\n78\n", "to/cgroup.procs": ""} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755),
			os.WriteFile(filepath.Join(root, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := kernel{root}.move(ctx, "/from", "/to", func(pid int) bool { return pid == 78 })
	if err == nil || !strings.Contains(err.Error(), "faster than they can be moved to /to, 1 in the last round: try again") {
		t.Error(err)
	}
}

// What a killed process has left frozen goes on: with the next move, when its cgroup is to stay, and when the move is
// undone that had moved nobody yet. What somebody else has frozen stays so.
func TestThaw(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	k := kernel{t.TempDir()}
	state := func() string {
		now, err := k.read("/isolane-a/cgroup.freeze")
		if err != nil {
			t.Error(err)
		}
		return now
	}
	j, jerr := journal.Open(filepath.Join(t.TempDir(), "run"), "test", map[string]journal.Op{KindTasks: tasks{k}})
	if jerr != nil {
		t.Fatal(jerr)
	}
	defer j.Close()
	for name, text := range map[string]string{"isolane-a/cgroup.procs": "", "isolane-a/cgroup.freeze": "0\n", "to/cgroup.procs": ""} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(k.root, name)), 0o755),
			os.WriteFile(filepath.Join(k.root, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, goesOn := range map[string]func() error{
		"move from": func() error { return k.move(t.Context(), "/isolane-a", "/to", func(int) bool { return false }) },
		"move to":   func() error { return k.move(t.Context(), "/to", "/isolane-a", func(int) bool { return false }) },
		"group": func() error {
			return groupDir{k}.Finish(t.Context(), journal.Step{Kind: KindCgroup, Target: "/isolane-a", After: Present})
		},
		"tasks": func() error {
			return tasks{k}.Finish(t.Context(), journal.Step{Kind: KindTasks, Target: "/isolane-a", After: "/isolane-a/isolane-b"})
		},
		"undo": func() error {
			moved := journal.Step{Kind: KindTasks, Target: "/isolane-a", Before: "/isolane-a", After: "/isolane-a/isolane-b"}
			return errors.Join(j.Adopt(moved), j.Undo(t.Context()))
		},
	} {
		if !k.freeze("/isolane-a") || state() != "1" {
			t.Fatalf("%s: not frozen", name)
		}
		if err := goesOn(); err != nil || state() != "0" {
			t.Errorf("%s: %v, cgroup.freeze is %s", name, err, state())
		}
		if err := k.write("/isolane-a/cgroup.freeze", "1"); err != nil {
			t.Fatal(err)
		}
		if err := goesOn(); err != nil || state() != "1" || k.freeze("/isolane-a") {
			t.Errorf("%s: %v, of somebody else's is %s", name, err, state())
		}
		if err := k.write("/isolane-a/cgroup.freeze", "0"); err != nil {
			t.Fatal(err)
		}
	}
}

// unified is where cgroup v2 is mounted.
func unified(t *testing.T) string {
	t.Helper()
	mounted, err := cgroup.Mounted(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	if mounted.Unified == nil {
		t.Skip("no cgroup v2")
	}
	return *mounted.Unified
}
