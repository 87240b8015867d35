package netpath

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/lane"
)

// An answer that came in time is found also where this process got its CPU only after it.
func TestAnswerReadLate(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range ends {
		t.Cleanup(func() { _ = unix.Close(fd) })
	}
	s, address := segment{fd: ends[0]}, lane.Address{Prefix: netip.MustParsePrefix("198.18.7.9/24")}
	late := time.Now().Add(-time.Millisecond)
	if who, _, aerr := s.answer(t.Context(), late, []lane.Address{address}); who.IsValid() || aerr != nil {
		t.Errorf("without an answer: %v, %v", who, aerr)
	}
	mac := []byte{2, 0x15, 7, 0, 0, 1}
	frame := slices.Concat(make([]byte, 6), mac, []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 2}, mac, address.Addr().AsSlice(), make([]byte, 20))
	if _, err = unix.Write(ends[1], frame); err != nil {
		t.Fatal(err)
	}
	if who, from, aerr := s.answer(t.Context(), late, []lane.Address{address}); who != address.Addr() || !slices.Equal(from, mac) || aerr != nil {
		t.Errorf("answered: %v by %v, %v", who, from, aerr)
	}
}

// The host is on a lane's segment by its VLAN of the lane's tags alone, whatever lies below and above that.
func TestDevicesOfTheHost(t *testing.T) {
	attrs := func(index int, name string, below, of int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Index: index, Name: name, ParentIndex: below, MasterIndex: of}
	}
	vlan := func(a netlink.LinkAttrs, tag int, protocol netlink.VlanProtocol) netlink.Link {
		return &netlink.Vlan{LinkAttrs: a, VlanId: tag, VlanProtocol: protocol}
	}
	links := []netlink.Link{
		&netlink.Device{LinkAttrs: attrs(1, "eth0", 0, 2)}, &netlink.Bridge{LinkAttrs: attrs(2, "br0", 0, 0)},
		vlan(attrs(3, "br0.100", 2, 4), 100, netlink.VLAN_PROTOCOL_8021Q), &netlink.Bridge{LinkAttrs: attrs(4, "br100", 0, 0)},
		vlan(attrs(5, "eth0.s100", 1, 0), 100, netlink.VLAN_PROTOCOL_8021AD), vlan(attrs(6, "eth0.100.7", 5, 0), 7, netlink.VLAN_PROTOCOL_8021Q),
		vlan(attrs(7, "eth0.101", 1, 0), 101, netlink.VLAN_PROTOCOL_8021Q),
		&netlink.Veth{LinkAttrs: attrs(8, "veth", 1, 0)}, // the other end is elsewhere, with that number
	}
	for tags, want := range map[lane.VLAN]string{
		{}:                     "[eth0 br0]",
		{Outer: 100}:           "[br0.100 br100]",
		{Outer: 100, Inner: 7}: "[eth0.100.7]",
		{Outer: 7}:             "[]",
	} {
		names := []string{}
		for _, d := range (Lane{Network: lane.Network{Device: "eth0", VLAN: tags}}).ofHost(links) {
			names = append(names, d.Attrs().Name)
		}
		if got := fmt.Sprint(names); got != want {
			t.Errorf("%+v: %s, expected %s", tags, got, want)
		}
	}
}
