package netpath

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/lane"
)

// findRoute looks in all tables for a route through the device, ignoring those that every device that is up
// has.
func (u *Uplink) findRoute(h *netlink.Handle, device int) error {
	routes, err := h.RouteListFiltered(unix.AF_UNSPEC, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	family, elsewhere := 0, map[int]bool{} // of Route; families of default routes through other devices
	for _, r := range routes {
		if r.Table == unix.RT_TABLE_LOCAL {
			continue
		}
		to, isDefault := netip.Addr{}, true
		if r.Dst != nil {
			to, _ = netip.AddrFromSlice(r.Dst.IP)
			ones, _ := r.Dst.Mask.Size()
			isDefault = ones == 0
		}
		hops := r.MultiPath
		if len(hops) == 0 {
			hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw}}
		}
		for _, hop := range hops {
			if hop.LinkIndex != device {
				elsewhere[r.Family] = elsewhere[r.Family] || isDefault && r.Type == unix.RTN_UNICAST
				continue
			}
			if isDefault && !u.Default || u.Route == "" && !to.IsLinkLocalUnicast() && !to.IsMulticast() {
				u.Route, u.Default, family = routeText(r, hop, isDefault), isDefault, r.Family
			}
		}
	}
	if u.Default && !elsewhere[family] {
		u.only = map[int]string{unix.AF_INET: "IPv4", unix.AF_INET6: "IPv6"}[family]
	}
	return err
}

func routeText(r netlink.Route, hop *netlink.NexthopInfo, isDefault bool) string {
	text := "default"
	if !isDefault {
		text = r.Dst.String()
	}
	if hop.Gw != nil {
		text += " via " + hop.Gw.String()
	}
	if r.Table != unix.RT_TABLE_MAIN {
		text += fmt.Sprint(" table ", r.Table)
	}
	return text
}

// CheckPort says why the device cannot become a port of a bridge for a lane: it is a port of another one (""
// accepts any), or the host has addresses or routes there, which it may not be taken from. instead says in
// the error what else is expected than a device without these.
func (u Uplink) CheckPort(n lane.Network, bridge, instead string) error {
	var has string
	switch {
	case u.Master != "" && u.Master != bridge:
		return u.isPort()
	case n.TakeFromHost:
		return nil
	case u.only != "":
		has = "carries the host's only " + u.only + " default route"
		if via, is := strings.CutPrefix(u.Route, "default "); is {
			has += " (" + via + ")"
		}
		has += ", which ends when it is a port of a bridge"
	case len(u.Addresses) > 0:
		has = fmt.Sprintf("has the address %s, which a port of a bridge cannot use", u.Addresses[0])
	case u.Route != "":
		has = fmt.Sprintf("carries the host's route %q, which ends when it is a port of a bridge", u.Route)
	default:
		return nil
	}
	return fmt.Errorf("spec.network.device: %s %s: expected a device without one%s, or "+
		"spec.network.takeFromHost: true", u.Name, has, instead)
}
