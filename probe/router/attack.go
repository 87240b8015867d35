package router

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/frames"
	"isolane.dev/isolane/results"
)

// attack is what the last customer does instead of fetching.
type attack string

// The attacks. Each frame has the mark, so that it is recognized when it reaches another customer, even
// through the customer's own router.
const (
	flood attack = "flood" // UDP to the server, with the customer's own address
	spoof attack = "spoof" // from addresses of others, and to everybody on the segment
	scan  attack = "scan"  // to each port of each address of the network outside, in turn
	// restart sends nothing: the last customer's router is killed within the window and restarted, while the
	// customer fetches all the time.
	restart attack = "restart"
)

const (
	// pace is how many frames the attacker sends per second: many for one customer, but not so many that sending
	// them takes the CPU from the other customers, whose client runs there too.
	pace = 20_000
	// burst is how many frames leave together each millisecond.
	burst = pace / 1000
	// mark begins the payload of each frame.
	mark = "ISLX"
)

// discard is the port of the discard service (RFC 863).
const discard = 9

// validate rejects unknown attacks.
func (a attack) validate() error {
	switch a {
	case "", flood, spoof, scan, restart:
		return nil
	}
	return fmt.Errorf("attack: %q: expected %s, %s, %s or %s", a, flood, spoof, scan, restart)
}

// run attacks from the start of the warm-up to the end of the window.
func (a attack) run(ctx context.Context, given probe.Conditions, device *netlink.LinkAttrs, l leased) (
	m results.Measurement, err error) {
	m = results.Measurement{Name: given.Name, Window: results.Nanoseconds(given.Window),
		Values: map[string]float64{}, Facts: map[string]string{}}
	router, err := macOf(device.Index, l.router)
	if err != nil {
		return m, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return m, fmt.Errorf("packet socket: %w", err)
	}
	defer unix.Close(fd)
	clock, err := probe.NewClock()
	if err != nil {
		return m, err
	}
	next := max(given.Start, clock.Now())
	m.Begin = results.Nanoseconds(next + int64(given.Warmup))
	end := int64(m.Begin) + int64(given.Window)
	sent, noRoom := 0, 0
	for ; max(next, clock.Now()) < end && ctx.Err() == nil; next += int64(1e9 / pace * burst) {
		if err = probe.SleepUntil(next); err != nil {
			return m, err
		}
		for range burst {
			f := a.frame(sent, device.HardwareAddr, router, l.address, given.Address.Addr())
			err = unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: device.Index})
			switch {
			case err == nil:
				sent++
			case errors.Is(err, unix.ENOBUFS):
				noRoom++
			default:
				return m, fmt.Errorf("attack: %w", err)
			}
		}
	}
	m.Facts["attack"] = fmt.Sprintf("%s by the last customer: %d frames of %.0f at %d a second; no room for %d",
		a, sent, pace*(given.Warmup+given.Window).Seconds(), pace, noRoom)
	return m, ctx.Err()
}

// frame returns the nth frame of an attack by the customer me, whose router has the MAC address gate.
func (a attack) frame(n int, me, gate net.HardwareAddr, self, server netip.Addr) []byte {
	all := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	v4 := func(a, b, c, d byte) netip.Addr { return netip.AddrFrom4([4]byte{a, b, c, d}) }
	switch a {
	case flood, restart: // the latter sends none
	case spoof:
		other := server.Next()
		switch n % 8 {
		case 0:
			return frame(me, gate, v4(10, 9, 9, 9), server, discard, mark)
		case 1:
			return frame(me, gate, other, server, discard, mark)
		case 2:
			return frame(me, gate, server, other, discard, mark)
		case 3:
			return frame(me, gate, self, self, discard, mark) // the address that other customers have too
		case 4:
			return frame(me, all, own(), v4(192, 168, 1, 255), discard, mark)
		case 5: // a router advertisement to all
			return frame6(me, advertisement())
		case 6: // the same, with the router's MAC address
			return frame6(gate, advertisement())
		}
		return frame(gate, all, self, v4(255, 255, 255, 255), discard, mark)
	case scan:
		to := netip.PrefixFrom(server, 24).Masked().Addr().As4()
		to[3] = byte(1 + n%254)
		return frame(me, gate, self, netip.AddrFrom4(to), uint16(1+n/254%65535), mark)
	}
	return frame(me, gate, self, server, discard, mark)
}

// frame returns a UDP frame between these MAC and IPv4 addresses.
func frame(from, to net.HardwareAddr, source, destination netip.Addr, port uint16, payload string) []byte {
	const fcs, nobodys = 4, 7009
	e := frames.Ends{FromMAC: from, ToMAC: to, From: netip.AddrPortFrom(source, nobodys),
		To: netip.AddrPortFrom(destination, port)}
	f := e.Blank(frames.Payload + len(payload) + fcs)
	copy(f[frames.Payload:], payload)
	return f
}

// advertisement returns a message that says that its sender is a router (RFC 4861, 4.2). The mark is in an
// option for experiments (RFC 4727), which hosts skip.
func advertisement() []byte {
	return append([]byte{134, 0, 0, 0, 64, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 253, 1, 0, 0}, mark...)
}

// frame6 returns an ICMPv6 frame to all hosts of the segment, from a MAC address and the link-local address
// that follows from it. Its checksum is correct (RFC 4443), so that receivers accept it.
func frame6(from net.HardwareAddr, message []byte) []byte {
	const header, addresses = 14 + 40, 14 + 8
	f := []byte{0x33, 0x33, 0, 0, 0, 1}
	f = append(append(f, from...), 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(message)), unix.IPPROTO_ICMPV6, 255)
	f = append(f, 0xfe, 0x80, 0, 0, 0, 0, 0, 0)
	f = append(f, from[0]^2, from[1], from[2], 0xff, 0xfe, from[3], from[4], from[5])
	f = append(append(f, 0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), message...)
	sum := uint32(len(message)) + unix.IPPROTO_ICMPV6
	for k := addresses; k+1 < len(f); k += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[k:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(f[header+2:], ^uint16(sum))
	return f
}
