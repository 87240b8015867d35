package examples_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"isolane.dev/isolane/examples"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

const twoNodes = "hwloc/32intel64-2p8co2t+8ve.tar.bz2" // a real machine: 0,16 … 7,23 on node 0, 8,24 … 15,31 on node 1

// placed is where each example goes, on a machine that has what it asks for.
func placed() map[string]struct{ machine, device, want string } {
	return map[string]struct{ machine, device, want string }{
		"web.yaml":      {twoNodes, "", "web=1-2,17-18 node 0"},
		"pinned.yaml":   {twoNodes, "", "pinned=1-2,17 node 0"},
		"vpp.yaml":      {twoNodes, "enp96s0f0", "router=1-4 node 0 idle 17-20"},
		"vm.yaml":       {twoNodes, "", "vm=1-3,17-19 node 0"},
		"realtime.yaml": {twoNodes, "", "control=1 node 0 idle 17"},
		"shared.yaml":   {twoNodes, "", "metrics=1,17 node 0; logs=1,17 node 0"},
		"apart.yaml":    {twoNodes, "", "db=1-2,17-18 node 0; replica=8-9,24-25 node 1; app=3,19 node 0"},
		"network.yaml":  {twoNodes, "enp96s0f0", "server=1,17 node 0"},
		"hybrid.yaml":   {"hybrid", "", "fast=1-2 node 0 idle 13-14; batch=4-7 node 0"},
	}
}

// machine is a snapshot, or one that is made up.
func machine(t *testing.T, name string) host.Host {
	t.Helper()
	if name == "hybrid" {
		return hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 2, EfficiencyCores: 8}.Host(t)
	}
	h, err := host.Read(hosttest.Snapshot(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Each example is read, placed, and placed as it says.
func TestExamples(t *testing.T) {
	files, err := examples.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(f.Name(), func(t *testing.T) {
			m, ok := placed()[f.Name()]
			if !ok {
				t.Fatal("expected a machine for it in the table")
			}
			text, err := examples.Files.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			if m.device != "" {
				text = bytes.ReplaceAll(text, []byte("ens1f0"), []byte(m.device))
			}
			lanes, err := lane.Parse(f.Name(), bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			p, err := solver.Solve(machine(t, m.machine), plan.Placement{}, lanes)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(p); got != m.want {
				t.Errorf("got  %s\nwant %s", got, m.want)
			}
		})
	}
}

func show(p plan.Placement) string {
	var all []string
	for _, l := range p.Lanes {
		text := fmt.Sprintf("%s=%s node %s", l.Name, l.CPUs, l.MemoryNodes)
		if !l.Idle.IsEmpty() {
			text += fmt.Sprintf(" idle %s", l.Idle)
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}
