// Package drivers has the network paths of this version, for the commands and for programs that use the
// library as they do.
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

// Paths returns the ways for packets to reach a workload. spec.network.path: auto takes the first that can
// be, and a scenario without a path the last.
func Paths() []netpath.Path {
	return []netpath.Path{sriov.Path{}, ovs.Path{DPDK: true}, express.Path{}, macvlan.Path{}, ovs.Path{},
		bridge.Path{GRO: true}, vpp.Path{}, bridge.Path{}}
}

// Ops returns the kinds of steps that they bring.
func Ops() map[string]journal.Op {
	ops := ovs.Ops()
	maps.Copy(ops, express.Ops())
	maps.Copy(ops, sriov.Ops())
	maps.Copy(ops, vpp.Ops())
	return ops
}
