package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/lanes"
)

// A service that stops slowly delays nobody. It is stopped even if its record was cut short.
func TestServiceEndsSlowly(t *testing.T) {
	hosttest.OwnMounts(t)
	dir := t.TempDir()
	said, stopping := filepath.Join(dir, "said"), filepath.Join(dir, "stopping")
	const loaded = "Id=web.service\nLoadState=loaded\nSlice=system.slice\nActiveState="
	script := fmt.Sprintf("#!/bin/sh\necho $1 >> %[1]s/calls\ncase $1 in show) cat %[2]s;; stop) read go < %[3]s;; esac\n", dir, said, stopping)
	err := errors.Join(os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o700),
		os.WriteFile(said, []byte(loaded+"active\n"), 0o600), unix.Mkfifo(stopping, 0o600),
		unix.Mount("tmpfs", "/run", "tmpfs", 0, ""), os.MkdirAll("/run/systemd/system/web.service.d", 0o700),
		os.WriteFile("/run/systemd/system/web.service.d/isolane-hub.conf", nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	p := newInstances(t.TempDir())
	i := instance(t, api.InstanceSpec{Workload: api.Workload{Service: "web.service", Root: true}, Tenant: "acme"})
	if err = os.WriteFile(p.recordFile(i.Name), nil, 0o600); err != nil { // its disk was full
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		if err = p.End(ctx, "u", i); !isNotYet(err) {
			t.Fatalf("found %v while it is stopped, expected that this goes on", err)
		}
	}
	go func() {
		if werr := errors.Join(os.WriteFile(said, []byte(loaded+"inactive\n"), 0o600), os.WriteFile(stopping, []byte("\n"), 0)); werr != nil {
			t.Error(werr)
		}
	}()
	if err = endResult(p, "u", i); err != nil {
		t.Error(err)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if n := strings.Count(string(calls), "stop\n"); n != 1 || err != nil {
		t.Errorf("stopped %d times, %v: %s", n, err, calls)
	}
	if _, err = os.Stat("/run/systemd/system/web.service.d"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the drop-in is left:", err)
	}
}

// What ends on a host whose disk takes no writes is restarted, and the report says what is not stored.
// Nothing that was stored before is lost.
func TestDisk(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	hosttest.OwnMounts(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	p := newInstances(dir)
	p.lanes = lanes.Options{Dir: filepath.Join(t.TempDir(), "lanes")} // on a host in /run
	i := sleeping(t, 1000)
	at := waitForPID(t, p, i, 0)
	defer func() {
		if eerr := errors.Join(os.RemoveAll(filepath.Join(dir, "much")), endResult(p, "u", i)); eerr != nil {
			t.Error(eerr)
		}
	}()
	again := func(says string) {
		t.Helper()
		if kerr := syscall.Kill(at, syscall.SIGKILL); kerr != nil {
			t.Fatal(kerr)
		}
		p.beganAt = map[string]time.Time{} // long ago
		at = waitForPID(t, p, i, at)
		if kept := fmt.Sprint(p.storeErrors[i.Name]); !strings.Contains(kept, says) {
			t.Errorf("it says %s, expected %s", kept, says)
		}
	}
	_ = os.WriteFile(filepath.Join(dir, "much"), make([]byte, 1<<20), 0o600) // it is larger than the room left
	again("")                                                                // whether its session can be stored depends on what was freed
	larger := i
	larger.Spec = json.RawMessage(strings.Replace(string(i.Spec), `"1000"`, `"2000"`, 1))
	err := p.writeRecord(larger)
	if text, rerr := os.ReadFile(p.recordFile(i.Name)); err == nil || rerr != nil || string(text) != string(i.Spec) {
		t.Errorf("the record is %q after %v, %v", text, err, rerr)
	}
	if err = unix.Mount(dir, dir, "", unix.MS_BIND, ""); err == nil { // otherwise the log is in use
		err = unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if uerr := unix.Unmount(dir, 0); uerr != nil {
			t.Error(uerr)
		}
	}()
	again("what it prints is not kept: open " + p.logFile(i.Name) + ": read-only file system")
}
