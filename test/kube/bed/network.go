package bed

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Addresses, from the range for benchmarks and one for documentation. Bed N has 198.19.N.0/24 for nodes, and
// 8 of 256 addresses each for pods from 198.19.(128+8N).0 on, so there is room for 16 beds of 8 nodes.
const (
	beds        = 16
	mostNodes   = 8
	services    = "203.0.113.0/24" // invisible outside a bed's namespaces
	apiService  = "203.0.113.1"    // its first address is the service "kubernetes" of each cluster
	apiPort     = 443              // also of that service, because no kube-proxy translates it
	hostNumber  = 254
	firstNumber = 11

	// For a machine whose nodes join another machine's control plane: its bridge and its host.
	joinedBridge = 252
	joinedHost   = 253
)

// Tap is the device for the card of a virtual machine.
const Tap = "machine0"

// network is a namespace with the control plane and a bridge, to which each node and the host are connected.
// It disappears with the processes in it, and all links with it.
type network struct {
	number int // of the bed
	ns     netns.NsHandle
	in     *netlink.Handle // in the namespace
	bridge netlink.Link
	card   netlink.Link // this machine's, on the bridge while the control plane is another's; else nil
}

// address returns the address of a member of the bed's network. Member 1 is the control plane.
func address(bed, member int) net.IP { return net.IPv4(198, 19, byte(bed), byte(member)).To4() }

func nodeAddress(bed, node int) net.IP { return address(bed, firstNumber+node) }

// pods returns the addresses of a node's pods.
func pods(bed, node int) *net.IPNet {
	return &net.IPNet{IP: net.IPv4(198, 19, byte(128+mostNodes*bed+node), 0).To4(), Mask: net.CIDRMask(24, 32)}
}

// link returns the name of a bed's link on the host.
func link(bed int) string { return fmt.Sprintf("kube-bed%d", bed) }

// newNetwork connects a new network namespace with the host and, by the host's card, with a control plane
// that it has joined.
func newNetwork(number int, ns netns.NsHandle, joined bool) (*network, error) {
	in, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, err
	}
	n := &network{number: number, ns: ns, in: in}
	own, ofHost := 1, hostNumber
	if joined {
		own, ofHost = joinedBridge, joinedHost
	}
	if n.bridge, err = n.makeBridge(own); err != nil {
		return nil, fmt.Errorf("network of bed %d: %w", number, err)
	}
	name := link(number)
	veth := &netlink.Veth{LinkAttrs: named(name), PeerName: "host", PeerNamespace: netlink.NsFd(ns)}
	host := &netlink.Handle{}
	if err = host.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	if err = errors.Join(n.plug("host"), n.configure(host, name, ofHost)); err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	if joined {
		err = n.takeCard()
	}
	return n, err
}

// takeCard moves the first card of this machine to the bridge.
func (n *network) takeCard() error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Type() != "device" || l.Attrs().EncapType == "loopback" {
			continue
		}
		if err = netlink.LinkSetNsFd(l, int(n.ns)); err != nil {
			return fmt.Errorf("card %s: %w", l.Attrs().Name, err)
		}
		if n.card, err = n.in.LinkByName(l.Attrs().Name); err != nil { // it may have another index there
			return err
		}
		return n.plug(l.Attrs().Name)
	}
	return errors.New("expected a network card, by which the control plane is reached")
}

// addTap makes the device for the card of a virtual machine, whose nodes route to its pods. It must be called
// on a thread in the namespace.
func (n *network) addTap() error {
	attrs := named(Tap)
	err := netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP})
	if err == nil {
		err = n.plug(Tap)
	}
	for node := range mostNodes {
		if err == nil {
			err = route(n.in, "nodes", pods(n.number, node), nodeAddress(n.number, node))
		}
	}
	if err != nil {
		return fmt.Errorf("device %s: %w", Tap, err)
	}
	return nil
}

func named(name string) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return attrs
}

// makeBridge makes the bridge, with the address of a member.
func (n *network) makeBridge(member int) (netlink.Link, error) {
	if err := up(n.in, "lo"); err != nil {
		return nil, err
	}
	const name = "nodes"
	attrs := named(name)
	// Otherwise it changes with the links of the bridge, and neighbours use the old one for half a minute.
	attrs.HardwareAddr = card(address(n.number, member))
	if err := n.in.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return nil, err
	}
	bridge, err := n.in.LinkByName(name)
	if err != nil {
		return nil, err
	}
	if err = n.configure(n.in, name, member); err != nil || member != 1 {
		return bridge, err
	}
	service := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(apiService).To4(), Mask: net.CIDRMask(32, 32)}}
	return bridge, n.in.AddrAdd(bridge, service)
}

// card returns the hardware address for an IP address.
func card(ip net.IP) net.HardwareAddr { return append(net.HardwareAddr{2, 0}, ip...) }

// plug connects the near end of a link to the bridge.
func (n *network) plug(name string) error {
	l, err := n.in.LinkByName(name)
	if err != nil {
		return err
	}
	return errors.Join(n.in.LinkSetMaster(l, n.bridge), n.in.LinkSetUp(l))
}

// configure gives a link the address of a member of the network.
func (n *network) configure(h *netlink.Handle, name string, member int) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	own := &netlink.Addr{IPNet: &net.IPNet{IP: address(n.number, member), Mask: net.CIDRMask(24, 32)}}
	return errors.Join(h.AddrAdd(l, own), h.LinkSetUp(l))
}

func up(h *netlink.Handle, name string) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	return h.LinkSetUp(l)
}

// connect gives the network namespace of a process the link of a node. nodes is the number of all nodes.
func (n *network) connect(pid, node, nodes int) error {
	name := fmt.Sprintf("n%d", node)
	_ = n.disconnect(node) // if a node restarts
	veth := &netlink.Veth{LinkAttrs: named(name), PeerName: "eth0", PeerNamespace: netlink.NsPid(pid),
		PeerHardwareAddr: card(nodeAddress(n.number, node))} // the same one after a restart
	if err := n.in.LinkAdd(veth); err != nil {
		return fmt.Errorf("link of %s: %w", name, err)
	}
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return err
	}
	defer ns.Close()
	in, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer in.Close()
	if err = errors.Join(n.plug(name), up(in, "lo"), n.configure(in, "eth0", firstNumber+node)); err != nil {
		return fmt.Errorf("link of %s: %w", name, err)
	}
	for other := range nodes {
		if other != node {
			err = errors.Join(err, route(in, "eth0", pods(n.number, other), nodeAddress(n.number, other)))
		}
	}
	err = errors.Join(err, route(in, "eth0", nil, address(n.number, 1)))
	for h, device := range map[*netlink.Handle]string{n.in: "nodes", {}: link(n.number)} {
		err = errors.Join(err, route(h, device, pods(n.number, node), nodeAddress(n.number, node)))
	}
	return err
}

// disconnect removes the link of a node.
func (n *network) disconnect(node int) error {
	l, err := n.in.LinkByName(fmt.Sprintf("n%d", node))
	if err != nil {
		return err
	}
	return n.in.LinkDel(l)
}

// route adds a route to the addresses to through a gateway; nil: all addresses.
func route(h *netlink.Handle, device string, to *net.IPNet, gateway net.IP) error {
	l, err := h.LinkByName(device)
	if err != nil {
		return err
	}
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: to, Gw: gateway}
	if err = h.RouteReplace(r); err != nil {
		return fmt.Errorf("route to %s by %s: %w", to, gateway, err)
	}
	return nil
}

// close closes the namespace, gives the machine's card back, and removes the link from the host at once,
// because the kernel takes its time.
func (n *network) close() error {
	var err error
	if n.card != nil {
		err = n.giveCardBack()
	}
	n.in.Close()
	return errors.Join(err, n.ns.Close(), removeLink(n.number))
}

func (n *network) giveCardBack() error {
	host, err := netns.Get()
	if err != nil {
		return err
	}
	defer host.Close()
	return errors.Join(n.in.LinkSetDown(n.card), n.in.LinkSetNoMaster(n.card),
		n.in.LinkSetNsFd(n.card, int(host)))
}

// removeLink removes a bed's link from the host, if it exists.
func removeLink(number int) error {
	l, err := netlink.LinkByName(link(number))
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", link(number), err)
	}
	return nil
}
