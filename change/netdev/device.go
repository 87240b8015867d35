package netdev

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// own returns the device that a Link of this target makes: the host's end, or without one the device in the
// namespace. It returns nil if there is none.
func own(target string, spec Link) (*netlink.Handle, netlink.Link, error) {
	if !spec.inside() {
		return Find("", target)
	}
	h, l, err := Find(spec.Peer.Netns, spec.Peer.Name)
	if l != nil || err != nil {
		return h, l, err
	}
	return Find(spec.Peer.Netns, target) // a crash has left it with its first name
}

// Find finds a device in a namespace. It returns the open netlink socket of the namespace, which the caller
// closes. If there is no such device, both results are nil.
func Find(netns, name string) (*netlink.Handle, netlink.Link, error) {
	h, err := Open(netns)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	l, err := h.LinkByName(name)
	if err != nil {
		h.Close()
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			err = nil
		}
		return nil, nil, err
	}
	return h, l, nil
}

// existing is like Find for a device of the host, but a missing device is an error.
func existing(name string) (*netlink.Handle, netlink.Link, error) {
	h, l, err := Find("", name)
	if err == nil && l == nil {
		err = Missing("", name)
	}
	return h, l, err
}

func remove(target string, spec Link) error {
	h, l, err := own(target, spec)
	if l == nil || err != nil {
		return err
	}
	defer h.Close()
	return h.LinkDel(l)
}

// add makes the device and marks it by its device group.
func (l Link) add(target string, group uint32) error {
	in := ""
	if l.Within && l.Peer != nil {
		in = l.Peer.Netns
	}
	h, err := Open(in)
	if err != nil {
		return err
	}
	defer h.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Group = target, group
	if l.Type == Bridge {
		// With snooping the bridge joins a multicast group itself (RFC 4286), and reports that from a host address.
		return h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: new(bool)})
	}
	if l.Parent != "" {
		parent, perr := h.LinkByName(l.Parent)
		if errors.As(perr, &netlink.LinkNotFoundError{}) {
			return Missing(in, l.Parent)
		}
		if perr != nil {
			return fmt.Errorf("%s: %w", l.Parent, perr)
		}
		attrs.ParentIndex = parent.Attrs().Index
	}
	if l.Peer == nil {
		return l.addVLAN(h, attrs)
	}
	return l.addPeer(h, attrs)
}

func (l Link) addVLAN(h *netlink.Handle, attrs netlink.LinkAttrs) error {
	err := h.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: l.Tag, VlanProtocol: l.Protocol()})
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("this kernel has no VLAN devices (8021q): %w", err)
	}
	return err
}

// addPeer makes a device inside a namespace, or a pair with one end there. A device without a host end is
// made under the name of the step, and renamed in the namespace: kernels such as 6.12 refuse to make it under
// a name that a device of the host has.
func (l Link) addPeer(h *netlink.Handle, attrs netlink.LinkAttrs) error {
	p := l.Peer
	mac, err := net.ParseMAC(p.MAC)
	if err != nil {
		return err
	}
	attrs.MTU = p.MTU
	if l.Far != nil {
		return l.addPair(h, attrs, mac)
	}
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: p.Name, PeerHardwareAddr: mac}
	if p.Netns == "" {
		return h.LinkAdd(pair)
	}
	ns, err := openNamespace(p.Netns)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", p.Netns, err)
	}
	defer ns.Close()
	if l.Within {
		attrs.HardwareAddr = mac
		return l.addVLAN(h, attrs)
	}
	if !l.inside() {
		pair.PeerNamespace = netlink.NsFd(ns)
		return h.LinkAdd(pair)
	}
	attrs.Namespace, attrs.HardwareAddr = netlink.NsFd(ns), mac
	if l.Type == VLAN {
		return l.addVLAN(h, attrs)
	}
	err = h.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE})
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("this kernel has no devices of kind macvlan: %w", err)
	}
	return taken(err, l.Parent)
}

// configure sets up the devices as the Link wants them. It leaves alone what is right already.
func (l Link) configure(target string) error {
	set := l.configurePort
	if l.inside() {
		set = l.rename
	}
	if err := set(target); err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	for _, p := range []*Peer{l.Peer, l.Far} {
		if p == nil {
			continue
		}
		if err := p.Configure(); err != nil {
			return fmt.Errorf("%s in %s: %w", p.Name, p.Netns, err)
		}
	}
	return nil
}

// rename gives the device its final name in the namespace.
func (l Link) rename(target string) error {
	h, made, err := Find(l.Peer.Netns, target)
	if made == nil || err != nil {
		return err
	}
	defer h.Close()
	return h.LinkSetName(made, l.Peer.Name)
}

// noIPv6Address is the mode in which the kernel gives a device no IPv6 address by itself.
const noIPv6Address = nl.IN6_ADDR_GEN_MODE_NONE

func (l Link) configurePort(name string) error {
	h, port, err := Find("", name)
	if err != nil || port == nil {
		return cmp.Or(err, Missing("", name))
	}
	defer h.Close()
	if err = silence(name); err != nil {
		return err
	}
	if err = offloads("", name, l.GRO, l.WireFrames); err != nil {
		return err
	}
	if l.Master != "" {
		m, merr := h.LinkByName(l.Master)
		if merr != nil {
			return fmt.Errorf("%s: %w", l.Master, merr)
		}
		if port.Attrs().MasterIndex != m.Attrs().Index {
			if err = h.LinkSetMaster(port, m); err != nil {
				return fmt.Errorf("master %s: %w", l.Master, err)
			}
		}
	}
	if l.Peer != nil {
		if err = setMTU(h, port, l.Peer.MTU); err != nil {
			return err
		}
	}
	return h.LinkSetUp(port)
}

// silence disables IPv6 on a device of the host. The device only passes frames of others; with IPv6 the
// kernel would give it an address of the host, and announce the groups that it joins.
func silence(name string) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) { // this kernel has no IPv6
		return nil
	}
	return err
}

// setMTU sets the MTU; 0 leaves it as it is.
func setMTU(h *netlink.Handle, l netlink.Link, mtu int) error {
	if mtu == 0 || l.Attrs().MTU == mtu {
		return nil
	}
	if err := h.LinkSetMTU(l, mtu); err != nil {
		return fmt.Errorf("mtu %d: %w", mtu, err)
	}
	return nil
}

// Configure gives the device its addresses and routes and sets it up. It skips duplicate address detection,
// which would hold IPv6 back for a second: Isolane hands out all addresses of the link.
func (p Peer) Configure() error {
	h, l, err := Find(p.Netns, p.Name)
	if err != nil || l == nil {
		return cmp.Or(err, Missing(p.Netns, p.Name))
	}
	defer h.Close()
	if p.Netns == "" {
		err = silence(p.Name)
	}
	if err = cmp.Or(err, offloads(p.Netns, p.Name, p.GRO, p.WireFrames)); err != nil {
		return err
	}
	if p.Checksums {
		if _, err = Offload(p.Netns, p.Name, unix.ETHTOOL_STXCSUM, 0); err != nil {
			return fmt.Errorf("checksum offload: %w", err)
		}
	}
	if p.Bare {
		if err = errors.Join(h.LinkSetIP6AddrGenMode(l, noIPv6Address), h.LinkSetAllmulticastOn(l)); err != nil {
			return err
		}
	}
	if mac, merr := net.ParseMAC(p.MAC); merr == nil && mac.String() != l.Attrs().HardwareAddr.String() {
		if err = h.LinkSetHardwareAddr(l, mac); err != nil {
			return fmt.Errorf("address %s: %w", mac, err)
		}
	}
	if err = setMTU(h, l, p.MTU); err != nil {
		return err
	}
	if p.declares() {
		if err = p.refuseAdvertisements(h, l); err != nil {
			return fmt.Errorf("router advertisements: %w", err)
		}
	}
	for _, a := range p.Addresses {
		ipnet := &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
		err = h.AddrReplace(l, &netlink.Addr{IPNet: ipnet, Flags: unix.IFA_F_NODAD})
		if err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if err = h.LinkSetUp(l); err != nil {
		return err
	}
	for _, g := range p.Gateways {
		if err = h.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: g.AsSlice()}); err != nil {
			return fmt.Errorf("gateway %s: %w", g, err)
		}
	}
	return nil
}

// OfPCI returns the name of the network device of a PCI function, in the network namespace of this thread
// (see In); "" if it has none there.
func OfPCI(address string) (string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	for _, device := range all {
		info, ierr := unix.IoctlGetEthtoolDrvinfo(fd, device.Name)
		if ierr == nil && unix.ByteSliceToString(info.Bus_info[:]) == address {
			return device.Name, nil
		}
	}
	return "", nil
}

// MoveTo moves a device to a named namespace, or to that of the host for "".
func MoveTo(h *netlink.Handle, l netlink.Link, netns string) error {
	name := Dir + "/" + netns
	if netns == "" { // not the process's own: its first thread may have ended in another namespace, see In
		name = "/proc/thread-self/ns/net"
	}
	ns, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", name, err)
	}
	defer unix.Close(ns)
	return h.LinkSetNsFd(l, ns)
}
