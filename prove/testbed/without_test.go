package testbed

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/direct"
	"isolane.dev/isolane/netpath/sriov"
	"isolane.dev/isolane/noise"
	"isolane.dev/isolane/probe/router"
	"isolane.dev/isolane/prove/network"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// No lane can declare the path that is the machine's limit, and scenarios can name it: one application, and nothing that
// stands between clients and servers.
func TestDirect(t *testing.T) {
	paths := []Path{direct.Path{}, bridge.Path{}}
	if paths[0].Declared(lane.Network{}) == nil || paths[0].Possible(netpath.Lane{}) == nil {
		t.Error("a lane can have it")
	}
	r := Bed{Paths: paths, Root: fstest.MapFS{}}
	for instances, refused := range []bool{false, false, true} {
		err := r.LacksEnds(host.Host{}, factor.Conditions{Path: "direct", Instances: instances})
		if (err != nil) != refused {
			t.Errorf("%d instances: %v", instances, err)
		}
	}
	r.Scenario.Spec.Probes = []scenario.Probe{{Name: "get", Probe: router.Probe{}}}
	err := r.LacksEnds(host.Host{}, factor.Conditions{Path: "direct"})
	if err == nil || !strings.Contains(err.Error(), "path direct has no wire") {
		t.Error(err)
	}
	if err = r.LacksEnds(host.Host{}, factor.Conditions{Path: "bridge", Instances: 2}); err != nil {
		t.Error(err)
	}
	networks := []netpath.Lane{netpath.Of(r.Root, "prove-application", lane.Network{Path: "direct"})}
	for _, inLane := range []bool{false, true} { // the lane has no network of its own
		steps, serr := r.pathSteps(networks, inLane)
		if serr != nil || len(steps) != 3 || steps[2].Kind != netdev.KindLink {
			t.Errorf("in a lane %t: %v, %v", inLane, steps, serr)
		}
	}
}

// CPUs of client and application count, with their interrupts, and nobody's where neighbours are to be there.
func TestBusy(t *testing.T) {
	root := fstest.MapFS{}
	stat := func(cpu1 string) {
		root["proc/stat"] = &fstest.MapFile{Data: []byte("cpu0 9 9 9 9 9 9 9 9\ncpu1 " + cpu1 + "\ncpu2 10 0 0 50 0 0 0 0\n")}
	}
	for _, c := range []struct {
		given factor.Conditions
		want  time.Duration
	}{
		{factor.Conditions{}, 600 * time.Millisecond}, // 10 + 20 + 30 ticks: user, system and softirq, not steal
		{factor.Conditions{Neighbours: []noise.Stressor{{Name: "cpu"}}}, 0},
		{factor.Conditions{Instances: 2}, 0},
	} {
		stat("100 0 100 1000 0 0 100 100")
		busy := (&Bed{Root: root}).busy(place{given: c.given, cell: results.Cell{Application: cpuset.Of(1), Client: cpuset.Of(2)}})
		stat("110 0 120 1500 0 0 130 200")
		if got := busy(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.given, got, c.want)
		}
	}
}

// Client and application have virtual functions of the first card that has enough of them free; none are made.
func TestFunctions(t *testing.T) {
	card := func(address string, functions int, used ...int) (all []host.PCIDevice) {
		pf := host.PCIDevice{Address: address, Netdevs: []string{"eth" + address}, SRIOV: &host.SRIOV{TotalVFs: 8, NumVFs: functions}}
		for i := range functions {
			vf := host.PCIDevice{Address: address + "." + string(rune('a'+i)), PF: &address}
			for _, u := range used {
				if u == i {
					vf.InUse = "eth9 is up"
				}
			}
			pf.VFs, all = append(pf.VFs, vf.Address), append(all, vf)
		}
		return append(all, pf)
	}
	var h host.Host
	for _, c := range [][]host.PCIDevice{card("0", 0), card("1", 1), card("2", 4, 0, 2)} {
		h.PCIDevices = append(h.PCIDevices, c...)
	}
	r := Bed{Root: fstest.MapFS{}, Paths: []Path{sriov.Path{}, bridge.Path{}}}
	all, err := r.functionsOf(h, 1, r.Paths[0])
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	for i, want := range []netpath.PlacedFunctions{{Card: "2", Numbers: []int{1}}, {Card: "2", Numbers: []int{3}}} {
		if f := all[i].Functions; f.Card != want.Card || f.Numbers[0] != want.Numbers[0] || f.Pool != 0 {
			t.Errorf("%s: %+v, want %+v", all[i].Name, f, want)
		}
	}
	if all[0].Netns() != network.Wire().Netns || all[0].MAC != network.Wire().MAC || all[1].Netns() != network.ApplicationNetns(0) {
		t.Errorf("%+v", all)
	}
	if err = r.LacksEnds(h, factor.Conditions{Path: "sriov", Instances: 2}); err == nil ||
		!strings.Contains(err.Error(), "no network card has 3 free virtual functions") {
		t.Error(err)
	}
	r.Scenario.Spec.Probes = []scenario.Probe{{Name: "get", Probe: router.Probe{}}}
	if note := r.FunctionsNote([]results.Cell{{Name: "a"}}); note != "" {
		t.Error(note)
	}
}
