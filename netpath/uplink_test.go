package netpath_test

import (
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/drivers"
	"isolane.dev/isolane/netpath/macvlan"
)

// ip runs ip(8) in the namespace of the test.
func ip(t *testing.T, args string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

// An uplink that carries nothing is told, and what to do where that is the host's matter. What a switch in user space may
// have itself is not known, nor what a PCI address names, and a bridge of Open vSwitch carries frames with its own device down.
func TestUplinkState(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	alone(t)
	ip(t, "link add eth1 type veth peer name far1")
	for _, c := range []struct{ command, path, device, want, remedy string }{
		{"", "bridge", "", "", ""},
		{"", "bridge", "eth9", "gone", "isolane apply when it is back"},
		{"", "sriov", "0000:3b:00.0", "", ""},
		{"", "ovs", "eth9", "gone", "isolane apply"},
		{"", "ovs-dpdk", "eth9", "", ""},
		{"", "vpp", "eth9", "", ""},
		{"", "macvlan", "eth1", "down", "ip link set eth1 up"},
		{"link set eth1 up", "macvlan", "eth1", "no carrier", ""},
		{"link set far1 up", "macvlan", "eth1", "", ""},
		{"link property add dev eth1 altname uplink", "express", "uplink", "", ""},
		{"link set far1 down", "ovs", "eth1", "no carrier", ""},
		{"link set eth1 down", "vpp", "eth1", "down", "ip link set eth1 up"},
		{"tuntap add br-ex mode tap", "ovs", "br-ex", "", ""},
		{"", "bridge", "br-ex", "down", "ip link set br-ex up"},
		{"link del eth1", "express", "eth1", "gone", "or isolane release"},
	} {
		if c.command != "" {
			ip(t, c.command)
		}
		on := netpath.Of(fstest.MapFS{}, "a", lane.Network{Path: c.path, Device: c.device})
		state, err := netpath.UplinkState(drivers.Paths(), on)
		remedy := netpath.Remedy(state, c.device)
		if err != nil || state != c.want || !strings.Contains(remedy, c.remedy) || (remedy == "") != (c.remedy == "") {
			t.Errorf("%+v: %q, %q, %v", c, state, remedy, err)
		}
	}
}

// A device that carries routes of the host cannot become a port of a bridge, also where others carry them too; those
// that each device has do not count.
func TestUplinkWithRoute(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	alone(t)
	ip(t, "link add eth1 type veth peer name eth2")
	ip(t, "link set eth1 up")
	ip(t, "link set eth2 up")
	for _, c := range []struct{ route, want string }{
		{"", ""},
		{"198.18.200.0/24 dev eth1", "carries the host's route \"198.18.200.0/24\""},
		{"2001:db8:200::/64 via fe80::1 dev eth1", "carries the host's route \"2001:db8:200::/64 via fe80::1\""},
		{"default nexthop dev eth2 nexthop dev eth1", "carries the host's route \"default\""},
		{"2001:db8:200::/64 nexthop via fe80::2 dev eth2 nexthop via fe80::1 dev eth1",
			"carries the host's route \"2001:db8:200::/64 via fe80::1\""},
		{"198.18.200.0/24 dev eth1 table 300", "carries the host's route \"198.18.200.0/24 table 300\""},
		{"default dev eth2", ""},
		{"default dev eth1", "carries the host's only IPv4 default route, which ends when it is a port of a bridge"},
		{"default via fe80::1 dev eth1", "carries the host's only IPv6 default route (via fe80::1), which ends"},
	} {
		if c.route != "" {
			ip(t, "route add "+c.route)
		}
		u, err := netpath.Of(fstest.MapFS{}, "a", lane.Network{Device: "eth1"}).CheckedUplink()
		if err == nil {
			err = u.CheckPort(lane.Network{}, "", "")
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("route %q: %v, expected %q", c.route, err, c.want)
		}
		if c.route != "" {
			ip(t, "route del "+c.route)
		}
	}
}

// The kernel gives the frames of a device to one other only: what there is on it already is told before anything changes,
// also to auto; a macvlan bears others of its kind.
func TestUplinkShared(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, c := range []struct {
		kind    string
		macvlan bool // is possible beside it
	}{{"macvlan", true}, {"macvtap", true}, {"ipvlan", false}} {
		t.Run(c.kind, func(t *testing.T) {
			alone(t)
			ip(t, "link add eth1 type veth peer name eth2")
			ip(t, "link set eth1 up")
			add := exec.CommandContext(t.Context(), "ip", "link", "add", "on1", "link", "eth1", "type", c.kind)
			if out, err := add.CombinedOutput(); err != nil {
				t.Skipf("skipped: this kernel has no %s: %s", c.kind, out)
			}
			l := netpath.Of(fstest.MapFS{}, "a", lane.Network{Device: "eth1"})
			for p, possible := range map[netpath.Path]bool{bridge.Path{}: false, bridge.Path{GRO: true}: false, macvlan.Path{}: c.macvlan} {
				err := p.Possible(l)
				want := "spec.network.device: eth1 gives its frames to on1, a device of type " + c.kind + " on it: expected one without such"
				if (err == nil) != possible || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("path %s: %v", p.Name(), err)
				}
			}
			j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
			if err != nil {
				t.Fatal(err)
			}
			steps, err := bridge.Path{}.Steps([]netpath.Lane{l})
			if err == nil {
				_, err = j.Apply(t.Context(), steps)
			}
			if err == nil || !strings.Contains(err.Error(), "eth1 gives its frames to another device, such as a macvlan") {
				t.Errorf("put in force nevertheless: %v", err)
			}
			if err = errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A device by an alternative name is the same uplink as by its own, also where lanes of before have made a bridge or the
// device of its tag by that name.
func TestDeviceByAlternativeName(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	alone(t)
	ip(t, "link add isl-test-r type veth peer name isl-test-q")
	paths := []netpath.Path{macvlan.Path{}, bridge.Path{}}
	for _, name := range []string{"isl-test-alt", "isl-test-alternative-name"} {
		if out, err := exec.CommandContext(t.Context(), "ip", "link", "property", "add", "dev", "isl-test-r", "altname",
			name).CombinedOutput(); err != nil {
			t.Skipf("skipped: no alternative names: %s", out)
		}
		l := netpath.Of(host.Live(), "a", lane.Network{Path: "macvlan", Device: name})
		on := netpath.Of(host.Live(), "b", lane.Network{Path: "bridge", Device: "isl-test-r"})
		if err := netpath.Beside(paths, l, []netpath.Lane{on}); l.Uplink != "isl-test-r" || err == nil {
			t.Errorf("%s: uplink %s, %v", name, l.Uplink, err)
		}
		ip(t, "link set isl-test-r up")
		if netpath.LacksTags(host.Live()) == nil {
			v := lane.VLAN{Outer: 100}
			before := netpath.Of(fstest.MapFS{}, "a", lane.Network{Device: name, VLAN: v}).Uplink
			ip(t, "link add "+before+" link isl-test-r type vlan id 100")
			if err := netpath.FreeTags(bridge.Path{}, netpath.Of(fstest.MapFS{}, "a", lane.Network{Device: "isl-test-r", VLAN: v})); err != nil {
				t.Error(err)
			}
			ip(t, "link del "+before)
		}
		for master, want := range map[string]bool{netpath.Bridge(name): true, "isl-test-m": false} {
			ip(t, "link add "+master+" type bridge")
			ip(t, "link set isl-test-r master "+master)
			for _, p := range paths {
				if err := p.Possible(on); (err == nil) != want {
					t.Errorf("%s as a port of %s: %v", p.Name(), master, err)
				}
			}
			ip(t, "link del "+master)
		}
	}
}

// Whether an uplink is a bridge is not guessed: where the kernel does not say it there are no steps. One that is gone
// is drift.
func TestStepsWithoutAnswer(t *testing.T) {
	for device, want := range map[string]bool{"isl-test-none": true, strings.Repeat("x", 200): false} {
		l := netpath.Of(fstest.MapFS{}, "a", lane.Network{Device: device})
		if steps, err := (bridge.Path{}).Steps([]netpath.Lane{l}); (err == nil) != want {
			t.Errorf("%s: %v, %v", device, steps, err)
		}
	}
}

// A lane that says no MTU has that of a veth where the path does not take the uplink's.
func TestUplinkWithSmallMTU(t *testing.T) {
	u := netpath.Uplink{Name: "eth1", Ethernet: true, Up: true, MTU: 1460}
	for mtu, want := range map[int]string{0: "a lane without one has 1500 with path ovs, more than the 1460 of eth1: expected mtu 1460 or less",
		1461: "spec.network.mtu: 1461 is more than the 1460 of eth1", 1460: ""} {
		err := u.CheckVeth(lane.Network{Path: "ovs", MTU: mtu})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("mtu %d: %v, expected %q", mtu, err, want)
		}
	}
}

// Lanes whose names have one digest, and so one MAC address, are not on one host.
func TestOneAddressEach(t *testing.T) {
	n := netpath.Networks{Root: fstest.MapFS{}, Paths: []netpath.Path{bridge.Path{}}}
	n.Add("lane2162789", lane.Network{Path: "bridge"})
	err := n.Possible("lane2379192", lane.Network{Path: "bridge"})
	if err == nil || !strings.Contains(err.Error(), "lane2379192 and lane lane2162789 would have one MAC address") {
		t.Error(err)
	}
	if err = n.Possible("lane2379193", lane.Network{Path: "bridge"}); err != nil {
		t.Error(err)
	}
}

// A device by its PCI address is the network device of that function, also below virtio.
func TestDeviceByAddress(t *testing.T) {
	root := fstest.MapFS{"sys/bus/pci/devices/0000:00:03.0/virtio2/net/eth1": &fstest.MapFile{Mode: fs.ModeDir},
		"sys/bus/pci/devices/0000:17:00.0/net/ens1f0": &fstest.MapFile{Mode: fs.ModeDir}}
	for device, want := range map[string]string{"0000:00:03.0": "eth1", "0000:17:00.0": "ens1f0", "0000:18:00.0": "0000:18:00.0",
		"eth2": "eth2", "": ""} {
		if l := netpath.Of(root, "a", lane.Network{Path: "bridge", Device: device}); l.Device != want || l.Uplink != want {
			t.Errorf("%s: device %q, uplink %q", device, l.Device, l.Uplink)
		}
	}
}
