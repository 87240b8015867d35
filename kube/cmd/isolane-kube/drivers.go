package main

import (
	"maps"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/netpath/macvlan"
	"isolane.dev/isolane/netpath/ovs"
	"isolane.dev/isolane/netpath/sriov"
	"isolane.dev/isolane/netpath/vpp"
)

// options are those of this host. The paths are the same as those of the command isolane: pods' lanes have
// none, and lanes that isolane apply has put in force on the host keep theirs.
func options() lanes.Options {
	ops := ovs.Ops()
	for _, more := range []map[string]journal.Op{express.Ops(), sriov.Ops(), vpp.Ops()} {
		maps.Copy(ops, more)
	}
	return lanes.Options{Ops: ops, Paths: []netpath.Path{sriov.Path{}, ovs.Path{DPDK: true}, express.Path{},
		macvlan.Path{}, ovs.Path{}, bridge.Path{GRO: true}, vpp.Path{}, bridge.Path{}}}.Complete()
}
