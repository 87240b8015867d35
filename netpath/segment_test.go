package netpath_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

// check is what a lane is told of its segment.
func check(ctx context.Context, l netpath.Lane, addresses []lane.Address, leaving []string) error {
	answer, end := l.CheckSegment(addresses, leaving)
	defer end()
	return answer(ctx)
}

// The segment says which addresses it has, by ARP and neighbour discovery; with tags, which it has behind these.
func TestAddressInUseOnTheSegment(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	wire, dir := testWire(), filepath.Join(t.TempDir(), "run")
	steps, err := wire.Steps(false)
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(dir, "test", ops())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err = j.Close(); err == nil {
			_, _, err = journal.Recover(context.Background(), dir, ops())
		}
		if err != nil {
			t.Error(err)
		}
	}()
	if _, err = j.Apply(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	behind := lane.VLAN{Outer: 100, Inner: 7}
	tagged := netip.MustParseAddr("198.18.7.9")
	answer(t, wire.Netns, tagged, []byte{0x88, 0xa8, 0x20, 100, 0x81, 0, 0, 7}) // with a priority
	for _, c := range []struct {
		vlan lane.VLAN
		addr netip.Addr
		used bool
	}{
		{lane.VLAN{}, wire.Addresses[0].Addr(), true},
		{lane.VLAN{}, wire.Addresses[1].Addr(), true},
		{lane.VLAN{}, addressesOf(2)[0], false},
		{lane.VLAN{}, addressesOf(2)[1], false},
		{lane.VLAN{}, tagged, false},
		{behind, tagged, true},
		{behind, wire.Addresses[0].Addr(), false},
		{lane.VLAN{Outer: 100, Inner: 8}, tagged, false},
		{lane.VLAN{Outer: 100}, tagged, false},
	} {
		l := netpath.Of(fstest.MapFS{}, "test-app", lane.Network{Path: "bridge", Device: wire.Uplink, VLAN: c.vlan})
		err = check(t.Context(), l, []lane.Address{{Prefix: netip.PrefixFrom(c.addr, c.addr.BitLen())}}, nil)
		if c.used != (err != nil) || err != nil && !strings.Contains(err.Error(),
			c.addr.String()+" is in use on the segment of "+wire.Uplink+", by 02:15:07:00:00:01") {
			t.Errorf("%s with tags %v: %v", c.addr, c.vlan, err)
		}
	}
	for _, path := range []string{"macvlan", "express", "sriov", "ovs", "ovs-dpdk", "vpp"} {
		l := netpath.Of(fstest.MapFS{}, "test-app", lane.Network{Path: path, Device: wire.Uplink})
		for _, a := range wire.Addresses {
			if err = check(t.Context(), l, []lane.Address{{Prefix: a}}, nil); !strings.HasPrefix(fmt.Sprint(err), "spec.network.addresses: "+a.Addr().String()+" is in use") {
				t.Errorf("%s by path %s: %v", a, path, err)
			}
		}
	}
	l := netpath.Of(fstest.MapFS{}, "test-app", lane.Network{Path: "bridge", Device: wire.Uplink})
	for mac, free := range map[string]bool{wire.MAC: true, "02:15:07:00:00:02": false} {
		for _, a := range wire.Addresses {
			err = check(t.Context(), l, []lane.Address{{Prefix: a}}, []string{mac})
			if free != (err == nil) {
				t.Errorf("%s, which %s is to leave: %v", a.Addr(), mac, err)
			}
		}
	}
	// A lane of the same name on a host with the same machine-id has its MAC address, and other addresses.
	for strings.Contains(command(t, "ip", "-n", wire.Netns, "-6", "address", "show", "tentative"), "fe80:") {
		<-time.After(50 * time.Millisecond)
	}
	for mac, used := range map[string]bool{wire.MAC: true, "02:15:07:00:00:02": false} {
		l.MAC = mac
		err = check(t.Context(), l, l.Asked(), nil)
		if used != (err != nil) || err != nil && !strings.HasPrefix(err.Error(), "metadata.name: somebody on the segment of "+wire.Uplink+" has the MAC address "+mac) {
			t.Errorf("of MAC address %s: %v", mac, err)
		}
	}
}

// The host itself answers nobody who asks by its own device: what it has there is known without.
func TestAddressOfTheHost(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, c := range []struct {
		name  string
		make  []string
		vlan  lane.VLAN
		where string // the address is, "" where the lane may have it too
	}{
		{"on the device", []string{"addr add 198.18.7.9/24 dev isl-test-r"}, lane.VLAN{}, "isl-test-r"},
		{"on the device, with a tag", []string{"addr add 198.18.7.9/24 dev isl-test-r"}, lane.VLAN{Outer: 100}, ""},
		{"elsewhere", []string{"addr add 198.18.7.9/24 dev isl-test-q"}, lane.VLAN{}, ""},
		{"on its bridge", []string{"link add isl-test-b type bridge", "link set isl-test-r master isl-test-b",
			"addr add 198.18.7.9/24 dev isl-test-b"}, lane.VLAN{}, "isl-test-b"},
		{"on a device like a lane's", []string{"link add isl-test-m link isl-test-r type macvlan mode bridge",
			"addr add 198.18.7.9/24 dev isl-test-m"}, lane.VLAN{}, "isl-test-m"},
		{"behind a tag", []string{"link add isl-test-v link isl-test-r type vlan id 100",
			"addr add 198.18.7.9/24 dev isl-test-v"}, lane.VLAN{Outer: 100}, "isl-test-v"},
		{"behind another tag", []string{"link add isl-test-v link isl-test-r type vlan id 101",
			"addr add 198.18.7.9/24 dev isl-test-v"}, lane.VLAN{Outer: 100}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if lacks := netpath.LacksTags(host.Live()); lacks != nil && strings.Contains(c.make[0], " vlan ") {
				t.Skip("skipped: ", lacks)
			}
			alone(t)
			ip(t, "link add isl-test-r type veth peer name isl-test-q")
			for _, args := range c.make {
				ip(t, args)
			}
			l := netpath.Of(fstest.MapFS{}, "a", lane.Network{Path: "sriov", Device: "isl-test-r", VLAN: c.vlan})
			err := check(t.Context(), l, []lane.Address{{Prefix: netip.MustParsePrefix("198.18.7.9/24")}}, nil)
			if (err == nil) != (c.where == "") || err != nil && !strings.Contains(err.Error(),
				"spec.network.addresses: the host has 198.18.7.9 itself, on "+c.where+": expected a free one") {
				t.Error(err)
			}
		})
	}
}

// answer says from a namespace, whatever is asked there, that it has an address behind tags.
func answer(t *testing.T, netns string, addr netip.Addr, tags []byte) {
	t.Helper()
	mac := []byte{2, 0x15, 7, 0, 0, 1}
	frame := bytes.Join([][]byte{bytes.Repeat([]byte{0xff}, 6), mac, tags, {8, 6, 0, 1, 8, 0, 6, 4, 0, 2}, mac,
		addr.AsSlice(), make([]byte, 20)}, nil)
	var fd int
	in(t, netns, func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		d, err := net.InterfaceByName(netpath.Device)
		if err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL<<8) | unix.ETH_P_ALL>>8 // in network order
		return errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50000}),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: d.Index}))
	})
	done := make(chan struct{})
	t.Cleanup(func() {
		<-done
		_ = unix.Close(fd)
	})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for t.Context().Err() == nil {
			_, from, _ := unix.Recvfrom(fd, buf, 0)
			if l, is := from.(*unix.SockaddrLinklayer); is && l.Pkttype != unix.PACKET_OUTGOING {
				_, _ = unix.Write(fd, frame)
			}
		}
	}()
}
