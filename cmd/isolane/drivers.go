package main

import (
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/echo"
	"isolane.dev/isolane/probe/iperf3"
	"isolane.dev/isolane/prove"
)

// paths are the ways for packets to reach a workload.
func paths() []prove.Path {
	return []prove.Path{bridge.Path{}, express.Path{}}
}

// probes are the measuring programs.
func probes() []probe.Driver {
	return []probe.Driver{echo.Driver{}, iperf3.Driver{}}
}

// options are those of this host; the network paths bring kinds of steps.
func options() lanes.Options {
	return lanes.Options{Ops: map[string]journal.Op{express.Kind: express.Op{}}}.Complete()
}
