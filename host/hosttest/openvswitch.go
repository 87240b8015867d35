package hosttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// OpenVSwitch skips a test if there is no Open vSwitch, neither installed nor from `make test-tools`, whose
// folder bin/programs/usr is programs. Otherwise it makes the tools use dir, which has an empty database
// conf.db for the test. It starts nothing.
func OpenVSwitch(t *testing.T, programs string) (dir string) {
	t.Helper()
	programs, err := filepath.Abs(programs)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", strings.Join([]string{os.Getenv("PATH"), programs + "/bin", programs + "/sbin",
		programs + "/lib/openvswitch-switch", programs + "/lib/openvswitch-switch-dpdk"}, ":"))
	Need(t, Program("ovs-vswitchd"), Program("ovsdb-server"), Program("ovs-vsctl"))
	dir = t.TempDir()
	for _, name := range []string{"OVS_RUNDIR", "OVS_DBDIR"} {
		t.Setenv(name, dir)
	}
	if _, err = os.Stat("/usr/share/openvswitch"); err != nil {
		t.Setenv("OVS_PKGDATADIR", programs+"/share/openvswitch") // where the schema is
	}
	out, err := exec.CommandContext(t.Context(), "ovsdb-tool", "create", dir+"/conf.db").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}
