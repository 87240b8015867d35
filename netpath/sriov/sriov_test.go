package sriov

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

func TestDeclared(t *testing.T) {
	for _, c := range []struct {
		n    lane.Network
		want string
	}{
		{lane.Network{Device: "eth1", VFs: 1, VLAN: lane.VLAN{Outer: 100}}, ""},
		{lane.Network{}, "spec.network.device: "},
		{lane.Network{Device: "eth1", VLAN: lane.VLAN{Outer: 100, Inner: 7}}, ""},
		{lane.Network{Device: "eth1", VLAN: lane.VLAN{Outer: 100, Inner: 7}, VFs: 2}, "spec.network.vlan.inner: it is "},
		{lane.Network{Device: "eth1", VLAN: lane.VLAN{Outer: 100, Inner: 7}, Driver: lane.Tap}, "spec.network.vlan.inner: with driver tap"},
		{lane.Network{Device: "eth1", VLAN: lane.VLAN{Outer: 100, Inner: 7}, Driver: vfio}, "spec.network.vlan.inner: with driver vfio-pci"},
		{lane.Network{Device: "eth1", VFs: 2, MTU: 9000}, ""},
		{lane.Network{Device: "eth1", VFs: 2, Driver: lane.Tap}, "spec.network.vfs: 2: "},
		{lane.Network{Device: "eth1", VFs: 2, Rate: 8e6}, "spec.network.rate: "},
		{lane.Network{Device: "eth1", Queues: 2}, ""},
		{lane.Network{Device: "eth1", VFs: 2, Queues: 2}, "spec.network.queues: they are "},
		{lane.Network{Device: "eth1", Driver: vfio, Queues: 2}, "spec.network.queues: with driver "},
		{lane.Network{Device: "eth1", Sources: []lane.Prefix{{}}}, "spec.network.sources: "},
		{lane.Network{Device: "eth1", MTU: 9000, Rate: 8e6 + 1, Gateways: []lane.Gateway{{}}}, ""},
		{lane.Network{Device: "eth1", Driver: vfio, Rate: 8e6}, ""},
		{lane.Network{Device: "eth1", Driver: vfio, Rate: 8e6 + 1}, "spec.network.rate: 8000001"},
		{lane.Network{Device: "eth1", Driver: vfio, MTU: 9000}, "spec.network.mtu: "},
		{lane.Network{Device: "eth1", Driver: vfio, Gateways: []lane.Gateway{{}}}, "spec.network.gateways: "},
	} {
		err := Path{}.Declared(c.n)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", c.n, err, c.want)
		}
	}
	l := netpath.Lane{Network: lane.Network{Path: "sriov", Device: "lo"}}
	if err := (Path{}).Possible(l); err == nil || !strings.HasPrefix(err.Error(), "spec.network.device: lo ") {
		t.Errorf("a device that is no card: %v", err)
	}
}

// Lanes of one card share its functions, which come first, and no device of the card's tags is made.
func TestSteps(t *testing.T) {
	paths := []netpath.Path{Path{}}
	var lanes []netpath.Lane
	for i, name := range []string{"a", "b"} {
		l := netpath.Of(fstest.MapFS{}, name, lane.Network{Path: "sriov", Device: "eth1", VLAN: lane.VLAN{Outer: 100},
			Rate: 8e6})
		l.Functions = netpath.PlacedFunctions{Card: "0000:31:00.0", Numbers: []int{i, i + 2}[:2-i], Pool: 7}
		lanes = append(lanes, l)
	}
	if tags, err := netpath.Tags(paths, lanes); err != nil || len(tags) > 0 {
		t.Errorf("tags %v, %v", tags, err)
	}
	if err := netpath.Beside(paths, lanes[0], lanes[1:]); err != nil {
		t.Error(err)
	}
	steps, err := Path{}.Steps(lanes)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		got = append(got, s.Kind+" "+s.Target)
		if op := Ops()[s.Kind]; op != nil {
			if err = op.Check(s); err != nil {
				t.Error(err)
			}
		}
	}
	if want := "vfs 0000:31:00.0, netns isolane-a, vf 0000:31:00.0/0/isolane-a, rate isolane-a:eth0, vf-rate 0000:31:00.0/0/isolane-a, vf 0000:31:00.0/2/isolane-a, netns isolane-b, " +
		"vf 0000:31:00.0/1/isolane-b, rate isolane-b:eth0, vf-rate 0000:31:00.0/1/isolane-b"; strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	var f function
	if err = json.Unmarshal([]byte(steps[2].After), &f); err != nil || f.Lane == nil || f.Settings.MAC != lanes[0].MAC ||
		f.Settings.VLAN != 100 || !f.Settings.Spoof || f.Settings.Trust || steps[4].After != "8" || !steps[4].Optional {
		t.Errorf("%+v, %v", f, err)
	}
	// A card that is gone is no error of those who take lanes back.
	for _, s := range steps {
		if op := Ops()[s.Kind]; op != nil {
			if _, err = op.Read(context.Background(), s); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", s.Kind, err)
			}
		}
	}
	var second function
	if err = json.Unmarshal([]byte(steps[5].After), &second); err != nil || second.Lane.Name != "eth1" || len(second.Lane.Addresses) > 0 ||
		second.Settings.MAC == f.Settings.MAC || second.Settings.VLAN != 100 {
		t.Errorf("%+v, %v", second, err)
	}
	lanes[0].Functions = netpath.PlacedFunctions{}
	if _, err = (Path{}).Steps(lanes); err == nil {
		t.Error("steps of a lane without a function")
	}
}

// A function goes to a workload with its settings, and neither namespace nor device; what is not ready for
// that is named with its remedy.
func TestOwn(t *testing.T) {
	l := netpath.Of(fstest.MapFS{}, "a", lane.Network{Path: "sriov", Device: "eth1", Driver: vfio, Rate: 8e6})
	l.Functions = netpath.PlacedFunctions{Card: "0000:31:00.0", Numbers: []int{3}}
	steps, err := Path{}.Steps([]netpath.Lane{l})
	if err != nil || len(steps) != 2 || !strings.Contains(steps[0].After, `"rate":8`) ||
		steps[1] != (journal.Step{Kind: kindDriver, Target: "0000:31:00.0/3/isolane-a", After: "vfio-pci/vfio-pci"}) {
		t.Errorf("%v, %v", steps, err)
	}
	for _, s := range steps {
		if err = Ops()[s.Kind].Check(s); err != nil {
			t.Error(err)
		}
	}

	const vf, other, dir = "0000:31:10.0", "0000:31:10.2", "sys/bus/pci/devices/"
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink} }
	root := fstest.MapFS{}
	for _, step := range []struct{ file, to, want string }{
		{dir + vf + "/physfn/net", "x", "modprobe vfio-pci"},
		{drivers[1:] + "/vfio-pci/bind", "x", "spec.network.driver: no IOMMU keeps 0000:31:10.0 of eth1 to the lane's memory"},
		{dir + vf + "/iommu_group", "../../kernel/iommu_groups/7", ""},
		{"sys/kernel/iommu_groups/7/devices/" + vf, "x", ""},
		{"sys/kernel/iommu_groups/7/devices/" + other, "x", ""},
		{dir + other + "/driver", "../drivers/vfio-pci", ""},
		{dir + other + "/driver", "../drivers/igbvf", "0000:31:10.0 is in IOMMU group 7 with 0000:31:10.2 (igbvf), which the host uses"},
	} {
		root[step.file] = link(step.to)
		err := possibleOwn(root, "eth1", []string{vf})
		if step.want == "" && err != nil || step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("with %s: got %v, want %q", step.file, err, step.want)
		}
	}
}

// What a lane, or a record of before, says nothing of is no drift: the card keeps as much for a function as it did, or
// as the function may send, and its link is in the state that it was in.
func TestLeftOpen(t *testing.T) {
	for _, c := range []struct {
		record    string
		rate, now uint32
		want      string
		drift     bool
	}{
		{`{"settings":{"mac":""}}`, 0, 500, " min_tx_rate 500", false},
		{`{"settings":{"mac":"","minRate":0}}`, 0, 500, "", true},
		{`{"settings":{"mac":"","minRate":500}}`, 0, 500, " min_tx_rate 500", false},
		{`{"settings":{"mac":"","rate":8}}`, 0, 500, " max_tx_rate 8 min_tx_rate 8", true},
		{`{"settings":{"mac":"","rate":8}}`, 8, 8, " max_tx_rate 8 min_tx_rate 8", false},
		{`{"settings":{"mac":"","limited":true}}`, 8, 500, " max_tx_rate 8 min_tx_rate 8", true},
		{`{"settings":{"mac":"","limited":true}}`, 8, 8, " max_tx_rate 8 min_tx_rate 8", false},
		{`{"settings":{"mac":"","state":"auto"}}`, 8, 8, " state auto min_tx_rate 8", true},
		{`{"settings":{"mac":"","state":"enable","limited":true}}`, 8, 8, " max_tx_rate 8 min_tx_rate 8", false},
	} {
		f, err := parse(c.record)
		now := settings{Rate: c.rate, MinRate: &c.now, State: "enable"}
		want := f.Settings.over(now)
		_, text, _ := strings.Cut(want.String(), "trust off")
		if text = strings.Replace(text, " state enable", "", 1); err != nil || text != c.want || (want != now) != c.drift {
			t.Errorf("%s with %s: %s, %v", c.record, now, want, err)
		}
	}
}

// What the card grants a function comes from the lane, and a card that cannot is said to by the field.
func TestGranted(t *testing.T) {
	l := netpath.Of(fstest.MapFS{}, "a", lane.Network{Path: "sriov", Device: "eth1", VLAN: lane.VLAN{Outer: 100, Inner: 7},
		VF: lane.VF{Trust: true, State: "enable"}})
	l.Functions = netpath.PlacedFunctions{Card: "0000:31:00.0", Numbers: []int{3}}
	steps, err := Path{}.Steps([]netpath.Lane{l})
	if err != nil || len(steps) != 3 {
		t.Fatalf("%v, %v", steps, err)
	}
	f, err := parse(steps[1].After)
	const want = "vlan 100 proto 802.1ad spoofchk on trust on state enable"
	if err != nil || !strings.HasSuffix(f.Settings.String(), want) || f.Lane.Name != below || f.Lane.Addresses != nil {
		t.Errorf("%s, %+v, %v: expected %s", f.Settings, f.Lane, err, want)
	}
	for _, s := range []journal.Step{{Kind: kindFunction, Before: `{"settings":{"mac":""}}`, After: steps[1].After},
		{Kind: kindFunction, Before: steps[1].After, After: `{"settings":{"mac":""}}`}} {
		if _, of, oerr := ofLane(s); oerr != nil || of.Settings != f.Settings {
			t.Errorf("%+v, %v", of, oerr)
		}
	}
	for _, refusal := range []error{unix.EOPNOTSUPP, unix.EPROTONOSUPPORT} {
		err = lacks(refusal, "vf.state", "sets no state of a link")
		if !errors.Is(err, refusal) || !strings.Contains(err.Error(), "driver sets no state of a link: expected no spec.network.vf.state") {
			t.Error(err)
		}
	}
	if err = lacks(unix.EINVAL, "vf.state", ""); err.Error() != unix.EINVAL.Error() {
		t.Error(err)
	}
}

// Where the card's driver lets the vectors of a function be set, it has one more than queues; what a crash leaves
// without a driver is put back.
func TestVectors(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	const bus, pf, vf = "/sys/bus/pci", "devices/0000:31:00.0/", "devices/0000:31:10.0/"
	if _, err := os.Stat(bus); err != nil {
		t.Skip("skipped: ", err)
	}
	runtime.LockOSThread() // for good: the thread ends with the test
	dir := t.TempDir()
	config := make([]byte, 256)
	config[0x34], config[0x40], config[0x41] = 0x40, 0x10, 0x70               // PCI Express, then
	config[0x70], config[0x72], config[0x73], config[0x71] = 0x11, 8, 0x80, 0 // MSI-X, enabled, of nine vectors
	write := func(name, text string) error {
		return errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755),
			os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	driver := filepath.Join(dir, vf, "driver")
	err := errors.Join(write(pf+totalVectors, "64\n"), write(vf+"config", string(config)), write(vf+"sriov_vf_msix_count", ""),
		write(vf+"driver_override", "(null)\n"), write("drivers/x/unbind", ""), write("drivers_probe", ""),
		os.Symlink("../0000:31:10.0", filepath.Join(dir, pf, "virtfn0")), os.Symlink("../../drivers/x", driver),
		unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(dir, bus, "", unix.MS_BIND, ""))
	if err != nil {
		t.Fatal(err)
	}
	l := netpath.Of(fstest.MapFS{}, "a", lane.Network{Path: "sriov", Device: "eth1", Queues: 4})
	l.Functions, l.CPUs = netpath.PlacedFunctions{Card: "0000:31:00.0", Numbers: []int{0}}, cpuset.Of(1)
	steps, err := Path{}.Steps([]netpath.Lane{l})
	if err != nil || len(steps) != 4 || steps[0] != (journal.Step{Kind: kindVectors, Target: "0000:31:00.0/0/isolane-a", After: "5"}) {
		t.Fatalf("%v, %v", steps, err)
	}
	l.Queues = 64
	if err = (card{address: "0000:31:00.0"}).possibleQueues(l); err == nil || !strings.HasPrefix(err.Error(), "spec.network.queues: 64: they need 65 interrupts") {
		t.Error(err)
	}
	op, s := vectorsOp{}, steps[0]
	if err = op.Check(s); err != nil {
		t.Error(err)
	}
	if now, rerr := op.Read(t.Context(), s); now != "9" || rerr != nil {
		t.Errorf("before: %q, %v", now, rerr)
	}
	if err = op.Write(t.Context(), s, s.After); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"drivers/x/unbind": "0000:31:10.0", "drivers_probe": "0000:31:10.0", vf + "sriov_vf_msix_count": "5"} {
		if got, rerr := os.ReadFile(filepath.Join(bus, name)); string(got) != want || rerr != nil {
			t.Errorf("%s: %q, %v, expected %s", name, got, rerr, want)
		}
	}
	if err = os.Remove(driver); err != nil {
		t.Fatal(err)
	}
	if now, rerr := op.Read(t.Context(), s); now != "9"+idle || rerr != nil || !op.MayOverwrite(s, now) || op.MayOverwrite(s, "9") {
		t.Errorf("without a driver: %q, %v", now, rerr)
	}
	config[0x34] = 0x41 // the list of capabilities is a ring
	config[0x41] = 0x40
	for _, c := range [][]byte{config, config[:64], config[:0x72], nil} {
		if n, terr := tableSize(c); terr == nil {
			t.Errorf("%d vectors without a table", n)
		}
	}
}

// A card by which the host has its default route, itself or by a device on it, in whatever table, gets no functions:
// its link may go down. Whether the lane has a tag does not matter.
func TestPoolKeepsRoute(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	ip := func(args string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	ip("link add eth7 type veth peer name eth8")
	ip("link add br7 type bridge")
	ip("link set eth7 master br7")
	for _, d := range []string{"eth7", "eth8", "br7"} {
		ip("link set " + d + " up")
	}
	for _, c := range []struct{ route, want string }{
		{"default dev eth7", "eth7 carries the host's route \"default\" of eth7"},
		{"default dev eth7 table 300", "eth7 carries the host's route \"default table 300\" of eth7"},
		{"default dev br7", "eth7 carries the host's route \"default\" of br7"},
		{"default dev eth8", ""},
		{"198.18.200.0/24 dev eth7", ""},
	} {
		ip("route add " + c.route)
		for _, tag := range []int{0, 100} {
			l := netpath.Of(fstest.MapFS{}, "a", lane.Network{Path: "sriov", Device: "eth7", VLAN: lane.VLAN{Outer: tag}})
			err := card{device: "eth7"}.possiblePool(l)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s, tag %d: %v, expected %q", c.route, tag, err, c.want)
			}
			l.TakeFromHost = true
			if err = (card{device: "eth7"}).possiblePool(l); err != nil {
				t.Errorf("%s, tag %d, taken from the host: %v", c.route, tag, err)
			}
		}
		ip("route del " + c.route)
	}
}

// A device that was a lane's has the MTU that it had, and groups as it had them, where that is recorded: on after a
// tap, off where its driver has made it anew.
func TestDevicePutBack(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	h, err := netlink.NewHandle()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth7"
	if err = h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth8"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		now  bool
		had  *bool
		want bool
	}{
		{true, new(false), false}, {true, new(true), true}, {false, new(true), true}, {false, nil, false}, {true, nil, true},
	} {
		set := h.LinkSetAllmulticastOff
		if c.now {
			set = h.LinkSetAllmulticastOn
		}
		var l netlink.Link
		if l, err = h.LinkByName("eth7"); err == nil {
			err = errors.Join(h.LinkSetMTU(l, 9000), set(l))
		}
		if err == nil {
			err = (&at{function: function{Name: "eth7"}}).putBackDevice(h, function{MTU: 1400, AllMulticast: c.had})
		}
		if err == nil {
			l, err = h.LinkByName("eth7")
		}
		if err != nil || l.Attrs().MTU != 1400 || allMulticast(l) != c.want {
			t.Errorf("%+v: %+v, %v", c, l, err)
		}
	}
}

// A journal is believed only where isolane can have written it.
func TestCheck(t *testing.T) {
	value := `{"lane":{"netns":"isolane-a","name":"eth0"},"settings":{}}`
	for _, s := range []journal.Step{
		{Kind: kindPool, Target: "../../x", After: "7"},
		{Kind: kindPool, Target: "0000:31:00.0", After: "7 "},
		{Kind: kindFunction, Target: "0000:31:00.0/0/..", After: value},
		{Kind: kindFunction, Target: "0000:31:00.0/x/isolane-a", After: value},
		{Kind: kindFunction, Target: "0000:31:00.0/0/isolane-b", After: value},
		{Kind: kindFunction, Target: "0000:31:00.0/0/isolane-a", After: `{}`},
		{Kind: kindDriver, Target: "0000:31:00.0/0/../x", After: "vfio-pci/vfio-pci"},
		{Kind: kindDriver, Target: "0000:31:00.0/0/isolane-a", After: "../x/"},
		{Kind: kindDriver, Target: "0000:31:00.0/0/isolane-a", Before: "a/b/c", After: "vfio-pci/vfio-pci"},
		{Kind: kindFunction, Target: "0000:31:00.0/0/isolane-a", After: strings.Replace(value, "eth0", "a/b", 1)},
	} {
		if err := Ops()[s.Kind].Check(s); err == nil {
			t.Errorf("%s is let through", s)
		}
	}
}
