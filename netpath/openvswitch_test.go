package netpath_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
)

// openVSwitch starts one of the test's own, which ends with the test.
func openVSwitch(t *testing.T) {
	t.Helper()
	programs, err := filepath.Abs("../bin/programs/usr") // of make test-tools
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", strings.Join([]string{os.Getenv("PATH"), programs + "/bin", programs + "/sbin",
		programs + "/lib/openvswitch-switch"}, ":"))
	hosttest.Need(t, hosttest.Program("ovs-vswitchd"), hosttest.Program("ovsdb-server"), hosttest.Program("ovs-vsctl"))
	for _, device := range []string{"ovs-netdev", "ovs-system"} {
		if _, err = os.Stat("/sys/class/net/" + device); err == nil {
			t.Skip("skipped: " + device + " is there: of an Open vSwitch of this host, or of one that was killed")
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"OVS_RUNDIR", "OVS_DBDIR"} {
		t.Setenv(name, dir)
	}
	schema := "/usr/share/openvswitch/vswitch.ovsschema"
	if _, err = os.Stat(schema); err != nil {
		schema = programs + "/share/openvswitch/vswitch.ovsschema"
	}
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
	run("ovsdb-tool", "create", dir+"/conf.db", schema)
	daemon("ovsdb-server", dir+"/conf.db", "--remote=punix:"+dir+"/db.sock")
	run("ovs-vsctl", "--no-wait", "init")
	daemon("ovs-vswitchd", "unix:"+dir+"/db.sock")
}
