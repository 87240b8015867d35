package netdev

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// declares reports whether the lane declares the addresses and routes of the device. Without addresses the
// workload sets them itself, by DHCP for example.
func (p Peer) declares() bool { return p.Netns != "" && !p.Bare && len(p.Addresses) > 0 }

// acceptRA returns the file that says whether the device takes addresses and routes from router
// advertisements (Documentation/networking/ip-sysctl.rst).
func (p Peer) acceptRA() string { return "/proc/sys/net/ipv6/conf/" + p.Name + "/accept_ra" }

// refuseAdvertisements keeps router advertisements from giving the device addresses and routes, and removes
// those that they gave before.
func (p Peer) refuseAdvertisements(h *netlink.Handle, l netlink.Link) error {
	err := In(p.Netns, func() error { return os.WriteFile(p.acceptRA(), []byte("0"), 0) })
	if errors.Is(err, fs.ErrNotExist) { // this kernel has no IPv6
		return nil
	}
	found, aerr := h.AddrList(l, unix.AF_INET6)
	for _, a := range found {
		if isAdvertised(a) {
			aerr = errors.Join(aerr, h.AddrDel(l, &a))
		}
	}
	routes, rerr := h.RouteListFiltered(unix.AF_INET6, &netlink.Route{LinkIndex: l.Attrs().Index,
		Protocol: unix.RTPROT_RA}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	for _, r := range routes {
		rerr = errors.Join(rerr, h.RouteDel(&r))
	}
	return errors.Join(err, aerr, rerr)
}

// isAdvertised reports whether an IPv6 address comes from a router advertisement, or from such an address.
func isAdvertised(a netlink.Addr) bool {
	return a.IP.To4() == nil && a.Flags&(unix.IFA_F_MANAGETEMPADDR|unix.IFA_F_TEMPORARY) != 0
}

// advertised says what router advertisements give the device, which has these addresses, to a thread in the
// namespace.
func (p Peer) advertised(addresses []netlink.Addr) (what []string) {
	// If it cannot be read there is no IPv6.
	if text, err := os.ReadFile(p.acceptRA()); err == nil && strings.TrimSpace(string(text)) != "0" {
		what = append(what, p.Name+" accepts router advertisements")
	}
	for _, a := range addresses {
		if isAdvertised(a) {
			what = append(what, "address "+a.IPNet.String()+" by a router advertisement")
		}
	}
	return what
}
