package testbed

import (
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/probe/router"
	"isolane.dev/isolane/prove/scenario"
)

// A session says that a host's own algorithm of TCP paces, unless its scenario has another one.
func TestCongestionNote(t *testing.T) {
	for _, c := range []struct {
		host, scenario string
		says           bool
	}{{"bbr", "", true}, {"cubic", "", false}, {"bbr", "reno", false}} {
		var sc scenario.Scenario
		sc.Spec.Probes = []scenario.Probe{{Name: "get", Probe: router.Probe{}}}
		sc.Spec.CongestionControl = c.scenario
		r := Bed{Scenario: sc, Root: fstest.MapFS{"proc/sys/net/ipv4/tcp_congestion_control": {Data: []byte(c.host + "\n")}}}
		if note := r.CongestionNote(); strings.Contains(note, "host's, bbr, which paces") != c.says {
			t.Errorf("%s, and in the scenario %q: %q", c.host, c.scenario, note)
		}
	}
}
