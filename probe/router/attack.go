package router

import (
	"context"
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

// attack is what the last customer does in place of fetching.
type attack string

// The attacks. Each frame has the mark, so that one that comes to another customer is known as such even
// where its own router has sent it.
const (
	flood attack = "flood" // UDP to the server, with the customer's own address
	spoof attack = "spoof" // from addresses of others, and to everybody on the segment
	scan  attack = "scan"  // each port of each address of the network outside, one after the other
)

const (
	// pace is how many frames the attacker sends a second: many for one customer, and not so many that making
	// them keeps the CPU from the others, whose client is on it too.
	pace = 20_000
	// burst is how many of them leave together, each millisecond.
	burst = pace / 1000
	// mark begins the payload of each.
	mark = "ISLX"
)

// discard is the port of the service that throws all away (RFC 863).
const discard = 9

// validate says what is wrong with an attack.
func (a attack) validate() error {
	switch a {
	case "", flood, spoof, scan:
		return nil
	}
	return fmt.Errorf("attack: %q: expected %s, %s or %s", a, flood, spoof, scan)
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
	for ; next < end && ctx.Err() == nil; next += int64(1e9 / pace * burst) {
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
	m.Facts["attack"] = fmt.Sprintf("%s by the last customer: %d frames of UDP, %d a second; no room for %d",
		a, sent, pace, noRoom)
	return m, ctx.Err()
}

// frame is the nth one of an attack by the customer me, whose router has the MAC address gate.
func (a attack) frame(n int, me, gate net.HardwareAddr, self, server netip.Addr) []byte {
	all := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	v4 := func(a, b, c, d byte) netip.Addr { return netip.AddrFrom4([4]byte{a, b, c, d}) }
	switch a {
	case flood:
	case spoof:
		other := server.Next()
		switch n % 6 {
		case 0:
			return frame(me, gate, v4(10, 9, 9, 9), server, discard, mark)
		case 1:
			return frame(me, gate, other, server, discard, mark)
		case 2:
			return frame(me, gate, server, other, discard, mark)
		case 3:
			return frame(me, gate, self, self, discard, mark) // the address that other customers have, too
		case 4:
			return frame(me, all, own(), v4(192, 168, 1, 255), discard, mark)
		}
		return frame(gate, all, self, v4(255, 255, 255, 255), discard, mark)
	case scan:
		to := netip.PrefixFrom(server, 24).Masked().Addr().As4()
		to[3] = byte(1 + n%254)
		return frame(me, gate, self, netip.AddrFrom4(to), uint16(1+n/254%65535), mark)
	}
	return frame(me, gate, self, server, discard, mark)
}

// frame is one of UDP, from a MAC address and an IPv4 address to those of others.
func frame(from, to net.HardwareAddr, source, destination netip.Addr, port uint16, payload string) []byte {
	const fcs, nobodys = 4, 7009
	e := frames.Ends{FromMAC: from, ToMAC: to, From: netip.AddrPortFrom(source, nobodys),
		To: netip.AddrPortFrom(destination, port)}
	f := e.Blank(frames.Payload + len(payload) + fcs)
	copy(f[frames.Payload:], payload)
	return f
}
