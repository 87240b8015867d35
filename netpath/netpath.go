// Package netpath has what the network paths share: the lanes that a path brings packets to, as steps, and
// the wire that stands for the outside network in measurements.
//
// Each path is a folder that returns steps. A path never changes the host itself.
package netpath

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
)

// Wire stands for the outside network in measurements. It is a veth pair: one end is a device of the host,
// which paths use as their uplink, and the other one is that of a client in a namespace of its own.
type Wire struct {
	Uplink    string         // the device on the host
	Netns     string         // of the client: a name in /run/netns
	MAC       string         // of the client
	Addresses []netip.Prefix // of the client
	Checksums bool           // the client computes checksums, which a veth leaves out if nobody checks them
	VLAN      lane.VLAN      // the tags of all frames on the wire; the client does not see them
}

// Steps returns the steps that make the wire. It carries frames of its MTU. joined makes both ends join
// frames (GRO), as drivers of network cards do; a veth does not by itself.
func (w Wire) Steps(joined bool) ([]journal.Step, error) {
	if w.VLAN.Outer > 0 {
		return w.tagged(joined)
	}
	link, err := netdev.LinkStep(w.Uplink, netdev.Link{Type: netdev.Veth, GRO: joined, WireFrames: true,
		Peer: w.client(joined)})
	return []journal.Step{namespace(w.Netns, ""), link}, err
}

// tagsSize is by how many bytes frames on a wire with tags may be longer, as between switches of providers.
const tagsSize = 8

// tagged returns the steps of a wire whose other end is on the host too; the client's device is behind its
// tags.
func (w Wire) tagged(joined bool) ([]journal.Step, error) {
	far, client := w.Uplink+"-o", w.client(joined)
	client.MTU = VethMTU
	tags := Lane{Network: lane.Network{Device: far, VLAN: w.VLAN}}.tags()
	tags[len(tags)-1].link.Peer = client
	pair := netdev.Link{Type: netdev.Veth, GRO: joined, WireFrames: true, Peer: &netdev.Peer{Name: far,
		MAC: localMAC(far), MTU: VethMTU + tagsSize, GRO: joined, WireFrames: true}}
	steps := []journal.Step{namespace(w.Netns, "")}
	for _, t := range append([]tag{{w.Uplink, pair}}, tags...) {
		link, err := netdev.LinkStep(t.device, t.link)
		if err != nil {
			return nil, err
		}
		steps = append(steps, link)
	}
	return steps, nil
}

// Direct returns the steps of a wire that ends in the lane itself, with GRO at both ends.
func (w Wire) Direct(l Lane) ([]journal.Step, error) {
	inside := l.Inside()
	inside.GRO, inside.WireFrames = true, true
	link, err := netdev.LinkStep(w.Uplink, netdev.Link{Type: netdev.Veth, Peer: inside, Far: w.client(true)})
	return []journal.Step{namespace(w.Netns, ""), namespace(l.Netns(), ""), link}, err
}

// client returns the device of the client.
func (w Wire) client(joined bool) *netdev.Peer {
	return &netdev.Peer{Netns: w.Netns, Name: Device, MAC: w.MAC, Addresses: w.Addresses, GRO: joined,
		WireFrames: true, Checksums: w.Checksums}
}

// Reach makes the client and an address behind the uplink learn each other's MAC addresses, by a datagram to
// a port that nobody uses. A polling client can keep the kernel from it: macvlan forwards ARP by a work item,
// which on two CPUs may be on the client's CPU. No answer is no error.
func (w Wire) Reach(ctx context.Context, address netip.Addr) error {
	return netdev.In(w.Netns, func() error {
		to := netip.AddrPortFrom(address, 9) // discard (RFC 863)
		c, err := (&net.Dialer{}).DialContext(ctx, "udp", to.String())
		if err != nil {
			return err
		}
		defer c.Close()
		if err = c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		if _, err = c.Write([]byte{0}); err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return err
	})
}

// CongestionControl returns the steps that make TCP in namespaces use an algorithm from the creation of each
// socket. Changing it later, as programs can, is not the same: a socket created with BBR keeps its pacing
// timers.
func CongestionControl(name string, namespaces ...string) []journal.Step {
	var steps []journal.Step
	for _, ns := range namespaces {
		steps = append(steps, journal.Step{Kind: change.KindSysctl, After: name,
			Target: change.SysctlTarget(ns, "net/ipv4/tcp_congestion_control")})
	}
	return steps
}
