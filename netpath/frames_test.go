package netpath_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/netpath/macvlan"
)

// frame is one that a lane or the network outside sends, and who gets it by which path: "wire", lanes "a" and "b",
// and "host", the stack of the host where a bridge hands frames to it.
type frame struct {
	name, from, to string
	source         string // MAC address: of "a", "b", "wire" or in hexadecimal; "" is the sender's
	text           string // what follows, in hexadecimal
	times          int    // 0 is 1

	bridge, macvlan, express string
}

const (
	nobody = "021500000001" // a MAC address, as the next two
	all    = "ffffffffffff"
	group  = "01005e010203"
	mark   = "isl" // before the number of a frame
	all6   = "ff020000000000000000000000000001"
	own4   = "c6120702"
	other4 = "c6120709"
	wire4  = "c6120701"
)

// ipv4 is a packet to a group that nobody has joined, so that no stack answers it. Its length and checksum are right:
// a bridge with br_netfilter drops others.
func ipv4(source, fragment string, length int) string {
	const size = 20 + len(mark) + 8
	head := fmt.Sprintf("4500%04x0001%s01fd0000%sef010203", size+length, fragment, source)
	raw, _ := hex.DecodeString(head)
	var sum uint32
	for ; len(raw) > 0; raw = raw[2:] {
		sum += uint32(binary.BigEndian.Uint16(raw))
	}
	return "0800" + head[:20] + fmt.Sprintf("%04x", ^uint16(sum>>16+sum&0xffff)) + head[24:] + strings.Repeat("00", length)
}

// ipv6 is one without anything behind its header (next header 59).
func ipv6(last byte) string {
	return "86dd" + fmt.Sprintf("60000000%04x3b01fd1507000000000000000000000000%02x", len(mark)+8, last) + all6
}

func arp(mac, ip string) string {
	return "0806" + "0001080006040001" + mac + ip + "000000000000" + "c61207c8" // nobody's
}

// crafted are frames that a lane may and may not send, and what a network may send.
func crafted(mac map[string]string) []frame {
	const out = "b host wire"
	a := mac["a"]
	return []frame{
		{"IPv4 to the wire", "a", mac["wire"], "", ipv4(own4, "0000", 0), 0, "wire", "wire", "wire"},
		{"IPv4 to the other lane", "a", mac["b"], "", ipv4(own4, "0000", 0), 0, "b", "b", "b"},
		{"IPv6 to all", "a", "333300000001", "", ipv6(2), 0, out, "b wire", out},
		{"to nobody", "a", nobody, "", ipv4(own4, "0000", 0), 0, "b wire", "wire", "wire"},
		{"to a group", "a", group, "", ipv4(own4, "0000", 0), 0, out, "wire", out},
		{"first fragment", "a", mac["wire"], "", ipv4(own4, "2000", 0), 0, "wire", "wire", "wire"},
		{"later fragment", "a", mac["wire"], "", ipv4(own4, "00b9", 0), 0, "wire", "wire", "wire"},
		{"runt", "a", mac["wire"], "", "88b5", 0, "wire", "wire", ""},
		{"above the MTU", "a", mac["wire"], "", ipv4(own4, "0000", 3000), 0, "", "", ""},
		{"a storm of ARP", "a", all, "", arp(a, own4), 2000, out, "b wire", out},
		{"another MAC address", "a", mac["wire"], "021500000002", ipv4(own4, "0000", 0), 0, "wire", "wire", ""},
		{"another IPv4 address", "a", mac["wire"], "", ipv4(other4, "0000", 0), 0, "wire", "wire", ""},
		{"another IPv6 address", "a", mac["wire"], "", ipv6(9), 0, "wire", "wire", ""},
		{"ARP of another", "a", all, "", arp(a, other4), 0, out, "b wire", ""},
		{"a tag", "a", mac["wire"], "", "81000064" + ipv4(own4, "0000", 0), 0, "wire", "wire", ""},
		{"two tags", "a", mac["wire"], "", "88a8006481000007" + ipv4(own4, "0000", 0), 0, "wire", "wire", ""},

		{"to a lane", "wire", a, "", ipv4(wire4, "0000", 0), 0, "a", "a", "a"},
		{"from outside to all", "wire", all, "", arp(mac["wire"], wire4), 0, "a b host", "a b", "a b host"},
		{"from outside to a group", "wire", group, "", ipv4(wire4, "0000", 0), 0, "a b host", "", "a b host"},
		{"from outside to nobody", "wire", nobody, "", ipv4(wire4, "0000", 0), 0, "a b", "", "a b"},
		{"from outside with a tag", "wire", a, "", "81000064" + ipv4(wire4, "0000", 0), 0, "a", "a", "a"},
		{"from outside with two tags", "wire", a, "", "88a8006481000007" + ipv4(wire4, "0000", 0), 0, "a", "a", "a"},
		{"from outside, a runt", "wire", a, "", "88b5", 0, "a", "a", "a"},
		{"a storm from outside", "wire", all, "", arp(mac["wire"], wire4), 2000, "a b host", "a b", "a b host"},

		// A bridge learns from whoever sends.
		{"as the other lane", "a", mac["wire"], "b", ipv4(own4, "0000", 0), 0, "wire", "wire", ""},
		{"then to the other lane", "wire", mac["b"], "", ipv4(wire4, "0000", 0), 0, "a", "b", "b"},
	}
}

// place is where frames are sent and heard.
type place struct {
	fd  int
	mac string
}

// at opens a packet socket at a device, in a namespace if it is named.
func at(t *testing.T, netns, device string) place {
	t.Helper()
	var p place
	open := func() (err error) {
		protocol := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
		if p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol); err != nil {
			return err
		}
		d, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		p.mac = hex.EncodeToString(d.HardwareAddr)
		return errors.Join(unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: uint16(protocol), Ifindex: d.Index}),
			unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
			unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}))
	}
	err := open
	if netns != "" {
		err = func() error { return netdev.In(netns, open) }
	}
	if e := err(); e != nil {
		t.Fatalf("%s %s: %v", netns, device, e)
	}
	t.Cleanup(func() { _ = unix.Close(p.fd) })
	return p
}

// bed is a path with two lanes and the network outside, and where its frames come.
type bed struct {
	places map[string]place
	sent   uint64
}

// send sends a frame so many times, each followed by a number that no other frame has, and returns that.
func (b *bed) send(t *testing.T, from, frame string, times int) []byte {
	t.Helper()
	b.sent++
	raw, err := hex.DecodeString(frame)
	if err != nil {
		t.Fatal(err)
	}
	number := binary.BigEndian.AppendUint64([]byte(mark), b.sent)
	for range times {
		_, err = unix.Write(b.places[from].fd, append(raw, number...))
		if err != nil && !errors.Is(err, unix.EMSGSIZE) && !errors.Is(err, unix.ENOBUFS) { // too long, dropped
			t.Fatalf("%s sends %.80s: %v", from, frame, err)
		}
	}
	return number
}

// hear sends a frame and tells who gets it how often, where that is not once for each that was sent.
func (b *bed) hear(t *testing.T, f frame) string {
	t.Helper()
	source := f.source
	if source == "" {
		source = f.from
	}
	if p, is := b.places[source]; is {
		source = p.mac
	}
	came := map[string]int{}
	sent := max(f.times, 1)
	for done := 0; done < sent; done += 100 { // a veth holds 256
		n := min(sent-done, 100)
		number := b.send(t, f.from, f.to+source+f.text, n)
		own := b.places[f.from].mac
		ip := map[string]string{"a": own4, "wire": wire4}[f.from]
		last := b.send(t, f.from, all+own+arp(own, ip), 1) // what all let through, in order
		for name, p := range b.places {
			if name != f.from {
				came[name] += count(t, name, p.fd, number, last)
			}
		}
		// Nothing comes back to its sender, which by now it would have: others have what was sent later.
		came[f.from] += count(t, f.from, b.places[f.from].fd, number, nil)
	}
	var got []string
	for name, n := range came {
		switch n {
		case 0:
		case sent:
			got = append(got, name)
		default:
			got = append(got, fmt.Sprintf("%s(%d of %d)", name, n, sent))
		}
	}
	slices.Sort(got)
	return strings.Join(got, " ")
}

// count is how many frames with a number came to a socket before the last one, or, where that is nil, so far.
func count(t *testing.T, name string, fd int, number, last []byte) (n int) {
	t.Helper()
	buf := make([]byte, 10000)
	flags := 0
	if last == nil {
		flags = unix.MSG_DONTWAIT
	}
	for {
		length, from, err := unix.Recvfrom(fd, buf, flags)
		if last == nil && errors.Is(err, unix.EAGAIN) {
			return n
		}
		if err != nil {
			t.Fatalf("the last frame has not come to %s: %v", name, err)
		}
		switch l, is := from.(*unix.SockaddrLinklayer); {
		case is && l.Pkttype == unix.PACKET_OUTGOING:
		case last != nil && bytes.Contains(buf[:length], last):
			return n
		case bytes.Contains(buf[:length], number):
			n++
		}
	}
}

// Each frame comes to whom the table says, and to nobody else: from a lane that sends what it may not, and from a
// network that sends anything.
func TestFrames(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, p := range []measured{bridge.Path{}, bridge.Path{GRO: true}, macvlan.Path{}, express.Path{}} {
		t.Run(p.Name(), func(t *testing.T) {
			if p.Name() == "express" {
				hosttest.Need(t, hosttest.BPF)
			}
			j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if uerr := errors.Join(j.Undo(context.Background()), j.Close()); uerr != nil {
					t.Error(uerr)
				}
			})
			wire := testWire()
			steps, err := wire.Steps(p.WireGRO())
			if err != nil {
				t.Fatal(err)
			}
			var lanes []netpath.Lane
			for i, name := range []string{"test-a", "test-b"} {
				n := lane.Network{Path: p.Name(), Device: wire.Uplink}
				for _, a := range prefixes(addressesOf(byte(2 + i))) {
					n.Addresses = append(n.Addresses, lane.Address{Prefix: a})
				}
				lanes = append(lanes, netpath.Of(fstest.MapFS{}, name, n))
			}
			more, err := p.Steps(lanes)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = j.Apply(t.Context(), append(steps, more...)); err != nil {
				t.Fatal(err)
			}
			b := &bed{places: map[string]place{"wire": at(t, wire.Netns, netpath.Device)}}
			for i, name := range []string{"a", "b"} {
				b.places[name] = at(t, lanes[i].Netns(), netpath.Device)
			}
			if p.Name() != "macvlan" {
				b.places["host"] = at(t, "", netpath.Bridge(wire.Uplink))
			}
			in(t, lanes[0].Netns(), func() error { // as a workload may
				l, err := netlink.LinkByName(netpath.Device)
				if err == nil && p.Name() != "macvlan" {
					err = netlink.LinkSetMTU(l, 9000)
				}
				return err
			})
			b.run(t, strings.TrimSuffix(p.Name(), "-gro"))
		})
	}
}

func (b *bed) run(t *testing.T, path string) {
	t.Helper()
	mac := map[string]string{}
	for name, p := range b.places {
		mac[name] = p.mac
	}
	for _, f := range crafted(mac) {
		want := map[string]string{"bridge": f.bridge, "macvlan": f.macvlan, "express": f.express}[path]
		if got := b.hear(t, f); got != want {
			t.Errorf("%s: came to %q, expected %q", f.name, got, want)
		}
	}
}
