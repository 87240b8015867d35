// Package network has the names and addresses of a session's networks: the wire to the outside client, the
// namespaces of the application's instances, and what is behind instances that stand between two networks.
package network

import (
	"errors"
	"fmt"
	"net/netip"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/change/netdev/queues"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/layout"
)

// addresses returns the addresses of one end, from the ranges for benchmarks (RFC 2544, 198.18.0.0/15) and
// for private use (RFC 4193, fd00::/8), which no other link of a host uses.
func addresses(n byte) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, n}), 24),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x15, 0x01, 0xa0, 15: n}), 64)}
}

// ApplicationAddresses returns the addresses of an instance of the application. A factor limits their number.
func ApplicationAddresses(instance int) []netip.Prefix { return addresses(byte(2 + instance)) }

// ApplicationNetns returns the namespace of an instance of the application, in a lane or not.
func ApplicationNetns(instance int) string {
	return netpath.Lane{Name: layout.Instance(instance)}.Netns()
}

// Wire returns the wire with the outside client at its other end.
func Wire() netpath.Wire {
	return netpath.Wire{Uplink: "islp-wire", Netns: "isolane-prove-client", MAC: "02:15:01:a0:00:01",
		Addresses: addresses(1)}
}

// BehindNetns returns the namespace of the client behind an instance.
func BehindNetns(instance int) string { return fmt.Sprintf("isolane-prove-behind-%d", instance+1) }

// The trunk is one wire for all networks behind the instances. Each has two tags on it: the same outer one
// for all, and the number of the instance inside.
const (
	trunkInside  = "islp-edge"   // the application's end
	trunkOutside = "islp-access" // the client's
	OuterTag     = 100
	usualMTU     = 1500
	tagsSize     = 8 // by which a frame may be longer, as between switches of providers
)

// outer returns the device that takes the outer tag off at an end of the trunk.
func outer(end string) string { return end + ".s" }

// Trunk returns the steps of the trunk, which joins no frames that are taken raw. At its ends the CPUs of
// each side handle what comes in.
func Trunk(raw bool, application, client cpuset.Set) (steps []journal.Step, err error) {
	add := func(name string, l netdev.Link) {
		s, lerr := netdev.LinkStep(name, l)
		steps, err = append(steps, s), errors.Join(err, lerr)
	}
	add(trunkInside, netdev.Link{Type: netdev.Veth, GRO: !raw, WireFrames: true, Peer: &netdev.Peer{
		Name: trunkOutside, MAC: "02:15:01:a0:03:01", MTU: usualMTU + tagsSize, GRO: true, WireFrames: true}})
	for _, end := range []string{trunkInside, trunkOutside} {
		add(outer(end), netdev.Link{Type: netdev.VLAN, Parent: end, Tag: OuterTag, Service: true})
	}
	return append(steps, queues.ReceiversStep("", trunkInside, application),
		queues.ReceiversStep("", trunkOutside, client)), err
}

// Behind returns the steps of the network behind an instance: the namespace of its client, and what connects
// the two, which is tags on the trunk or a bridge. No frame is longer than on a wire, and the ends of trunk
// or bridge join frames, as network cards do, unless they are taken raw.
func Behind(instance int, tagged, raw bool, application, client cpuset.Set) ([]journal.Step, error) {
	n := instance + 1
	master := fmt.Sprintf("islp-lan%d", n)
	steps := []journal.Step{{Kind: netdev.KindNamespace, Target: BehindNetns(instance), After: netdev.Present}}
	var err error
	if !tagged {
		var bridge journal.Step
		bridge, err = netdev.LinkStep(master, netdev.Link{Type: netdev.Bridge})
		steps = append([]journal.Step{bridge}, steps...)
	}
	for _, end := range []struct {
		port, mac, netns, device, trunk string
		cpus                            cpuset.Set
	}{
		{"islp-in%d", "02:15:01:a0:01:%02x", ApplicationNetns(instance), probe.Behind, trunkInside, application},
		{"islp-out%d", "02:15:01:a0:02:%02x", BehindNetns(instance), netpath.Device, trunkOutside, client},
	} {
		l := netdev.Link{Type: netdev.Veth, Master: master, Peer: &netdev.Peer{Netns: end.netns, Name: end.device,
			MAC: fmt.Sprintf(end.mac, n), GRO: true, WireFrames: true, Checksums: raw}}
		if tagged {
			l.Type, l.Master, l.Parent, l.Tag, l.Peer.MTU = netdev.VLAN, "", outer(end.trunk), n, usualMTU
		}
		link, lerr := netdev.LinkStep(fmt.Sprintf(end.port, n), l)
		steps, err = append(steps, link), errors.Join(err, lerr)
		if !tagged { // else the trunk's ends have them
			steps = append(steps, queues.ReceiversStep(end.netns, end.device, end.cpus))
		}
	}
	return steps, err
}
