package host_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
)

func TestThisMachine(t *testing.T) {
	h, err := host.Read(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	usable := cpuset.Set{}
	for _, core := range h.Cores() {
		if core.Intersects(usable) {
			t.Errorf("CPU in two cores: %s", core)
		}
		usable = usable.Union(core)
	}
	if usable != h.Usable() || usable.IsEmpty() || h.MemoryBytes == 0 || h.Kernel.Release == "" || len(h.Interrupts) == 0 {
		t.Errorf("cores hold %s of %s; memory %d, kernel %q, %d interrupts", usable, h.Usable(), h.MemoryBytes, h.Kernel.Release, len(h.Interrupts))
	}
	if len(h.Warnings) > 0 {
		t.Errorf("warnings: %q", h.Warnings)
	}
}

func cores(h host.Host) string {
	var all []string
	for _, c := range h.Cores() {
		all = append(all, c.String())
	}
	return strings.Join(all, " ")
}

func TestMachines(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine hosttest.Machine
		cores   string
		nodes   string
	}{
		{"two packages with raw core ids that repeat", hosttest.Machine{Packages: 2, CoresPerPackage: 2, ThreadsPerCore: 2}, "0,4 1,5 2,6 3,7", "0-1,4-5 2-3,6-7"},
		{"hybrid", hosttest.Machine{Packages: 1, CoresPerPackage: 2, EfficiencyCores: 2, ThreadsPerCore: 2}, "0,4 1,5 2 3", "0-5"},
		{"half offline", hosttest.Machine{Packages: 2, CoresPerPackage: 2, ThreadsPerCore: 2, Offline: cpuset.MustParse("4-6")}, "0 1 2 3,7", "0-1 2-3,7"},
		{"four nodes", hosttest.Machine{Packages: 2, NodesPerPackage: 2, CoresPerPackage: 4, ThreadsPerCore: 1, CoresPerL3: 2}, "0 1 2 3 4 5 6 7", "0-1 2-3 4-5 6-7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := c.machine.Host(t)
			if got := cores(h); got != c.cores {
				t.Errorf("cores %s, want %s", got, c.cores)
			}
			var nodes []string
			for _, n := range h.NUMANodes {
				nodes = append(nodes, n.CPUs.String())
			}
			if got := strings.Join(nodes, " "); got != c.nodes {
				t.Errorf("nodes %s, want %s", got, c.nodes)
			}
		})
	}
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 2, EfficiencyCores: 2, ThreadsPerCore: 2}.Host(t)
	if c, _ := h.CPU(3); c.Kind != host.Efficiency || *c.Core != 3 || *c.L3 != 0 {
		t.Errorf("CPU 3 of the hybrid machine: %+v", c)
	}
}

// What is missing is null, what contradicts itself is a warning, and nothing panics.
func TestBrokenMachines(t *testing.T) {
	if _, err := host.Read(fstest.MapFS{}); err == nil {
		t.Error("an empty tree is a machine")
	}
	root := hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 2}.FS()
	root["sys/devices/system/cpu/cpu2/topology/thread_siblings_list"].Data = []byte("1-0\n")
	root["sys/devices/system/cpu/cpu3/topology/thread_siblings_list"].Data = []byte("0,3\n")
	root["sys/devices/system/node/node1/cpulist"] = &fstest.MapFile{Data: []byte("1\n")}
	root["proc/interrupts"] = &fstest.MapFile{Data: []byte("  CPU0 CPU1\n 1: 5\nNMI: x\n 2: 1 2 chip 3-edge nic rx\nERR: 0\n")}
	h, err := host.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := h.CPU(2); c.Core != nil {
		t.Errorf("a backwards sibling list gave core %d", *c.Core)
	}
	if c, _ := h.CPU(1); c.NUMANode != nil {
		t.Errorf("a CPU in two nodes is in node %d", *c.NUMANode)
	}
	if len(h.Warnings) < 2 || len(h.Interrupts) != 2 || h.Interrupts[1].Name != "nic rx" {
		t.Errorf("warnings %q, interrupts %+v", h.Warnings, h.Interrupts)
	}
	data, err := json.Marshal(h)
	if err != nil || !strings.Contains(string(data), `"core":null`) {
		t.Errorf("%s, %v", data, err)
	}
}

func FuzzInterruptNames(f *testing.F) {
	f.Add("   CPU0 CPU1\n 24: 1 2 IO-APIC 5-edge nic\n")
	f.Fuzz(func(_ *testing.T, text string) { host.ParseInterruptNames(text) })
}

func FuzzTopology(f *testing.F) {
	f.Add("0,4", "0-7", "Node 0 MemTotal: 5 kB", "10 20")
	f.Fuzz(func(_ *testing.T, siblings, node, meminfo, distance string) {
		root := hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 2}.FS()
		root["sys/devices/system/cpu/cpu1/topology/thread_siblings_list"].Data = []byte(siblings)
		root["sys/devices/system/node/node0/cpulist"].Data = []byte(node)
		root["sys/devices/system/node/node0/meminfo"].Data = []byte(meminfo)
		root["sys/devices/system/node/node0/distance"] = &fstest.MapFile{Data: []byte(distance)}
		h, err := host.Read(root)
		if err == nil {
			h.Cores()
		}
	})
}

func BenchmarkRead(b *testing.B) {
	root := hosttest.Machine{Packages: 2, CoresPerPackage: 64, ThreadsPerCore: 2, CoresPerL3: 8}.FS()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := host.Read(root); err != nil {
			b.Fatal(err)
		}
	}
}
