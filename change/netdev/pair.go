package netdev

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// addPair makes a veth between two namespaces, with no end on the host.
func (l Link) addPair(h *netlink.Handle, attrs netlink.LinkAttrs, mac net.HardwareAddr) error {
	far, err := net.ParseMAC(l.Far.MAC)
	if err != nil {
		return err
	}
	var ns [2]netns.NsHandle
	for i, name := range []string{l.Peer.Netns, l.Far.Netns} {
		if ns[i], err = openNamespace(name); err != nil {
			return fmt.Errorf("network namespace %s: %w", name, err)
		}
		defer ns[i].Close()
	}
	attrs.Namespace, attrs.HardwareAddr = netlink.NsFd(ns[0]), mac
	return h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: l.Far.Name, PeerHardwareAddr: far,
		PeerNamespace: netlink.NsFd(ns[1])})
}
