package main

import (
	"maps"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/factor/boot"
	owncommand "isolane.dev/isolane/factor/command"
	"isolane.dev/isolane/factor/cpus"
	ownlane "isolane.dev/isolane/factor/lane"
	"isolane.dev/isolane/factor/noise"
	"isolane.dev/isolane/factor/path"
	"isolane.dev/isolane/factor/placement"
	"isolane.dev/isolane/factor/runtime"
	"isolane.dev/isolane/factor/setting"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/netpath/macvlan"
	"isolane.dev/isolane/netpath/ovs"
	"isolane.dev/isolane/netpath/sriov"
	"isolane.dev/isolane/netpath/vpp"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/cyclictest"
	"isolane.dev/isolane/probe/echo"
	"isolane.dev/isolane/probe/frames"
	"isolane.dev/isolane/probe/http"
	"isolane.dev/isolane/probe/iperf3"
	"isolane.dev/isolane/probe/rtla"
	"isolane.dev/isolane/probe/wakeup"
	"isolane.dev/isolane/probe/wrk"
	"isolane.dev/isolane/prove"
	"isolane.dev/isolane/prove/scenario"
)

// paths are the ways for packets to reach a workload. spec.network.path: auto takes the first that can be,
// and a scenario without a path the last.
func paths() []netpath.Path {
	return []netpath.Path{sriov.Path{}, ovs.Path{DPDK: true}, express.Path{}, macvlan.Path{}, ovs.Path{},
		bridge.Path{GRO: true}, vpp.Path{}, bridge.Path{}}
}

// kinds are what a scenario may name: the conditions that can differ between cells, and the measuring
// programs.
func kinds() scenario.Drivers {
	names := map[string]string{}
	for _, p := range prove.Paths(paths()) {
		names[p.Name()] = p.Words()
	}
	return scenario.Drivers{
		Factors: []factor.Driver{placement.Driver{}, noise.Driver{}, path.Driver{Names: names}, cpus.Driver{},
			ownlane.Driver{}, setting.Driver{}, runtime.Driver{}, boot.Driver{}, owncommand.Driver{}},
		Probes: []probe.Driver{echo.Driver{}, iperf3.Driver{}, wakeup.Driver{}, cyclictest.Driver{},
			rtla.Driver{}, http.Driver{}, wrk.Driver{}, frames.Driver{}},
	}
}

// options are those of this host; the network paths bring kinds of steps.
func options() lanes.Options {
	ops := ovs.Ops()
	maps.Copy(ops, express.Ops())
	maps.Copy(ops, sriov.Ops())
	maps.Copy(ops, vpp.Ops())
	return lanes.Options{Paths: paths(), Ops: ops}.Complete()
}
