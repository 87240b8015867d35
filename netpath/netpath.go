// Package netpath holds what the network paths share: the lanes that a path brings packets to, as steps, and
// the wire that stands for the network outside in measurements.
//
// Each path is a folder that returns steps; a path never changes the host itself.
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

// Wire stands for the network outside of the host in measurements: a veth pair. One end is a device of the
// host, which paths have as their uplink, and the other one that of a client in a namespace of its own.
type Wire struct {
	Uplink    string         // the device on the host
	Netns     string         // of the client: a name under /run/netns
	MAC       string         // of the client
	Addresses []netip.Prefix // of the client
	Checksums bool           // frames of the client have them, which a veth leaves out where nobody looks
	VLAN      lane.VLAN      // the tags of all frames on it, which the client does not see
}

// Steps make the wire. It carries frames of its MTU, and joined says whether both ends join them again (GRO),
// as drivers of network cards do; a veth does not by itself.
func (w Wire) Steps(joined bool) ([]journal.Step, error) {
	if w.VLAN.Outer > 0 {
		return w.tagged(joined)
	}
	link, err := netdev.LinkStep(w.Uplink, netdev.Link{Type: netdev.Veth, GRO: joined, WireFrames: true,
		Peer: w.client(joined)})
	return []journal.Step{namespace(w.Netns, ""), link}, err
}

// tagsSize is by how much frames may be longer on a wire with tags, as between switches of providers.
const tagsSize = 8

// tagged returns the steps of a wire whose other end is the host's too; behind its tags is the client's
// device.
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

// Reach lets the client and an address behind the uplink learn each other's MAC addresses, by a datagram to a
// port that nobody has. A client that polls can keep the kernel from it: macvlan hands ARP on by a work item,
// which on two CPUs has the client's. That no answer comes is no error.
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

// CongestionControl returns the steps that make TCP in namespaces use an algorithm from the first moment of a
// socket. To change it later, as programs can, is not the same: a socket that was born with BBR keeps its
// pacing timers.
func CongestionControl(name string, namespaces ...string) []journal.Step {
	var steps []journal.Step
	for _, ns := range namespaces {
		steps = append(steps, journal.Step{Kind: change.KindSysctl, After: name,
			Target: change.SysctlTarget(ns, "net/ipv4/tcp_congestion_control")})
	}
	return steps
}
