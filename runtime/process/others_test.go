package process

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/mount"
)

// Network namespaces as ip-netns(8) names them, where /run is shared as with systemd, are in no list of mounts: each is
// mounted twice there, once where nobody sees it.
func TestHideNamespaces(t *testing.T) {
	hosttest.OwnMounts(t)
	const name = namespaces + "/other"
	err := errors.Join(unix.Mount("tmpfs", "/run", "tmpfs", 0, ""), unix.Mount("", "/run", "", unix.MS_SHARED, ""), os.Mkdir(namespaces, 0o755),
		unix.Mount(namespaces, namespaces, "", unix.MS_BIND, ""), os.WriteFile(name, nil, 0o600),
		unix.Mount("/proc/thread-self/ns/net", name, "", unix.MS_BIND, ""))
	if err != nil {
		t.Fatal(err)
	}
	count := func() int {
		t.Helper()
		all, merr := mounts(func(p mount.Point) bool { return p.Dir == name })
		if merr != nil {
			t.Fatal(merr)
		}
		return len(all)
	}
	if n := count(); n != 2 {
		t.Fatalf("mounted %d times, expected twice", n)
	}
	if err = hideNamespaces(); err != nil || count() != 0 {
		t.Errorf("%v, and mounted %d times", err, count())
	}
	if left, rerr := os.ReadDir(namespaces); rerr != nil || len(left) != 0 {
		t.Errorf("it reads %v, %v", left, rerr)
	}
}
