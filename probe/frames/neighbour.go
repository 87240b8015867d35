package frames

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// found is how long the kernel may take to find a neighbour.
const found = 2 * time.Second

// neighbour returns the MAC address of a neighbour from the kernel's table. If it is not there, an empty
// datagram to the discard port (RFC 863) makes the kernel ask for it.
func neighbour(device int, who netip.Addr) (net.HardwareAddr, error) {
	asked := false
	for end := time.Now().Add(found); ; {
		all, err := netlink.NeighList(device, netlink.FAMILY_V4)
		if err != nil {
			return nil, fmt.Errorf("neighbours: %w", err)
		}
		for _, n := range all {
			ip, _ := netip.AddrFromSlice(n.IP.To4())
			if ip == who && n.State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) == 0 && len(n.HardwareAddr) == 6 {
				return n.HardwareAddr, nil
			}
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%s: nobody there has answered to ARP for %s", who, found)
		}
		if !asked {
			if err = ask(who); err != nil {
				return nil, err
			}
			asked = true
		}
		<-time.After(time.Millisecond)
	}
}

func ask(who netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("UDP socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err = unix.Sendto(fd, nil, 0, &unix.SockaddrInet4{Port: 9, Addr: who.As4()}); err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	return nil
}
