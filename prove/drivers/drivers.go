// Package drivers lists what a scenario may name, for the commands and for programs that use the library.
package drivers

import (
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/factor/boot"
	owncommand "isolane.dev/isolane/factor/command"
	"isolane.dev/isolane/factor/cpus"
	"isolane.dev/isolane/factor/distance"
	"isolane.dev/isolane/factor/instances"
	ownlane "isolane.dev/isolane/factor/lane"
	"isolane.dev/isolane/factor/noise"
	"isolane.dev/isolane/factor/path"
	"isolane.dev/isolane/factor/placement"
	"isolane.dev/isolane/factor/runtime"
	"isolane.dev/isolane/factor/setting"
	"isolane.dev/isolane/netpath/direct"
	"isolane.dev/isolane/netpath/drivers"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/cyclictest"
	"isolane.dev/isolane/probe/echo"
	"isolane.dev/isolane/probe/frames"
	"isolane.dev/isolane/probe/http"
	"isolane.dev/isolane/probe/iperf3"
	"isolane.dev/isolane/probe/router"
	"isolane.dev/isolane/probe/rtla"
	"isolane.dev/isolane/probe/wakeup"
	"isolane.dev/isolane/probe/wrk"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/testbed"
)

// Paths returns the paths of lanes that scenarios can name, and the machine's limit, which no lane has.
func Paths() []testbed.Path {
	return append([]testbed.Path{direct.Path{}}, testbed.Paths(drivers.Paths())...)
}

// Kinds returns the conditions that can differ between cells, and the measuring programs.
func Kinds() scenario.Drivers {
	names := map[string]string{}
	for _, p := range Paths() {
		names[p.Name()] = p.About()
	}
	return scenario.Drivers{
		Factors: []factor.Driver{placement.Driver{}, noise.Driver{}, path.Driver{Names: names}, cpus.Driver{},
			ownlane.Driver{}, instances.Driver{}, setting.Driver{}, runtime.Driver{}, boot.Driver{},
			owncommand.Driver{}, distance.Driver{}},
		Probes: []probe.Driver{echo.Driver{}, iperf3.Driver{}, wakeup.Driver{}, cyclictest.Driver{},
			rtla.Driver{}, http.Driver{}, wrk.Driver{}, frames.Driver{}, router.Driver{}},
	}
}
