package netdev

import (
	"errors"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
)

// A container that began before a namespace sees only the file with its name. It finds the namespace at the machine.
func TestNamespaceOfTheMachine(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	s := journal.Step{Kind: KindNamespace, Target: "isl-test-machine", After: Present}
	t.Cleanup(func() {
		if err := (netNS{}).Write(t.Context(), s, ""); err != nil {
			t.Error(err)
		}
	})
	if err := (netNS{}).Write(t.Context(), s, s.After); err != nil {
		t.Fatal(err)
	}
	seen := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this function
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Unmount(filepath.Join(Dir, s.Target), unix.MNT_DETACH))
		if now, rerr := (netNS{}).Read(t.Context(), s); err == nil && (rerr != nil || now != bare) {
			err = errors.Join(rerr, errors.New("without the machine: "+now))
		}
		ns, nerr := openBelow("/proc/self/root", s.Target) // that of the first thread
		if err = errors.Join(err, nerr); nerr == nil {
			err = errors.Join(err, ns.Close())
		}
		seen <- err
	}()
	if err := <-seen; err != nil {
		t.Error(err)
	}
}
