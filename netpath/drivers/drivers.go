// Package drivers lists the network paths of this version, for the commands and for programs that use the
// library.
package drivers

import (
	"maps"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/netpath/macvlan"
	"isolane.dev/isolane/netpath/ovs"
	"isolane.dev/isolane/netpath/sriov"
	"isolane.dev/isolane/netpath/vpp"
)

// Paths returns the network paths. spec.network.path: auto takes the first possible one; a scenario without a
// path takes the last.
func Paths() []netpath.Path {
	openVSwitch, dpdk := ovs.Both()
	return []netpath.Path{sriov.Path{}, dpdk, express.Path{}, macvlan.Path{}, openVSwitch,
		bridge.Path{GRO: true}, vpp.Path{}, bridge.Path{}}
}

// Ops returns the kinds of steps that the paths need.
func Ops() map[string]journal.Op {
	ops := ovs.Ops()
	maps.Copy(ops, express.Ops())
	maps.Copy(ops, sriov.Ops())
	maps.Copy(ops, vpp.Ops())
	return ops
}
