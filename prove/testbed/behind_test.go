package testbed

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/change/netdev/queues"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/frames"
	"isolane.dev/isolane/probe/router"
	"isolane.dev/isolane/prove/network"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// Where the kernel has VLAN devices, each instance has two tags on one wire, the same at both ends and no others';
// else a bridge of its own. The session says which.
func TestBehind(t *testing.T) {
	var sc scenario.Scenario
	sc.Spec.Probes = []scenario.Probe{{Name: "get", Probe: router.Probe{}}}
	with := fstest.MapFS{"proc/net/vlan/config": {}}
	without := fstest.MapFS{"proc/sys/kernel/osrelease": {Data: []byte("6.1\n")}}
	cell := results.Cell{Application: cpuset.Of(2), Client: cpuset.Of(1)}
	for want, root := range map[string]fstest.MapFS{"100 by 802.1ad": with, "without VLAN tags (QinQ)": without} {
		r := Bed{Scenario: sc, Root: root, Paths: []Path{bridge.Path{}}}
		if note := r.BehindNote(); !strings.Contains(note, want) {
			t.Errorf("%q, want %q", note, want)
		}
		steps, err := r.beyond(cell, factor.Conditions{Place: factor.Anywhere, Instances: 3}, 3)
		if err != nil {
			t.Fatal(err)
		}
		bridges, ends := map[string]int{}, map[string]bool{}
		for _, s := range steps {
			if err = change.Ops("/")[s.Kind].Check(s); err != nil {
				t.Error(err)
			}
			if s.Kind != netdev.KindLink {
				continue
			}
			var l netdev.Link
			if err = json.Unmarshal([]byte(s.After), &l); err != nil {
				t.Fatal(err)
			}
			if l.Peer == nil || l.Peer.Netns == "" {
				continue // a bridge, or of the trunk
			}
			between := l.Master
			if l.Type == netdev.VLAN {
				between = string(rune('0' + l.Tag))
			}
			bridges[between]++
			ends[l.Peer.Netns+" "+l.Peer.Name+" "+l.Parent] = true
		}
		parent := map[bool]string{true: "islp-edge.s"}[want == "100 by 802.1ad"]
		if len(bridges) != 3 || len(ends) != 6 || !ends[network.ApplicationNetns(2)+" "+probe.Behind+" "+parent] {
			t.Errorf("%s: %v, %v", want, bridges, ends)
		}
		for name, n := range bridges {
			if n != 2 {
				t.Errorf("%s connects %d ends, want 2", name, n)
			}
		}
	}
}

// What the kernel does for an application comes to the application's CPUs, where it is the kernel that does it.
func TestInKernel(t *testing.T) {
	cell := results.Cell{Application: cpuset.Of(2), Client: cpuset.Of(1)}
	for settings, want := range map[string][]journal.Step{
		"{}": nil,
		"{forwarder: kernel}": {queues.ReceiversStep(network.ApplicationNetns(0), netpath.Device, cell.Application),
			queues.ReceiversStep(network.ApplicationNetns(1), netpath.Device, cell.Application)},
	} {
		p, err := frames.Driver{}.Read([]byte(settings))
		if err != nil {
			t.Fatal(err)
		}
		r := Bed{Root: fstest.MapFS{}, Paths: []Path{bridge.Path{}}}
		r.Scenario.Spec.Probes = []scenario.Probe{{Name: "load", Probe: p}}
		steps, err := r.beyond(cell, factor.Conditions{Place: factor.Anywhere}, 2)
		if err != nil || !slices.Equal(steps, want) {
			t.Errorf("%s: %v, %v", settings, steps, err)
		}
	}
}
