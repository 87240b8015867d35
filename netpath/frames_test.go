package netpath_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/netpath/macvlan"
	"isolane.dev/isolane/netpath/ovs"
	"isolane.dev/isolane/netpath/sriov"
)

// frame is one that a lane or the network outside sends, and who gets it by which path: "wire", lanes "a" and "b",
// and "host", the stack of the host where a bridge or a card hands frames to it. That of sriov is what QEMU's igb
// does, which does not look at the sender's address, and brings frames to all back to their sender too. That of ovs
// holds for its data path in the kernel too, and for ovs-dpdk but for what otherwise says.
type frame struct {
	name, from, to string
	source         string // MAC address: of "a", "b", "wire" or in hexadecimal; "" is the sender's
	text           string // what follows, in hexadecimal
	times          int    // 0 is 1

	bridge, macvlan, express, sriov, ovs string
}

const (
	nobody = "021500000001" // a MAC address, as the next four
	zero   = "000000000000"
	all    = "ffffffffffff"
	group  = "01005e010203"
	toAll6 = "333300000001"
	either = "?"    // QEMU's igb brings it or not, or a bridge
	mark   = "isl"  // before the number of a frame
	dont   = "4000" // be cut (RFC 791)
	all6   = "ff020000000000000000000000000001"
	none6  = "00000000000000000000000000000000"
	own6   = "fd150700000000000000000000000002"
	other6 = "fd150700000000000000000000000009"
	none4  = "00000000"
	own4   = "c6120702"
	b4     = "c6120703"
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

func arp(mac, ip string) string { return asks(mac, ip, "c61207c8") } // for nobody's

// asks is ARP from an address, of who has another one.
func asks(mac, ip, target string) string {
	return "0806" + "0001080006040001" + mac + ip + "000000000000" + target
}

// discovers is neighbour discovery to all from an address, of another one, which has 24 bytes.
func discovers(kind, source, target string) string {
	return "86dd" + fmt.Sprintf("60000000%04x3aff", 24+len(mark)+8) + source + all6 + kind + "000000" + "00000000" + target
}

// crafted are frames that a lane may and may not send, and what a network may send.
func crafted(mac map[string]string) []frame {
	const out = "b host wire"
	a := mac["a"]
	return []frame{
		{"IPv4 to the wire", "a", mac["wire"], "", ipv4(own4, "0000", 0), 0, "wire", "wire", "wire", "wire", "wire"},
		{"IPv4 to the other lane", "a", mac["b"], "", ipv4(own4, "0000", 0), 0, "b", "b", "b", "b", "b"},
		{"IPv6 to all", "a", toAll6, "", ipv6(2), 0, out, "b wire", out, out, "b wire"},
		{"to nobody", "a", nobody, "", ipv4(own4, "0000", 0), 0, "b wire", "wire", "wire", "wire", "b wire"},
		{"to no address", "a", zero, "", ipv4(own4, "0000", 0), 0, "b wire", "wire", "wire", either, "b wire"},
		{"to a group", "a", group, "", ipv4(own4, "0000", 0), 0, out, "wire", out, "wire", "b wire"},
		{"first fragment", "a", mac["wire"], "", ipv4(own4, "2000", 0), 0, "wire", "wire", "wire", "wire", "wire"},
		{"later fragment", "a", mac["wire"], "", ipv4(own4, "00b9", 0), 0, "wire", "wire", "wire", "wire", "wire"},
		{"runt", "a", mac["wire"], "", "88b5", 0, "wire", "wire", "", either, "wire"},
		{"above the MTU", "a", mac["wire"], "", ipv4(own4, dont, 3000), 0, "", "wire", "", "", ""},
		{"a storm of ARP", "a", all, "", arp(a, own4), 2000, out, "b wire", out, out, "b wire"},
		{"another MAC address", "a", mac["wire"], "021500000002", ipv4(own4, "0000", 0), 0, "wire", "wire", "", "wire", ""},
		{"another IPv4 address", "a", mac["wire"], "", ipv4(other4, "0000", 0), 0, "wire", "wire", "", "wire", "wire"},
		{"another IPv6 address", "a", mac["wire"], "", ipv6(9), 0, "wire", "wire", "", "wire", "wire"},
		{"ARP of another", "a", all, "", arp(a, other4), 0, out, "b wire", "", out, ""},
		{"ARP, whether another is free", "a", all, "", asks(a, none4, other4), 0, out, "b wire", "", out, ""},
		{"ARP, whether its own is free", "a", all, "", asks(a, none4, own4), 0, out, "b wire", out, out, "b wire"},
		{"for neighbours of another", "a", toAll6, "", discovers("87", other6, own6), 0, out, "b wire", "", out, ""},
		{"for its own neighbours", "a", toAll6, "", discovers("87", own6, other6), 0, out, "b wire", out, out, "b wire"},
		{"whether another is free", "a", toAll6, "", discovers("87", none6, other6), 0, out, "b wire", "", out, ""},
		{"whether its own is free", "a", toAll6, "", discovers("87", none6, own6), 0, out, "b wire", out, out, "b wire"},
		{"that it has another", "a", toAll6, "", discovers("88", own6, other6), 0, out, "b wire", "", out, ""},
		{"that it has its own", "a", toAll6, "", discovers("88", own6, own6), 0, out, "b wire", out, out, "b wire"},
		{"for routers of another", "a", toAll6, "", discovers("85", other6, none6), 0, out, "b wire", "", out, ""},
		{"for its own routers", "a", toAll6, "", discovers("85", own6, none6), 0, out, "b wire", out, out, "b wire"},
		{"that it is a router", "a", toAll6, "", discovers("86", own6, none6), 0, out, "b wire", "", out, ""},
		{"a better way, of another", "a", toAll6, "", discovers("89", other6, own6), 0, out, "b wire", "", out, ""},
		{"a tag", "a", mac["wire"], "", "81000064" + ipv4(own4, "0000", 0), 0, "wire", "wire", "", "wire", ""},
		{"a priority", "a", mac["wire"], "", "8100a000" + ipv4(own4, "0000", 0), 0, "wire", "wire", "", either, ""},
		{"a priority around a tag", "a", mac["wire"], "", "8100a00081000064" + ipv4(own4, "0000", 0), 0, "wire", "wire", "", either, ""},
		{"two tags", "a", mac["wire"], "", "88a8006481000007" + ipv4(own4, "0000", 0), 0, "wire", "wire", "", "wire", ""},

		{"to a lane", "wire", a, "", ipv4(wire4, "0000", 0), 0, "a", "a", "a", "a", "a"},
		{"from outside to all", "wire", all, "", arp(mac["wire"], wire4), 0, "a b host", "a b", "a b host", "a b host", "a b"},
		{"from outside to a group", "wire", group, "", ipv4(wire4, "0000", 0), 0, "a b host", "", "a b host", "", "a b"},
		{"from outside to nobody", "wire", nobody, "", ipv4(wire4, "0000", 0), 0, "a b", "", "a b", "host", "a b"},
		{"from outside to no address", "wire", zero, "", ipv4(wire4, "0000", 0), 0, "a b", "", "a b", either, "a b"},
		{"from outside with a tag", "wire", a, "", "81000064" + ipv4(wire4, "0000", 0), 0, "a", "a", "", "", ""},
		{"from outside with a priority", "wire", a, "", "8100a000" + ipv4(wire4, "0000", 0), 0, "a", "a", "a", either, "a"},
		{"from outside with two tags", "wire", a, "", "88a8006481000007" + ipv4(wire4, "0000", 0), 0, "a", "a", "", "a", ""},
		{"from outside with a tag, to all", "wire", all, "", "81000064" + arp(mac["wire"], wire4), 0, "a b host", "a b", "a b host", either, ""},
		{"from outside with two tags, to all", "wire", all, "", "88a8006481000007" + arp(mac["wire"], wire4), 0, "a b host", "a b", "a b host", either, ""},
		{"from outside with a tag, to a group", "wire", group, "", "81000064" + ipv4(wire4, "0000", 0), 0, "a b host", "", "a b host", either, ""},
		{"from outside, above the MTU", "wire", a, "", ipv4(wire4, dont, 3000), 0, "", "a", "", "", ""},
		{"from outside, a runt", "wire", a, "", "88b5", 0, "a", "a", "a", either, "a"},
		{"a storm from outside", "wire", all, "", arp(mac["wire"], wire4), 2000, "a b host", "a b", "a b host", "a b host", "a b"},

		// Who sends as another lane does not get its frames.
		{"as the other lane", "a", mac["wire"], "b", ipv4(own4, "0000", 0), 0, "wire", "wire", "", "wire", ""},
		{"then to the other lane", "wire", mac["b"], "", ipv4(wire4, "0000", 0), 0, "b", "b", "b", "b", "b"},
	}
}

// edges are frames of the lanes' MTU and of one byte more, to and from a network whose own is 9,000 or, by sriov, 1,500.
// A bridge leaves a frame room for a tag (is_skb_forwardable), except with br_netfilter, which also cuts what may be cut;
// a macvlan takes any length.
func edges(mac map[string]string) []frame {
	const full = 1500 - 20 - len(mark) - 8
	a := mac["a"]
	return []frame{
		{"of the MTU", "a", mac["wire"], "", ipv4(own4, "0000", full), 0, "wire", "wire", "wire", "wire", "wire"},
		{"of one byte more", "a", mac["wire"], "", ipv4(own4, dont, full+1), 0, "", "", "", "", ""},
		{"of the MTU, to the other lane", "a", mac["b"], "", ipv4(own4, "0000", full), 0, "b", "b", "b", "b", "b"},
		{"from outside, of the MTU", "wire", a, "", ipv4(wire4, "0000", full), 0, "a", "a", "a", "a", "a"},
		{"from outside, one byte more", "wire", a, "", ipv4(wire4, dont, full+1), 0, either, "a", "", "", ""},
		{"from outside, five bytes more", "wire", a, "", ipv4(wire4, dont, full+5), 0, "", "a", "", "", ""},
	}
}

// otherwise says who gets frames by a path, by their names, where the table has none for it alone.
func otherwise(path string) map[string]string {
	if path == "ovs-dpdk" { // whose switch counts room for a checksum, and takes from a workload what its buffers hold
		return map[string]string{"of one byte more": "wire", "from outside, one byte more": "a"}
	}
	return nil
}

// tooLong reports whether a frame is longer than the lanes' MTU.
func (f frame) tooLong() bool {
	const ethertype = 2
	return len(f.text)/2-ethertype+len(mark)+8 > 1500
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
			unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}))
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
	echoes bool // frames to all come back to their sender, some time
	sent   uint64
	burst  int // how many frames are sent at once: a veth holds 256, an emulated card loses some of so many
	// misses means that a switch has to be asked about each frame of a new kind, which comes after others that were sent
	// later, but not after others of a new kind.
	misses  bool
	refused uint64 // of what lane a has sent, by its path
}

// send sends a frame so many times, each followed by a number that no other frame has, and returns that.
func (b *bed) send(t *testing.T, from, frame string, times int) []byte {
	t.Helper()
	b.sent++
	number := binary.BigEndian.AppendUint64([]byte(mark), b.sent)
	b.write(t, from, frame, number, times)
	return number
}

func (b *bed) write(t *testing.T, from, frame string, number []byte, times int) {
	t.Helper()
	raw, err := hex.DecodeString(frame)
	if err != nil {
		t.Fatal(err)
	}
	for range times {
		_, err = unix.Write(b.places[from].fd, append(raw, number...))
		if err != nil && !errors.Is(err, unix.EMSGSIZE) && !errors.Is(err, unix.ENOBUFS) { // too long, dropped
			t.Fatalf("%s sends %.80s: %v", from, frame, err)
		}
	}
}

// last sends a frame that comes to all others after what was sent before, and returns its number, and what sends it
// once more.
func (b *bed) last(t *testing.T, from, ip string) (number []byte, again func()) {
	t.Helper()
	own := b.places[from].mac
	frame := all + own + arp(own, ip) // what all let through
	if b.misses {
		frame = fmt.Sprintf("0215ff%06x", b.sent) + own + ipv4(ip, "0000", 0) // to nobody, whom no other frame was for
	}
	number = b.send(t, from, frame, 1)
	return number, func() { b.write(t, from, frame, number, 1) }
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
	for done := 0; done < sent; done += b.burst {
		n := min(sent-done, b.burst)
		number := b.send(t, f.from, f.to+source+f.text, n)
		last, again := b.last(t, f.from, map[string]string{"a": own4, "wire": wire4}[f.from])
		for name := range b.places {
			if name != f.from {
				came[name] += b.count(t, name, number, last, again)
			}
		}
		// Nothing comes back to its sender, which by now it would have: others have what was sent later.
		if !b.echoes {
			came[f.from] += b.count(t, f.from, number, nil, nil)
		}
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

// count is how many frames with a number came to a place before the last one, or, where that is nil, so far. The
// last one is sent again where it does not come: an emulated card loses a frame now and then, and Open vSwitch in user
// space what it was to send together with one that is too long.
func (b *bed) count(t *testing.T, name string, number, last []byte, again func()) (n int) {
	t.Helper()
	buf := make([]byte, 10000)
	flags := 0
	if last == nil {
		flags = unix.MSG_DONTWAIT
	}
	for tries := 0; ; {
		length, from, err := unix.Recvfrom(b.places[name].fd, buf, flags)
		switch l, is := from.(*unix.SockaddrLinklayer); {
		case errors.Is(err, unix.EINTR):
		case last == nil && errors.Is(err, unix.EAGAIN):
			return n
		case errors.Is(err, unix.EAGAIN) && tries < 10:
			tries++
			t.Logf("%s heard nothing for a while: the last frame once more", name)
			again()
		case err != nil:
			t.Fatalf("the last frame has not come to %s: %v", name, err)
		case is && l.Pkttype == unix.PACKET_OUTGOING:
		case last != nil && bytes.Contains(buf[:length], last):
			return n
		case bytes.Contains(buf[:length], number):
			n++
		}
	}
}

// need skips what a path needs and is not there, and starts its switch.
func need(t *testing.T, p netpath.Path) {
	t.Helper()
	switch p.Name() {
	case "express":
		hosttest.Need(t, hosttest.BPF)
	case "ovs":
		openVSwitch(t)
	case "ovs-dpdk":
		hosttest.Need(t, hosttest.Program("dpdk-testpmd"))
		openVSwitchDPDK(t)
	}
}

// Each frame comes to whom the table says, and to nobody else: from a lane that sends what it may not, and from a
// network that sends anything.
func TestFrames(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, p := range []measured{bridge.Path{}, bridge.Path{GRO: true}, macvlan.Path{}, express.Path{}, ovs.Path{},
		ovs.Path{DPDK: true}} {
		t.Run(p.Name(), func(t *testing.T) {
			need(t, p)
			wire := testWire()
			steps, err := wire.Steps(p.WireGRO())
			if err != nil {
				t.Fatal(err)
			}
			b := lanesOn(t, p, [2]string{wire.Uplink, wire.Uplink}, steps, nil)
			b.places["wire"] = at(t, wire.Netns, netpath.Device)
			if bridge := netpath.Bridge(wire.Uplink); present(bridge) {
				b.places["host"] = at(t, "", bridge)
			}
			command(t, "ip", "link", "set", wire.Uplink, "mtu", "9000")
			command(t, "ip", "-n", wire.Netns, "link", "set", netpath.Device, "mtu", "9000")
			path := strings.TrimSuffix(p.Name(), "-gro")
			b.run(t, path, edges)
			if netpath.Namespaced([]netpath.Path{p}, lane.Network{Path: p.Name()}) {
				command(t, "ip", "-n", "isolane-test-a", "link", "set", netpath.Device, "mtu", "9000") // as a workload may
			}
			b.run(t, path, crafted)
			b.counted(t, p)
		})
	}
	t.Run("sriov", func(t *testing.T) {
		card, outside := os.Getenv("ISOLANE_TEST_CARD"), os.Getenv("ISOLANE_TEST_OUTSIDE")
		if card == "" {
			t.Skip("skipped: needs a card with virtual functions (ISOLANE_TEST_CARD), and the other end of its " +
				"cable in the namespace outside (ISOLANE_TEST_OUTSIDE), as in the lab")
		}
		address, err := filepath.EvalSymlinks("/sys/class/net/" + card + "/device")
		if err != nil {
			t.Fatal(err)
		}
		b := lanesOn(t, sriov.Path{}, [2]string{card, card}, nil, func(i int) netpath.PlacedFunctions {
			return netpath.PlacedFunctions{Card: filepath.Base(address), Numbers: []int{i}, Pool: 2}
		})
		b.places["wire"], b.places["host"] = at(t, "outside", outside), at(t, "", card)
		b.echoes, b.burst = true, 10
		b.run(t, "sriov", edges)
		b.run(t, "sriov", crafted)
	})
}

// A lane on one uplink neither hears nor reaches one on another uplink, nor what is behind that, whatever is sent.
func TestTwoUplinks(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, p := range []measured{bridge.Path{}, bridge.Path{GRO: true}, macvlan.Path{}, express.Path{}, ovs.Path{}} {
		t.Run(p.Name(), func(t *testing.T) {
			need(t, p)
			wire, other := testWire(), testWire()
			other.Uplink, other.Netns, other.MAC, other.Addresses = "isl-test-v", "isolane-test-other", "02:15:07:00:00:09", nil
			var steps []journal.Step
			for _, w := range []netpath.Wire{wire, other} {
				more, err := w.Steps(p.WireGRO())
				if err != nil {
					t.Fatal(err)
				}
				steps = append(steps, more...)
			}
			b := lanesOn(t, p, [2]string{wire.Uplink, other.Uplink}, steps, nil)
			b.places["wire"], b.places["other"] = at(t, wire.Netns, netpath.Device), at(t, other.Netns, netpath.Device)
			stay(t)
			ip := map[string]string{"a": own4, "b": b4, "wire": wire4, "other": other4}
			near := map[string]string{"a": "wire", "wire": "a", "b": "other", "other": "b"}
			for from, by := range near {
				b.ready(t, [3]string{from, by, ip[from]})
			}
			for from := range near {
				for _, to := range []string{b.places["a"].mac, b.places["b"].mac, b.places["wire"].mac, b.places["other"].mac,
					all, toAll6, group, nobody} {
					mac := b.places[from].mac
					number := b.send(t, from, to+mac+ipv4(ip[from], "0000", 0), 1)
					for name, by := range near {
						if to == mac || name == from {
							continue
						}
						last, again := b.last(t, by, ip[by])
						came := b.count(t, name, number, last, again)
						isLane := from == "a" || from == "b" // of which all goes to the wire, where nobody else has it
						if came > 0 && name != near[from] || came != 1 && name == near[from] && isLane {
							t.Errorf("from %s to %s: came to %s %d times", from, to, name, came)
						}
					}
				}
			}
		})
	}
}

// counted looks whether just what the first lane may not send is counted as refused. Open vSwitch counts a while later.
func (b *bed) counted(t *testing.T, p netpath.Path) {
	t.Helper()
	l := netpath.Of(fstest.MapFS{}, "test-a", lane.Network{Path: p.Name(), Device: testWire().Uplink})
	for begun := time.Now(); ; <-time.After(100 * time.Millisecond) {
		now, err := netpath.TrafficOf(t.Context(), []netpath.Path{p}, l)
		switch {
		case err != nil || now == nil || time.Since(begun) > 10*time.Second:
			t.Errorf("%+v, %v; expected %d refused", now, err, b.refused)
			return
		case now.Refused == b.refused:
			t.Log(b.refused, "refused")
			return
		}
	}
}

// stay keeps the test on one CPU: frames sent from several may overtake each other.
func stay(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if before.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}

// lanesOn puts two lanes in force on their uplinks after some steps, until the test ends. functions, which may be nil,
// are those of a lane by its number.
func lanesOn(
	t *testing.T, p netpath.Path, uplinks [2]string, first []journal.Step, functions func(int) netpath.PlacedFunctions,
) *bed {
	t.Helper()
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if uerr := errors.Join(j.Undo(context.Background()), j.Close()); uerr != nil {
			t.Error(uerr)
		}
	})
	var lanes []netpath.Lane
	for i, name := range []string{"test-a", "test-b"} {
		n := lane.Network{Path: p.Name(), Device: uplinks[i], MTU: 1500}
		for _, a := range prefixes(addressesOf(byte(2 + i))) {
			n.Addresses = append(n.Addresses, lane.Address{Prefix: a})
		}
		l := netpath.Of(fstest.MapFS{}, name, n)
		if functions != nil {
			l.Functions = functions(i)
		}
		lanes = append(lanes, l)
	}
	more, err := p.Steps(lanes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = j.Apply(t.Context(), append(first, more...)); err != nil {
		t.Fatal(err)
	}
	b := &bed{places: map[string]place{}, burst: 100}
	if p.Name() == "ovs" {
		b.misses = !(ovs.Path{}).WireChecksums() // as in the kernel
	}
	for i, name := range []string{"a", "b"} {
		if v, is := netpath.VhostUserOf([]netpath.Path{p}, lanes[i]); is {
			b.places[name] = virtioUser(t, lanes[i].Name, v)
		} else {
			b.places[name] = at(t, lanes[i].Netns(), netpath.Device)
		}
	}
	return b
}

// ready waits until the first of each pair is heard by the second, as the virtual functions of a card are after a
// while. The third is its address. From then on a bridge knows where they are.
func (b *bed) ready(t *testing.T, pairs ...[3]string) {
	t.Helper()
	for _, pair := range pairs {
		from := b.places[pair[0]].mac
		for n := 0; ; n++ {
			hello := b.send(t, pair[0], all+from+arp(from, pair[2]), 1)
			fds := []unix.PollFd{{Fd: int32(b.places[pair[1]].fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(fds, 100); err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
			if b.count(t, pair[1], hello, nil, nil) > 0 {
				break
			}
			if n == 200 {
				t.Fatalf("nothing from %s comes to %s", pair[0], pair[1])
			}
		}
	}
}

func (b *bed) run(t *testing.T, path string, frames func(mac map[string]string) []frame) {
	t.Helper()
	mac := map[string]string{}
	for name, p := range b.places {
		mac[name] = p.mac
	}
	stay(t)
	b.ready(t, [3]string{"wire", "a", wire4}, [3]string{"wire", "b", wire4}, [3]string{"a", "wire", own4}, [3]string{"b", "wire", b4})
	for _, f := range frames(mac) {
		want := map[string]string{"bridge": f.bridge, "macvlan": f.macvlan, "express": f.express, "sriov": f.sriov,
			"ovs": f.ovs, "ovs-dpdk": f.ovs}[path]
		if w, is := otherwise(path)[f.name]; is {
			want = w
		}
		got := b.hear(t, f)
		if got != want && f.to == group { // macvlan knows groups by a hash of eight bits only, which differs each time
			f.to = "01005e0a0b0c"
			got = b.hear(t, f)
		}
		if got != want && want != either {
			t.Errorf("%s: came to %q, expected %q", f.name, got, want)
		}
		if f.from == "a" && got == "" && !f.tooLong() {
			b.refused += uint64(max(f.times, 1))
		}
	}
}
