package ovs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/ovs"
	"isolane.dev/isolane/plan"
)

func on(name, device string, v lane.VLAN, addresses ...string) netpath.Lane {
	n := lane.Network{Path: "ovs", Device: device, VLAN: v}
	for _, a := range addresses {
		n.Addresses = append(n.Addresses, lane.Address{Prefix: netip.MustParsePrefix(a)})
	}
	return netpath.Of(fstest.MapFS{}, name, n)
}

// Lanes with one uplink share its bridge, those with an outer tag a bridge behind it, and no VLAN device is made.
func TestSteps(t *testing.T) {
	lanes := []netpath.Lane{on("a", "eth1", lane.VLAN{Outer: 100}, "192.0.2.1/24"), on("b", "", lane.VLAN{}),
		on("c", "eth1", lane.VLAN{Outer: 200, Inner: 7}), on("d", "eth1", lane.VLAN{Outer: 200, Inner: 8})}
	steps, err := ovs.Path{}.Steps(lanes)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		if !strings.HasPrefix(s.Kind, "ovs-") {
			continue
		}
		if err = ovs.Ops()[s.Kind].Check(s); err != nil {
			t.Error(err)
		}
		got = append(got, s.Target+" "+s.After)
	}
	want := []string{
		`islovs-eth1 {"device":"eth1"}`,
		`isl-a {"device":"eth1","tag":100,"lane":"a","mac":"` + lanes[0].MAC + `","addresses":["192.0.2.1"]}`,
		`islovs {"device":""}`,
		`isl-b {"device":"","lane":"b","mac":"` + lanes[1].MAC + `","addresses":null}`,
		`islc-eth1.s200 {"device":"eth1","outer":200}`,
		`isl-c {"device":"eth1","outer":200,"tag":7,"lane":"c","mac":"` + lanes[2].MAC + `","addresses":null}`,
		`isl-d {"device":"eth1","outer":200,"tag":8,"lane":"d","mac":"` + lanes[3].MAC + `","addresses":null}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if tags, terr := netpath.Tags([]netpath.Path{ovs.Path{}}, lanes); terr != nil || len(tags) > 0 {
		t.Error(terr, tags)
	}
	for _, v := range []lane.VLAN{{Outer: 200}, {Outer: 300}, {}} {
		err = netpath.Beside([]netpath.Path{ovs.Path{}}, on("e", "eth1", v), lanes)
		if (err != nil) != (v.Outer == 200) {
			t.Error(v, err)
		}
	}
}

// With DPDK a lane has a directory for its socket in the place of a device, and a bridge apart from those of path ovs.
func TestStepsDPDK(t *testing.T) {
	a, b := on("a", "", lane.VLAN{}, "192.0.2.1/24"), on("b", "eth1", lane.VLAN{Outer: 200, Inner: 7})
	b.MTU = 9000
	steps, err := ovs.Path{DPDK: true}.Steps([]netpath.Lane{a, b})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		if err = ovs.Ops()[s.Kind].Check(s); err != nil {
			t.Error(err)
		}
		got = append(got, s.Target+" "+s.After)
	}
	want := []string{
		`islovd {"device":"","dpdk":true}`,
		`/run/isolane-vhost/a present`,
		`isl-a {"device":"","lane":"a","mac":"` + a.MAC + `","addresses":["192.0.2.1"],"socket":"/run/isolane-vhost/a/vhost.sock","mtu":1500}`,
		`islovd-eth1 {"device":"eth1","dpdk":true}`,
		`islc-eth1.s200 {"device":"eth1","outer":200,"dpdk":true}`,
		`/run/isolane-vhost/b present`,
		`isl-b {"device":"eth1","outer":200,"tag":7,"lane":"b","mac":"` + b.MAC + `","addresses":null,"socket":"/run/isolane-vhost/b/vhost.sock","mtu":9000}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What lanes of the switch itself have is told in the words of ovs-vswitchd.conf.db(5), and what it has not is not.
func TestSwitchSteps(t *testing.T) {
	has := true
	h := host.Host{NUMANodes: []host.NUMANode{{ID: 0, HasMemory: &has}, {ID: 1, HasMemory: &has}}}
	pages := []plan.Hugepages{{Node: 0, PageBytes: 1 << 30, Pages: 1}}
	for want, lanes := range map[string][]plan.Lane{
		"pmd-cpu-mask=0x200000004 dpdk-lcore-mask= dpdk-socket-mem=1024,0": {
			{CPUs: cpuset.Of(1, 2), Hugepages: pages}, {CPUs: cpuset.Of(33), Roles: map[string]cpuset.Set{"pmd": cpuset.Of(33)}}},
		"pmd-cpu-mask=0x2 dpdk-lcore-mask=": {{CPUs: cpuset.Of(1), Roles: map[string]cpuset.Set{"pmd": cpuset.Of(1)}}},
	} {
		steps, err := (ovs.Path{DPDK: true}).SwitchSteps(h, lanes)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range steps {
			if err := ovs.Ops()[s.Kind].Check(s); err != nil {
				t.Error(err)
			}
			got = append(got, s.Target+"="+s.After)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A journal that Isolane has not written takes nothing of somebody else's.
func TestCheck(t *testing.T) {
	for _, s := range []journal.Step{
		{Kind: ovs.KindBridge, Target: "br-ex", After: `{"device":"eth1"}`},
		{Kind: ovs.KindBridge, Target: "islovs-a b", After: `{"device":"a b"}`},
		{Kind: ovs.KindBridge, Target: "islovs", After: `...`},
		{Kind: ovs.KindPort, Target: "eth1", After: `{"lane":"a","mac":"02:15:00:00:00:01"}`},
		{Kind: ovs.KindPort, Target: "isl-a", After: `{"lane":"a","mac":"no,actions=normal"}`},
		{Kind: ovs.KindPort, Target: "isl-a", After: `{"lane":"a","mac":"02:15:00:00:00:01","tag":4095}`},
		{Kind: ovs.KindPort, Target: "isl-a", After: `{"lane":"a","mac":"02:15:00:00:00:01","socket":"/run/isolane-vhost/b/vhost.sock","mtu":1500}`},
		{Kind: ovs.KindSocket, Target: "/run/isolane-vhost/../lock", After: "present"},
		{Kind: ovs.KindSocket, Target: "/etc", After: "present"},
		{Kind: ovs.KindConfig, Target: "vlan-limit", After: "2"},
		{Kind: ovs.KindConfig, Target: "pmd-cpu-mask", After: "2 -- del-br br-ex"},
	} {
		if err := ovs.Ops()[s.Kind].Check(s); err == nil {
			t.Errorf("%s: no error", s)
		}
	}
}

// What Open vSwitch's tools say when they cannot is told with the remedy; only what a user may not see is an error
// of looking.
func TestNoAnswer(t *testing.T) {
	step := journal.Step{Kind: ovs.KindBridge, Target: "islovs", After: `{"device":""}`}
	for _, c := range []struct{ script, want string }{
		{"", "ovs-vsctl is not there: expected Open vSwitch (package openvswitch-switch)"},
		{"echo 'ovs-vsctl: unix:db.sock: database connection failed (Connection refused)' >&2; exit 1",
			"database connection failed (Connection refused): is it running?"},
		{"echo 'ovs-vsctl: unix:db.sock: database connection failed (Permission denied)' >&2; exit 1", ""},
		{"kill -ALRM $$", "no answer within 10 s: is ovs-vswitchd running?"},
		{"echo '{}'", "EOF"},
		{"[ -e $0.asked ] && { echo '{}'; exit; }; : > $0.asked; echo 'ovs-ofctl: /run/b.mgmt: failed to open socket (Broken pipe)' >&2; exit 1",
			"EOF"}, // asked again
	} {
		dir := t.TempDir()
		if c.script != "" {
			text := "#!/bin/sh\n" + c.script + "\n"
			if err := os.WriteFile(filepath.Join(dir, "ovs-vsctl"), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", dir)
		op, ok := ovs.Ops()[step.Kind].(interface {
			journal.Op
			MayOverwrite(s journal.Step, now string) bool
		})
		if !ok {
			t.Fatal("a step that cannot be read is not taken back")
		}
		now, err := op.Read(context.Background(), step)
		if c.want == "" {
			const says = "spec.network.path: ovs-vsctl: unix:db.sock: database connection failed (Permission denied): needs root: permission denied"
			if perr := (ovs.Path{}).Possible(on("a", "", lane.VLAN{})); !errors.Is(err, fs.ErrPermission) || fmt.Sprint(perr) != says {
				t.Error(now, err, perr)
			}
			continue
		}
		if err != nil || !strings.Contains(now, c.want) || !op.MayOverwrite(step, now) {
			t.Errorf("%s: %q, %v", c.script, now, err)
		}
		err = ovs.Path{}.Possible(on("a", "", lane.VLAN{}))
		if err == nil || !strings.HasPrefix(err.Error(), "spec.network.path: ") || !strings.Contains(err.Error(), c.want) {
			t.Error(err)
		}
	}
}

// A version that nobody has tried is told, with the first that was.
func TestOldVersion(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for version, want := range map[string]string{"2.13.8": " (Open vSwitch 2.13 is untested: expected 2.17 or later)", "2.17.0": "", "3.5.0": ""} {
		text := "#!/bin/sh\necho 'ovs-vswitchd (Open vSwitch) " + version + "'\n"
		if err := os.WriteFile(filepath.Join(dir, "ovs-appctl"), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		made := journal.Step{Kind: ovs.KindBridge, Target: "islovs-eth1", After: `{"device":"eth1"}`}
		_, _, to := ovs.Ops()[made.Kind].(interface {
			Describe(journal.Step) (name, from, to string)
		}).Describe(made)
		if to != "with eth1 as a port"+want {
			t.Errorf("%s: %q", version, to)
		}
	}
}

// An ovs-vswitchd that is not root cannot enter the directory of a lane's socket: plan says so, and what helps.
func TestLacksAccess(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir := t.TempDir()
	t.Setenv("OVS_RUNDIR", dir)
	sleep, err := exec.LookPath("sleep")
	if err == nil {
		err = os.Symlink(sleep, filepath.Join(dir, "ovs-vswitchd")) // which gives it its name
	}
	if err = errors.Join(err, os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	for user, want := range map[uint32]string{0: "", 65534: "ovs-vswitchd runs as user 65534 (/proc/PID/status), and /run/isolane-vhost/a is root's: " +
		"setfacl -m u:65534:x /run/isolane-vhost/a after apply, and setfacl -m u:65534:rw /run/isolane-vhost/a/vhost.sock after each start of the workload"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "ovs-vswitchd"), "100")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		if err = cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := strconv.Itoa(cmd.Process.Pid)
		err = os.WriteFile(filepath.Join(dir, "ovs-vswitchd.pid"), []byte(pid+"\n"), 0o644)
		kernel, dpdk := ovs.Both()
		says := netpath.AccessReason([]netpath.Path{kernel, dpdk}, netpath.Of(fstest.MapFS{}, "a", lane.Network{Path: "ovs-dpdk"}))
		if want = strings.Replace(want, "PID", pid, 1); err != nil || strings.TrimPrefix(says, "access: ") != want || says != "" && !netpath.IsReason(says) {
			t.Errorf("as user %d: %q, %v", user, says, err)
		}
		if says = netpath.AccessReason([]netpath.Path{kernel, dpdk}, on("a", "", lane.VLAN{})); says != "" {
			t.Errorf("by path ovs: %q", says)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// What is to be taken back while Open vSwitch does not answer stays written down, also over the death of the process,
// until one finds it answering; a lane's other steps do not wait for it.
func TestUndoWaits(t *testing.T) {
	bin, dir := t.TempDir(), filepath.Join(t.TempDir(), "run")
	standIn := func(script string) {
		if err := os.WriteFile(filepath.Join(bin, "ovs-vsctl"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	db := t.TempDir() // that is there, and so not removed
	t.Setenv("OVS_DBDIR", db)
	if err := os.WriteFile(filepath.Join(db, "conf.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bridge := journal.Step{Kind: ovs.KindBridge, Target: "islovs", After: `{"device":""}`}
	socket := journal.Step{Kind: ovs.KindSocket, Target: "/run/isolane-vhost/isl-test-waits", After: "present"}
	open := func() *journal.Journal {
		j, err := journal.Open(dir, "test", ovs.Ops())
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	all := func(journal.Step) bool { return true }
	j := open()
	for _, s := range []journal.Step{socket, bridge} {
		if err := j.Adopt(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		script  string
		waiting int
	}{
		{"echo 'ovs-vsctl: unix:db.sock: database connection failed (No such file or directory)' >&2; exit 1", 1},
		{"echo 'ovs-vsctl: unix:db.sock: database connection failed (Connection refused)' >&2; exit 1", 1},
		{"for i in 1 2 3 4; do echo '{\"headings\":[],\"data\":[]}'; done", 0},
	} {
		standIn(c.script)
		left, err := j.UndoWhere(t.Context(), all)
		if err != nil || len(left) > 0 || len(j.Waiting()) != c.waiting || len(j.Pending()) != c.waiting {
			t.Errorf("%s: %v, %v, waiting %v, pending %v", c.script, err, left, j.Waiting(), j.Pending())
		}
		if err = j.Close(); err != nil {
			t.Fatal(err)
		}
		j = open() // by another process
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}
