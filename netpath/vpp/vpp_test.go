package vpp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/test/vpptest"
)

func TestMain(m *testing.M) { hosttest.Main(m, vpptest.Be) }

func begun() vpptest.VPP {
	return vpptest.VPP{Version: "26.10-rc0", Threads: newThreads, Domains: map[string]bool{"1": true},
		Faces: map[string]*vpptest.Face{"local0": {}, "GigabitEthernet3/0/0": {Up: true}}}
}

func on(name, device string, v lane.VLAN) netpath.Lane {
	return netpath.Of(fstest.MapFS{}, name, lane.Network{Path: "vpp", Device: device, VLAN: v})
}

const card = "GigabitEthernet3/0/0"

// Who may not use VPP's socket learns which it is, and that root may; that is an error of looking.
func TestNotAllowed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if err := os.WriteFile(filepath.Join(dir, "vppctl"), []byte("#!/bin/sh\necho 'connect: Permission denied' >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const want = "spec.network.path: vppctl: /run/vpp/cli.sock: connect: Permission denied: needs root: permission denied"
	if err := (Path{}).Possible(on("a", card, lane.VLAN{})); fmt.Sprint(err) != want || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v, want %s", err, want)
	}
}

// The steps are made, drift is seen and put back, a VPP that began anew has all again, and nothing is left.
func TestPath(t *testing.T) {
	vpptest.Install(t)
	begun().Run(t)
	lanes := []netpath.Lane{on("a", card, lane.VLAN{Outer: 100, Inner: 7}), on("b", card, lane.VLAN{Outer: 100, Inner: 7}),
		on("c", card, lane.VLAN{Outer: 100}), on("d", card, lane.VLAN{}), on("e", "", lane.VLAN{})}
	all, err := Path{}.Steps(lanes)
	if err != nil {
		t.Fatal(err)
	}
	// Without the lanes' own ports, whose devices would have to be there.
	steps := slices.DeleteFunc(all, func(s journal.Step) bool { return Ops()[s.Kind] == nil || strings.HasPrefix(s.Target, "host-") })
	r := &reader{}
	op := portOp{r}
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", map[string]journal.Op{kindPort: op})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err = j.Apply(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	text, err := ask(t.Context(), "show interface address")
	if err != nil {
		t.Fatal(err)
	}
	one := fmt.Sprint(domain(lanes[0]))
	want := card + " (up):\n  L2 bridge bd-id " + fmt.Sprint(domain(lanes[3])) + " idx 1 shg 0  \n" + card + ".1000000000 (dn):\n" +
		card + ".1001000000 (up):\n  L2 bridge bd-id " + fmt.Sprint(domain(lanes[2])) + " idx 1 shg 0  \n" +
		card + ".1001000007 (up):\n  L2 bridge bd-id " + one + " idx 1 shg 0  \nlocal0 (dn):"
	if diff := cmp.Diff(want, text); diff != "" {
		t.Error(diff)
	}
	for what, harm := range map[string]func(v vpptest.VPP){
		"down":               func(v vpptest.VPP) { v.Faces[card+".1001000007"].Up = false },
		"in bridge domain 1": func(v vpptest.VPP) { v.Faces[card+".1001000007"].Bridge = "1" },
		"tags not taken off": func(v vpptest.VPP) { v.Faces[card+".1001000007"].Pop = "none" },
		"none":               func(v vpptest.VPP) { delete(v.Faces, card+".1001000007") },
		"connect: Connection refused: is VPP running?": nil,
	} {
		v, rerr := vpptest.Read()
		if rerr != nil {
			t.Fatal(rerr)
		}
		if harm == nil {
			v = begun()
			vpptest.End(t)
			r.forget()
			if _, err = j.Apply(t.Context(), steps); err != nil || len(j.Waiting()) == 0 { // other lanes can come meanwhile
				t.Errorf("without VPP: %v, waiting %v", err, j.Waiting())
			}
		} else {
			harm(v)
			v.Run(t)
		}
		r.forget()
		for _, s := range steps {
			if _, found := op.DescribeDrift(s); s.Target == card+".1001000007" && (err != nil || !strings.Contains(found, what)) {
				t.Errorf("%s: %s, %v", what, found, err)
			}
		}
		r.forget()
		v.Run(t)
		if _, err = j.Apply(t.Context(), steps); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if now, aerr := ask(t.Context(), "show interface address"); aerr != nil || now != text {
			t.Errorf("%s: %s, %v", what, now, aerr)
		}
	}
	r.forget()
	few, err := Path{}.Steps(lanes[:2]) // without the lane that has no tags
	few = slices.DeleteFunc(few, func(s journal.Step) bool { return !strings.HasPrefix(s.Target, card) })
	if _, left, rerr := j.Reconcile(t.Context(), few, false); err != nil || rerr != nil || len(left) > 0 {
		t.Error(err, rerr, left)
	}
	if err = j.Undo(t.Context()); err != nil {
		t.Error(err)
	}
	left, err := vpptest.Read()
	if d := cmp.Diff(begun(), left); err != nil || d != "" {
		t.Error(err, d)
	}
}

// A card of the kernel's takes all frames for VPP, and knows each lane's MAC address.
func TestUplink(t *testing.T) {
	for device, want := range map[string]bool{"lo": true, card: false, "": false} {
		l, tagged := on("a", device, lane.VLAN{}), on("b", device, lane.VLAN{Outer: 100})
		steps, err := Path{}.Steps([]netpath.Lane{l, tagged})
		all := slices.DeleteFunc(slices.Clone(steps), func(s journal.Step) bool { return s != netdev.PromiscuousStep(device) })
		if err != nil || (len(all) == 1) != want || slices.Contains(steps, netdev.UnicastStep(device, l.MAC)) != want ||
			slices.Contains(steps, netdev.UnicastStep(device, tagged.MAC)) != want {
			t.Errorf("%q: %v, %v", device, steps, err)
		}
	}
}

// What VPP is or lacks is told before anything changes, by the field and with the remedy.
func TestPossible(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"add isl-test-r mtu 1460 up type veth peer name isl-test-q", "set isl-test-q up",
		"add isl-test-m link isl-test-q up type macvlan"} {
		if out, err := exec.CommandContext(t.Context(), "ip", append([]string{"link"}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %s", args, out)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "ip", "address", "add", "198.18.7.1/24", "dev", "isl-test-m").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	vpptest.Install(t)
	routed := begun()
	routed.Faces[card].Bridge = "1"
	down := begun()
	down.Faces[card].Up = false
	old := begun()
	old.Version = "23.06-release"
	for _, c := range []struct {
		v    *vpptest.VPP
		on   netpath.Lane
		want string
	}{
		{nil, on("a", "", lane.VLAN{}), "spec.network.path: vppctl: connect: Connection refused: is VPP running?"},
		{&old, on("a", "", lane.VLAN{}), "spec.network.path: VPP 23.06 runs: expected 24.10 or later"},
		{&down, on("a", card, lane.VLAN{}), "spec.network.device: " + card + " is down: vppctl set interface state"},
		{&routed, on("a", card, lane.VLAN{}), "spec.network.device: " + card + " is used in VPP (L2 bridge bd-id 1"},
		{&routed, on("a", card, lane.VLAN{Outer: 1}), ""},
		{&down, on("a", "eth77", lane.VLAN{}), "spec.network.device: eth77 is neither a network device nor an interface of VPP"},
		{&down, on("a", "lo", lane.VLAN{}), "spec.network.device: lo is no Ethernet device"},
		{&down, on("a", "isl-test-r", lane.VLAN{}), "spec.network.mtu: a lane without one has 1500 with path vpp, more than the 1460"},
		{&down, on("a", "isl-test-q", lane.VLAN{}), "spec.network.device: isl-test-m on isl-test-q has addresses or routes of the host"},
	} {
		if c.v != nil {
			c.v.Run(t)
		}
		err := Path{}.Possible(c.on)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// A journal that Isolane has not written takes nothing of somebody else's.
func TestCheck(t *testing.T) {
	for _, s := range []journal.Step{
		{Kind: kindPort, Target: "host-eth1", After: `{"name":"host-eth1","device":"eth0"}`},
		{Kind: kindPort, Target: "host-eth1 up", After: `{"name":"host-eth1 up","device":"eth1 up"}`},
		{Kind: kindPort, Target: "tap0.100", After: `{"name":"tap0.100","parent":"tap0","vlan":{"outer":100}}`},
		{Kind: kindPort, Target: "x; y.1000000000", After: `{"name":"x; y.1000000000","parent":"x; y"}`},
		{Kind: kindStartup, Target: "/etc/vpp/startup.conf", After: "unix { }"},
		{Kind: kindStartup, Target: Dir + "/../a.conf", After: "unix { }"},
		{Kind: kindThreads, Target: "../a", After: "main 1"},
	} {
		if err := Ops()[s.Kind].Check(s); err == nil {
			t.Errorf("%s: no error", s)
		}
	}
}

// As VPP 26.10 and 26.06 print them (vlib/threads_cli.c).
const (
	newThreads = "\x1b[33mID\x1b[0m \x1b[33m  Name  \x1b[0m \x1b[33m LWP \x1b[0m \x1b[33mCPU\x1b[0m \x1b[33m  Sched  \x1b[0m\n" +
		" 0\x1b[0m vpp_main\x1b[0m 28759\x1b[0m   2\x1b[0m other (0)\x1b[0m  1508\x1b[0m\n" +
		" 1\x1b[0m vpp_wk_0\x1b[0m 28760\x1b[0m   3\x1b[0m other (0)\x1b[0m  1508\x1b[0m\n" +
		" 2\x1b[0m vpp_wk_1\x1b[0m 28761\x1b[0m   4\x1b[0m other (0)\x1b[0m  1508\x1b[0m"
	oldThreads = `ID     Name                Type        LWP     Sched Policy (Priority)  lcore  Core   Socket State
0      vpp_main                        4711    other (0)                2      1      0
1      vpp_wk_0            workers     4712    other (0)                3      2      0
2      vpp_wk_1            workers     4713    other (0)                4      3      0`
)

// A lane of VPP's own has a file with which VPP can be started, the host's own sections in it, and the CPUs of
// the VPP that runs are held against it.
func TestSwitch(t *testing.T) {
	vpptest.Install(t)
	l := plan.Lane{Name: "router", CPUs: cpuset.MustParse("2-4"), MemoryNodes: cpuset.Of(0), Devices: []plan.Device{{Address: "0000:03:00.0"}}}
	h := host.Host{CPUs: make([]host.CPU, 8)}
	for i := range h.CPUs {
		h.CPUs[i] = host.CPU{ID: i, Online: true, Core: &i}
	}
	steps, err := Path{}.SwitchSteps(h, []plan.Lane{l})
	if err != nil || len(steps) != 2 {
		t.Fatal(steps, err)
	}
	got, err := startup("unix { nodaemon }\n# cpu { }\ncpu {\n  main-core 1 # first\n}\nplugins { path /a }", "cpu { main-core 2 }\n")
	want := "unix { nodaemon }\nplugins { path /a }\n\ncpu { main-core 2 }\n"
	if _, text, _ := strings.Cut(got, "there is one.\n"); err != nil || text != want {
		t.Errorf("%q, %v", text, err)
	}
	if _, err = startup("cpu { a { } }", ""); err == nil {
		t.Error("a section that cannot be left out: no error")
	}
	if !strings.Contains(steps[0].After, "main-core 2\n  corelist-workers 3-4\n") || !strings.Contains(steps[0].After, "dev 0000:03:00.0") {
		t.Error(steps[0].After)
	}
	if now := parseThreads(oldThreads); now != steps[1].After {
		t.Errorf("%s, want %s", now, steps[1].After)
	}
	if now := parseThreads(strings.Replace(oldThreads, "2      1 ", "n/a    n/a ", 1)); now != "vpp_main on no CPU of its own" {
		t.Error(now)
	}
	op := Ops()[kindThreads]
	if now, rerr := op.Read(t.Context(), steps[1]); rerr != nil || now != steps[1].After { // no VPP runs
		t.Error(now, rerr)
	}
	begun().Run(t)
	steps[1].After = "main 5, workers 6"
	if now, rerr := op.Read(t.Context(), steps[1]); rerr != nil || now != "main 2, workers 3-4" {
		t.Error(now, rerr)
	}
	if err = (Path{}).PossibleSwitch([]string{"other"}); err == nil {
		t.Error(errors.New("a second lane of VPP's own: no error"))
	}
}
