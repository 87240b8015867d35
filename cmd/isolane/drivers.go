package main

import (
	"maps"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/probe/echo"
	"isolane.dev/isolane/probe/iperf3"
	"isolane.dev/isolane/prove"
)

// paths are the ways for packets to reach a workload.
func paths() []prove.Path {
	return []prove.Path{bridge.Path{}, express.Path{}}
}

// probes are the measuring programs.
func probes() []prove.Probe {
	return []prove.Probe{echo.Driver{}, iperf3.Driver{}}
}

// ops are the step kinds of the journal and of the drivers.
func ops() map[string]journal.Op {
	all := journal.Ops("/")
	maps.Copy(all, map[string]journal.Op{express.Kind: express.Op{}, enforce.Spreader: journal.Daemon("/", "spread")})
	return all
}
