package lane

import (
	"errors"
	"net/netip"

	"isolane.dev/isolane/quantity"
)

// Address is an IP address of a workload with its prefix length, "192.0.2.10/24".
type Address struct{ netip.Prefix }

// UnmarshalText reads an Address.
func (a *Address) UnmarshalText(text []byte) error {
	p, err := netip.ParsePrefix(string(text))
	if err != nil {
		return errors.New("expected an address and the length of its prefix, such as 192.0.2.10/24 " +
			"or 2001:db8::10/64")
	}
	a.Prefix = p
	return nil
}

// Prefix is a range of IP addresses, "10.0.0.0/8".
type Prefix struct{ netip.Prefix }

// UnmarshalText reads a Prefix.
func (p *Prefix) UnmarshalText(text []byte) error {
	prefix, err := netip.ParsePrefix(string(text))
	if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
		return errors.New("expected the first address of a range and the length of its prefix, such as " +
			"10.0.0.0/8, 0.0.0.0/0 or 2001:db8::/32")
	}
	p.Prefix = prefix
	return nil
}

// Gateway is the IP address of a router.
type Gateway struct{ netip.Addr }

// UnmarshalText reads a Gateway.
func (g *Gateway) UnmarshalText(text []byte) error {
	a, err := netip.ParseAddr(string(text))
	if err != nil || a.Zone() != "" {
		return errors.New("expected an address, such as 192.0.2.1 or 2001:db8::1")
	}
	g.Addr = a
	return nil
}

func (s Spec) validateNetwork() error {
	n := s.Network
	for _, f := range []struct {
		name  string
		given bool
	}{{"addresses", len(n.Addresses) > 0}, {"gateways", len(n.Gateways) > 0},
		{"sources", len(n.Sources) > 0}, {"mtu", n.MTU > 0}, {"rate", n.Rate > 0}, {"vfs", n.VFs > 0},
		{"driver", n.Driver != ""}, {"vlan.outer", n.VLAN.Outer > 0}, {"vlan.inner", n.VLAN.Inner > 0},
		{"vf.trust", n.VF.Trust}, {"vf.state", n.VF.State != ""}, {"takeFromHost", n.TakeFromHost}} {
		if f.given && n.Path == "" {
			return wrong("spec.network."+f.name, "expected spec.network.path too: without one the workload keeps the "+
				"network that it has")
		}
	}
	switch {
	case n.VLAN.Inner > 0 && n.VLAN.Outer == 0:
		return wrong("spec.network.vlan.inner", "expected spec.network.vlan.outer too, the tag around it")
	case n.VLAN.Outer > 0 && n.Device == "":
		return wrong("spec.network.vlan.outer", "expected spec.network.device too, the uplink that carries tags")
	case n.TakeFromHost && n.Device == "":
		return wrong("spec.network.takeFromHost", "expected spec.network.device too, which is taken")
	case n.Rate > 0 && n.Rate < minRate:
		return wrong("spec.network.rate", "%s: expected at least %s", n.Rate, quantity.BitRate(minRate))
	case n.HasTap() && len(n.Gateways) > 0:
		return wrong("spec.network.gateways", "with driver tap the virtual machine makes its own routes: "+
			"expected none")
	case n.Queues > 0 && n.Device == "" && n.Path == "":
		return wrong("spec.network.queues", "expected spec.network.device or path too, whose queues they are")
	}
	if err := n.validateAddresses(); err != nil {
		return err
	}
	return n.validateGateways()
}

// minRate is the lowest rate, in bits per second, at which a queue of 50 ms holds a few packets.
const minRate = 1e6

// minMTU6 is the smallest MTU for IPv6 (RFC 8200, section 5).
const minMTU6 = 1280

func (n Network) validateAddresses() error {
	seen := map[netip.Addr]bool{}
	for _, a := range n.Addresses {
		switch addr := a.Addr(); {
		case !usable(addr):
			return wrong("spec.network.addresses", "%s: expected an address of one host", a)
		case addr.Is4() && a.Bits() < 31 && (addr == a.Masked().Addr() || addr == last(a.Prefix)):
			return wrong("spec.network.addresses", "%s: expected an address of one host, this is "+
				"the network's own or its broadcast", a)
		case seen[addr]:
			return wrong("spec.network.addresses", "%s is given a second time", addr)
		case addr.Is6() && n.MTU > 0 && n.MTU < minMTU6:
			return wrong("spec.network.mtu", "expected at least %d, which IPv6 needs, found %d", minMTU6, n.MTU)
		default:
			seen[addr] = true
		}
	}
	return nil
}

// usable reports whether an address can be that of one host on a link.
func usable(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.Is4In6() && a.Zone() == "" &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// last returns the last address of an IPv4 prefix, its broadcast address.
func last(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		a[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(a)
}

func (n Network) validateGateways() error {
	seen := map[bool]bool{}
	for _, g := range n.Gateways {
		reached := g.IsLinkLocalUnicast()
		for _, a := range n.Addresses {
			if a.Addr() == g.Addr {
				return wrong("spec.network.gateways", "%s is the lane's own address", g)
			}
			reached = reached || a.Contains(g.Addr)
		}
		switch {
		case !usable(g.Addr) || !reached:
			return wrong("spec.network.gateways", "%s: expected an address in a prefix of spec.network.addresses", g)
		case seen[g.Is4()]:
			return wrong("spec.network.gateways", "%s: expected at most one for IPv4 and one for IPv6", g)
		}
		seen[g.Is4()] = true
	}
	return nil
}
