package netpath_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
)

// openVSwitch starts one of the test's own, which ends with the test.
func openVSwitch(t *testing.T) {
	t.Helper()
	for _, device := range []string{"ovs-netdev", "ovs-system"} {
		if _, err := os.Stat("/sys/class/net/" + device); err == nil {
			t.Skip("skipped: " + device + " is there: of an Open vSwitch of this host, or of one that was killed")
		}
	}
	dir := hosttest.OpenVSwitch(t, "../bin/programs/usr")
	run := func(argv ...string) {
		t.Helper()
		if out, rerr := exec.CommandContext(context.WithoutCancel(t.Context()), argv[0], argv[1:]...).CombinedOutput(); rerr != nil {
			t.Fatalf("%q: %v: %s", argv, rerr, out)
		}
	}
	daemon := func(name string, argv ...string) {
		t.Helper()
		run(append([]string{name, "--detach", "--no-chdir", "--pidfile", "--log-file=" + dir + "/" + name + ".log", "-vconsole:off"}, argv...)...)
		t.Cleanup(func() {
			run("ovs-appctl", "--timeout=10", "--target="+name, "exit")
			there := func() bool { _, serr := os.Stat(dir + "/" + name + ".pid"); return serr == nil }
			for begun := time.Now(); there() && time.Since(begun) < 10*time.Second; {
				<-time.After(10 * time.Millisecond)
			}
			if there() {
				t.Errorf("%s has not ended", name)
			}
		})
	}
	t.Cleanup(func() { // in user space it outlives its daemon
		if _, serr := os.Stat("/sys/class/net/ovs-netdev"); serr == nil {
			run("ip", "link", "del", "ovs-netdev")
		}
	})
	daemon("ovsdb-server", dir+"/conf.db", "--remote=punix:"+dir+"/db.sock")
	run("ovs-vsctl", "--no-wait", "init")
	daemon("ovs-vswitchd", "unix:"+dir+"/db.sock")
}
