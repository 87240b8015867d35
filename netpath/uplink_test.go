package netpath_test

import (
	"context"
	"io/fs"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
)

// A device that carries routes of the host cannot become a port of a bridge; those that each device has do not count.
func TestUplinkWithRoute(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	const name = "isl-test-r"
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %q: %v: %s", args, err, out)
		}
	}
	run("link", "add", name, "type", "veth", "peer", "name", "isl-test-q")
	defer run("link", "del", name)
	run("link", "set", name, "up")
	run("link", "set", "isl-test-q", "up")
	for _, c := range []struct{ route, want string }{
		{"", ""},
		{"198.18.200.0/24", "carries the host's route \"198.18.200.0/24\""},
		{"2001:db8:200::/64 via fe80::1", "carries the host's route \"2001:db8:200::/64 via fe80::1\""},
	} {
		if args := strings.Fields("route add " + c.route + " dev " + name); c.route != "" {
			run(args...)
		}
		u, err := netpath.Of(fstest.MapFS{}, "a", lane.Network{Device: name}).CheckedUplink()
		if err == nil {
			err = u.CheckPort("", "")
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("route %q: %v, expected %q", c.route, err, c.want)
		}
		if c.route != "" {
			run(append([]string{"route", "del"}, strings.Fields(c.route+" dev "+name)...)...)
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
