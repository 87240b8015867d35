package netpath_test

import (
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

// A pair may have both ends on the host, which say nothing themselves; one takes frames for one more address, on the
// other lies a device with two tags inside a namespace. All is gone after undo.
func TestPair(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	const one, other, outer, inner, netns = "isl-test-p", "isl-test-q", "isl-test-q.s", "isl-test-t", "isolane-test-tags"
	var steps []journal.Step
	add := func(name string, l netdev.Link) {
		s, err := netdev.LinkStep(name, l)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, s)
	}
	add(one, netdev.Link{Type: netdev.Veth, Peer: &netdev.Peer{Name: other, MAC: "02:15:07:00:02:01", MTU: 1508}})
	lacks := netpath.LacksTags(host.Live())
	if lacks == nil {
		add(outer, netdev.Link{Type: netdev.VLAN, Parent: other, Tag: 100, Service: true})
		steps = append(steps, journal.Step{Kind: netdev.KindNamespace, Target: netns, After: netdev.Present})
		add(inner, netdev.Link{Type: netdev.VLAN, Parent: outer, Tag: 7,
			Peer: &netdev.Peer{Netns: netns, Name: "eth0", MAC: "02:15:07:00:02:02", MTU: 1500}})
	}
	told := netdev.UnicastStep(one, "02:15:07:00:02:03") // as a card is of a lane beside its functions
	steps = append(steps, told)
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = j.Apply(t.Context(), steps); err != nil {
		t.Error(err)
	}
	for _, name := range []string{one, other} {
		d, derr := net.InterfaceByName(name)
		if derr != nil {
			t.Fatal(derr)
		}
		addresses, aerr := d.Addrs()
		if aerr != nil || len(addresses) > 0 || d.MTU != 1508 || d.Flags&net.FlagUp == 0 {
			t.Errorf("%s: %v, addresses %v, MTU %d, %s", name, aerr, addresses, d.MTU, d.Flags)
		}
	}
	for _, s := range steps {
		if now, rerr := ops()[s.Kind].Read(t.Context(), s); rerr != nil || now != s.After {
			t.Errorf("%s: %q, %v", s, now, rerr)
		}
	}
	_, err = j.UndoWhere(t.Context(), func(s journal.Step) bool { return s.Kind == told.Kind })
	if now, rerr := ops()[told.Kind].Read(t.Context(), told); err != nil || rerr != nil || now != "" || !present(one) {
		t.Errorf("taken back alone: %q, %v, %v", now, err, rerr)
	}
	if err = j.Undo(t.Context()); err != nil {
		t.Error(err)
	}
	for _, name := range []string{one, other, outer, netns} {
		if present(name) {
			t.Errorf("%s is still there", name)
		}
	}
	if lacks != nil {
		t.Skip("skipped: without tags: ", lacks)
	}
}

// The wire without a host between is a pair whose ends are both in namespaces: frames of the MTU are joined at either, and
// all is gone after undo. What is not as it was made is told.
func TestDirect(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	w := netpath.Wire{Uplink: "isl-test-w", Netns: "isolane-test-client", MAC: "02:15:07:00:03:01",
		Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.9.1/24")}}
	l := netpath.Lane{Name: "test-direct", MAC: "02:15:07:00:03:02"}
	l.Addresses = []lane.Address{{Prefix: netip.MustParsePrefix("198.18.9.2/24")}}
	steps, err := w.Direct(l)
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = j.Apply(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	if err = w.Reach(t.Context(), l.Addresses[0].Addr()); err != nil {
		t.Error(err)
	}
	if out, rerr := exec.CommandContext(t.Context(), "ip", "-n", w.Netns, "neigh", "show", "198.18.9.2").Output(); rerr != nil ||
		!strings.Contains(string(out), l.MAC) {
		t.Errorf("the client has heard of %q, %v", out, rerr)
	}
	for _, netns := range []string{w.Netns, l.Netns()} {
		gro, gerr := netdev.Offload(netns, netpath.Device, unix.ETHTOOL_GGRO, 0)
		tso, terr := netdev.Offload(netns, netpath.Device, unix.ETHTOOL_GTSO, 0)
		if gro != 1 || tso != 0 || gerr != nil || terr != nil {
			t.Errorf("%s: GRO %d, %v, TSO %d, %v", netns, gro, gerr, tso, terr)
		}
	}
	link := steps[len(steps)-1]
	op := ops()[link.Kind]
	if is, _, ferr := j.InForce(t.Context(), link); !is || ferr != nil {
		t.Errorf("in force: %v, %v", is, ferr)
	}
	if out, derr := exec.CommandContext(t.Context(), "ip", "-n", w.Netns, "link", "set", "eth0", "down").CombinedOutput(); derr != nil {
		t.Errorf("%v: %s", derr, out)
	}
	if is, _, ferr := j.InForce(t.Context(), link); is || ferr != nil {
		t.Errorf("the client's end is down, in force: %v, %v", is, ferr)
	}
	if err = j.Undo(t.Context()); err != nil {
		t.Error(err)
	}
	if now, rerr := op.Read(t.Context(), link); now != "" || rerr != nil {
		t.Errorf("after undo: %q, %v", now, rerr)
	}
	for _, name := range []string{w.Netns, l.Netns(), w.Uplink} {
		if present(name) {
			t.Errorf("%s is still there", name)
		}
	}
}

// A device takes all frames while a step says so. That somebody else has asked for it stays after undo, and what a packet
// socket asks for is not taken for that.
func TestPromiscuous(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	alone(t)
	const one, other = "isl-test-p", "isl-test-q"
	ip(t, "link add "+one+" type veth peer name "+other)
	ip(t, "link set "+other+" promisc on")
	d, err := net.InterfaceByName(one)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	mreq := unix.PacketMreq{Ifindex: int32(d.Index), Type: unix.PACKET_MR_PROMISC}
	if err = unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &mreq); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
	if err != nil {
		t.Fatal(err)
	}
	steps := []journal.Step{netdev.PromiscuousStep(one), netdev.PromiscuousStep(other)}
	expect := func(when string, want ...string) {
		for i, s := range steps {
			if now, rerr := ops()[s.Kind].Read(t.Context(), s); rerr != nil || now != want[i] {
				t.Errorf("%s, %s: %q, %v", when, s.Target, now, rerr)
			}
		}
	}
	expect("before", "", netdev.Present)
	if _, err = j.Apply(t.Context(), steps); err != nil {
		t.Error(err)
	}
	expect("in force", netdev.Present, netdev.Present)
	if err = j.Undo(t.Context()); err != nil {
		t.Error(err)
	}
	expect("taken back", "", netdev.Present)
}
