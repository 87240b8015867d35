package change

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
)

// A service whose processes have moved to a lane ends there too, however systemd ends it; without the lane it
// goes on.
func TestKeeper(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	top := unified(t)
	for name, c := range map[string]struct {
		end  func(t *testing.T, k keeper, s journal.Step, unit string) // of the unit, or of the lane
		ends bool                                                      // what has moved
	}{
		"stopped":  {func(t *testing.T, k keeper, s journal.Step, _ string) { t.Helper(); signalAll(t, k, s, unix.SIGTERM) }, true},
		"killed":   {func(t *testing.T, k keeper, s journal.Step, _ string) { t.Helper(); signalAll(t, k, s, unix.SIGKILL) }, true},
		"released": {releaseKeeper, false},
	} {
		t.Run(name, func(t *testing.T) {
			unit := filepath.Join(top, "isolane-test-unit")
			group, moved := filepath.Join(unit, "isolane-1"), filepath.Join(top, "isolane-test-lane")
			for _, dir := range []string{group, moved} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			work := exec.CommandContext(t.Context(), "sleep", "1000")
			if err := work.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- work.Wait() }()
			t.Cleanup(func() {
				_ = work.Process.Kill()
				err := groupDir{kernel{"/"}}.Write(context.Background(), journal.Step{Target: moved}, "")
				for _, dir := range []string{group, unit} {
					if rerr := os.Remove(dir); !errors.Is(rerr, os.ErrNotExist) {
						err = errors.Join(err, rerr)
					}
				}
				if err != nil {
					t.Error(err)
				}
			})
			if err := os.WriteFile(filepath.Join(moved, "cgroup.procs"), []byte(strconv.Itoa(work.Process.Pid)), 0); err != nil {
				t.Fatal(err)
			}
			k, s := keeper{processes{kernel{"/"}}}, journal.Step{Kind: KindKeeper, Target: KeeperTarget(group, moved)}
			if err := k.Write(t.Context(), s, Running); err != nil {
				t.Fatal(err)
			}
			pids, err := k.members(group)
			if err != nil || len(pids) == 0 {
				t.Fatal(pids, err)
			}
			for _, pid := range pids { // isolane run becomes the workload, and knows of no child
				if text, rerr := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); rerr == nil &&
					strings.Contains(string(text), fmt.Sprintf("PPid:\t%d\n", os.Getpid())) {
					t.Error("a child of this process")
				}
			}
			c.end(t, k, s, unit)
			switch {
			case c.ends:
				if err := <-ended; err == nil {
					t.Error("it ended by itself")
				}
			default: // that it does not end cannot be waited for
				select {
				case err := <-ended:
					t.Error(err)
				case <-time.After(1500 * time.Millisecond):
				}
			}
		})
	}
}

// signalAll does what systemd does with a unit: it signals all processes, and removes the cgroup when they
// have ended.
func signalAll(t *testing.T, k keeper, s journal.Step, sig syscall.Signal) {
	t.Helper()
	group, _ := keeperOf(s)
	pids, err := k.members(group.Target)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if err = unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
	if err := retry(t.Context(), 10*time.Second, unix.EBUSY, func() error { return unix.Rmdir(group.Target) }); err != nil {
		t.Fatal(err)
	}
}

func releaseKeeper(t *testing.T, k keeper, s journal.Step, unit string) {
	t.Helper()
	if err := k.Write(t.Context(), s, ""); err != nil {
		t.Fatal(err)
	}
	group, _ := keeperOf(s)
	if err := (groupDir{kernel{"/"}}).Write(t.Context(), group, ""); err != nil {
		t.Fatal(err)
	}
	if pids, err := k.members(unit); err != nil || len(pids) > 0 {
		t.Error(pids, err)
	}
}
