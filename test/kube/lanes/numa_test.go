package lanes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"isolane.dev/isolane/test/kube/bed"
)

// A lane with whole cores of the second NUMA node: its container has a CPU and the memory of that node, the other thread of
// the core is nobody's, and a lane of the first node is beside it.
func TestNodes(t *testing.T) {
	second, err := os.ReadFile("/sys/devices/system/node/node1/cpulist")
	siblings, serr := os.ReadFile("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
	if err != nil || serr != nil || len(list(t, strings.TrimSpace(string(siblings)))) < 2 {
		t.Skip("skipped: needs two NUMA nodes and cores of two threads")
	}
	c := start(t, bed.Options{})
	c.run(t)
	c.spin(t, "noisy", "", "6")
	on := func(node, capacity, spec string) string {
		return strings.Replace(request(capacity, spec), "deviceClassName: lane.isolane.dev,",
			`deviceClassName: lane.isolane.dev, selectors: [{cel: {expression: "device.attributes[\"resource.kubernetes.io\"].numaNode == `+
				node+`"}}],`, 1)
	}
	far := pod{name: "far", claims: map[string]string{"lane": on("1", `{cpus: "1"}`, "{cpus: {smt: isolate}}")},
		all: []container{{name: "main", claim: "lane", cpus: "2", args: `"2"`}}}
	near := pod{name: "near", claims: map[string]string{"lane": on("0", `{cpus: "2"}`, "{cpus: {smt: pack}}")},
		all: []container{{name: "main", claim: "lane", cpus: "2", args: `"4"`}}}
	c.applyPod(t, far)
	c.applyPod(t, near)
	c.ready(t, "far")
	c.ready(t, "near")
	lanes := map[string]string{"far": c.cpusOf(t, "far"), "near": c.cpusOf(t, "near")}
	c.eachApart(t, lanes, "noisy")
	for name, of := range map[string]struct {
		node string
		cpus int
	}{"far": {"1", 1}, "near": {"0", 2}} {
		own := list(t, lanes[name])
		if len(own) != of.cpus {
			t.Errorf("%s has CPUs %s, expected %d", name, lanes[name], of.cpus)
		}
		for id := range own {
			if there := list(t, strings.TrimSpace(string(second)))[id]; there != (of.node == "1") {
				t.Errorf("%s has CPU %d, expected one of node %s (node 1 has %s)", name, id, of.node, second)
			}
		}
		group, gerr := c.cgroupOf(name)
		if gerr != nil {
			t.Fatal(gerr)
		}
		for file, want := range map[string]string{"cpuset.mems.effective": of.node,
			"cpuset.cpus.partition": map[string]string{"far": "isolated", "near": "root"}[name]} {
			text, ferr := os.ReadFile(filepath.Join(group, file))
			if got := strings.TrimSpace(string(text)); ferr != nil || got != want {
				t.Errorf("%s: %s/%s: %q, %v; expected %q", name, group, file, got, ferr, want)
			}
		}
	}
	core, err := os.ReadFile("/sys/devices/system/cpu/cpu" + lanes["far"] + "/topology/thread_siblings_list")
	if err != nil {
		t.Fatal(err)
	}
	for _, th := range threadsOf(append(c.processes(t, "noisy"), c.processes(t, "near")...)...) {
		if wrong(nil, list(t, strings.TrimSpace(string(core))), list(t, th.allowed)) {
			t.Errorf("thread %d of others may use CPUs %s; %s are the core of a lane alone", th.tid, th.allowed, core)
		}
	}
	c.deletePod(t, far)
	c.deletePod(t, near)
	c.until(t, "the lanes are released", c.noLanes)
}
