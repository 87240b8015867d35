package testbed

import (
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/direct"
	"isolane.dev/isolane/probe/router"
	"isolane.dev/isolane/prove/network"
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

// Tags need a kernel that has VLAN devices, and a wire; on that their devices are below those of client and lane.
func TestTagsOnTheWire(t *testing.T) {
	with := fstest.MapFS{"proc/net/vlan/config": {}}
	for _, c := range []struct {
		root       fstest.MapFS
		path, want string
	}{{with, "bridge", ""}, {with, "direct", "path direct has no wire that could carry tags"},
		{fstest.MapFS{"proc/sys/kernel/osrelease": {Data: []byte("6.0")}}, "bridge", "module 8021q is missing"}} {
		r := Bed{Root: c.root, Paths: []Path{direct.Path{}, bridge.Path{}}}
		err := r.LacksEnds(host.Host{}, factor.Conditions{Path: c.path, VLAN: lane.VLAN{Outer: 100, Inner: 7}})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.path, err, c.want)
		}
	}
	w := network.Wire()
	w.VLAN = lane.VLAN{Outer: 100, Inner: 7}
	steps, err := w.Steps(true)
	if err != nil || len(steps) != 4 {
		t.Fatal(steps, err)
	}
	for i, want := range []string{`"islp-wire-o","mac"`, `"parent":"islp-wire-o","tag":100,"service":true`, `"tag":7,"peer":{"netns":"isolane-prove-client"`} {
		if !strings.Contains(strings.ReplaceAll(steps[i+1].After, " ", ""), want) {
			t.Errorf("step %d: %s, want %s", i+1, steps[i+1].After, want)
		}
	}
}
