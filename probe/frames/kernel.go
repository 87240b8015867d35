package frames

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// InKernel reports that the kernel does the application's work, wherever its frames arrive.
func (p Probe) InKernel() bool { return p.Forwarder == kernel }

// route makes this network namespace a router that sends the generator's frames back to it, and answers
// questions, until ctx ends. It sends no redirects: there is no better route.
func route(ctx context.Context, device *netlink.LinkAttrs, at netip.AddrPort, stdout io.Writer) (err error) {
	for _, s := range []struct{ name, value string }{{"ip_forward", "1"}, // first, because it sets others
		{"conf/all/send_redirects", "0"}, {filepath.Join("conf", device.Name, "send_redirects"), "0"}} {
		restore, serr := setting(s.name, s.value)
		if serr != nil {
			return serr
		}
		defer func() { err = errors.Join(err, restore()) }()
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return fmt.Errorf("UDP %s: %w", at, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	fmt.Fprintf(stdout, "%s%s\n", readyLine, at)
	for b := make([]byte, bufferSize); ; { // frames: the socket has what follows the UDP header
		n, from, rerr := conn.ReadFromUDPAddrPort(b[atMagic:])
		if ctx.Err() != nil {
			return nil
		}
		s := unstamped(b)
		if rerr == nil && (s.magic != isQuestion || atMagic+n != questionSize-fcs) {
			continue
		}
		c, cerr := routed(device.Index)
		if err = errors.Join(rerr, cerr); err != nil {
			return err
		}
		writeAnswer(b[:atMagic+n], s, c, "its routes")
		if _, err = conn.WriteToUDPAddrPort(b[atMagic:atMagic+n], from); err != nil {
			return fmt.Errorf("UDP %s: %w", from, err)
		}
	}
}

// setting sets a file of /proc/sys/net/ipv4 of this network namespace, until restore.
func setting(name, value string) (restore func() error, err error) {
	file := filepath.Join("/proc/sys/net/ipv4", name)
	before, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return func() error { return os.WriteFile(file, before, 0) }, os.WriteFile(file, []byte(value), 0)
}

// routed returns the kernel's counts as a router (ForwDatagrams of RFC 4293). The kernel sends what it takes,
// or its device counts a drop.
func routed(device int) (c counts, err error) {
	if c.DeviceIn, c.DeviceOut, err = dropped(device); err != nil {
		return c, err
	}
	const file = "/proc/thread-self/net/snmp"
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "Ip:") {
			continue
		}
		fields := strings.Fields(line)
		for k, name := range names {
			if name == "ForwDatagrams" && k < len(fields) {
				c.Took, err = strconv.ParseUint(fields[k], 10, 64)
				c.Sent = c.Took
				return c, err
			}
		}
		names = fields
	}
	return c, fmt.Errorf("%s: expected ForwDatagrams of Ip", file)
}

// beside rejects a forwarder that would not get the frames which it is to send back to us.
func beside(to netip.Addr) error {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil {
		return fmt.Errorf("%s: no route to it: %w", to, err)
	}
	for _, r := range routes {
		if r.Gw != nil || r.Type != unix.RTN_UNICAST {
			return fmt.Errorf("forwarder: kernel: expected a neighbour, found %s behind a router, or here", to)
		}
	}
	return nil
}
