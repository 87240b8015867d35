package lanes_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// On a machine of two NUMA nodes whose cores have two threads, a pod gets a whole core of the node that it
// selects, and memory from nowhere else. Nobody uses the second thread of that core.
func TestNUMA(t *testing.T) {
	dirs, _ := filepath.Glob("/sys/devices/system/node/node[01]")
	threads := read(t, "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
	if len(dirs) < 2 || len(list(t, threads)) != 2 {
		t.Skip("skipped: needs two NUMA nodes, and cores of two threads")
	}
	c := share(t)
	c.run(t)
	c.spin(t, "noisy", "", "8")
	var pods []pod
	lanes, owned := map[string]string{}, map[int]bool{}
	for node := range 2 {
		p := pod{name: fmt.Sprint("edge", node), all: []container{{name: "main", claim: "lane", cpus: `2", memory: "64Mi`, args: `"2"`}}}
		devices := fmt.Sprintf(`, selectors: [{cel: {expression: 'device.attributes["resource.kubernetes.io"].numaNode == %d'}}], capacity:`, node)
		p.claims = map[string]string{"lane": strings.Replace(request(`{cores: "1", memory: 64Mi}`, "{cpus: {smt: isolate}}"), ", capacity:", devices, 1)}
		c.applyPod(t, p)
		pods = append(pods, p)
	}
	for node, p := range pods {
		c.readyWithin(t, p.name, 3*time.Minute)
		cpus := c.cpusOf(t, p.name)
		lanes[p.name] = cpus
		for id := range list(t, cpus) {
			siblings := list(t, read(t, fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", id)))
			maps.Copy(owned, siblings)
		}
		if own := list(t, read(t, fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", node))); wrong(own, nil, list(t, cpus)) {
			t.Errorf("%s has CPUs %s, NUMA node %d has %v", p.name, cpus, node, own)
		}
		for _, pid := range c.processes(t, p.name) {
			c.memoryOn(t, pid, node)
		}
	}
	c.eachApart(t, lanes, "noisy")
	if len(owned) != 4 {
		t.Errorf("two cores of two threads, found CPUs %v", slices.Sorted(maps.Keys(owned)))
	}
	for _, pid := range c.processes(t, "noisy") {
		for _, th := range threadsOf(pid) {
			if wrong(nil, owned, list(t, th.allowed)) {
				t.Errorf("thread %d of another pod may use CPUs %s, the lanes own %v", th.tid, th.allowed, slices.Sorted(maps.Keys(owned)))
			}
		}
	}
	for _, p := range pods {
		c.deletePod(t, p)
	}
	c.until(t, "the lanes are released", c.noLanes)
}

// memoryOn checks where a process may have memory, and where its own pages are (proc(5), numa_maps).
func (c *cluster) memoryOn(t *testing.T, pid, node int) {
	t.Helper()
	status := read(t, fmt.Sprintf("/proc/%d/status", pid))
	if !strings.Contains(status, fmt.Sprintf("Mems_allowed_list:\t%d\n", node)) {
		t.Errorf("process %d: %s", pid, regexp.MustCompile("Mems_allowed_list:.*").FindString(status))
	}
	pages := 0
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/numa_maps", pid))) {
		if !strings.Contains(line, " anon=") || strings.Contains(line, " file=") { // pages of files are also those of others
			continue
		}
		for _, m := range regexp.MustCompile(` N(\d+)=(\d+)`).FindAllStringSubmatch(line, -1) {
			if pages++; m[1] != fmt.Sprint(node) {
				t.Errorf("process %d: pages on NUMA node %s, expected %d: %s", pid, m[1], node, line)
			}
		}
	}
	if pages == 0 {
		t.Errorf("process %d has no pages of its own", pid)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}
