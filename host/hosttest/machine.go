package hosttest

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

// Machine describes a made-up host. CPUs are numbered thread by thread, as most firmware does: all first
// threads, package after package and core after core, then all second threads. The NUMA nodes and the L3
// caches of a package divide its cores in order. The default is one node and one L3 per package.
type Machine struct {
	Packages, CoresPerPackage, ThreadsPerCore int

	NodesPerPackage int
	CoresPerL3      int
	// EfficiencyCores are added after the cores of each package. They have one thread, four of them share an L2,
	// and they make the machine hybrid.
	EfficiencyCores int
	MemoryOnlyNodes int        // nodes with memory and without CPUs, numbered last
	Offline         cpuset.Set // they have no topology, as in sysfs
	Allowed         cpuset.Set // by the cpuset in force; empty: the source does not say
	Isolated        cpuset.Set // by the kernel
}

// core is one core of a machine: its CPUs and where it lies.
type core struct {
	cpus              []int
	pkg, node, l3, l2 int
	efficiency        bool
}

func (m Machine) cores() []core {
	perPackage := m.CoresPerPackage + m.EfficiencyCores
	nodes, perL3 := max(1, m.NodesPerPackage), m.CoresPerL3
	if perL3 == 0 {
		perL3 = perPackage
	}
	cores := make([]core, m.Packages*perPackage)
	next := 0
	for thread := range m.ThreadsPerCore {
		for i := range cores {
			within := i % perPackage
			c := &cores[i]
			c.efficiency = within >= m.CoresPerPackage
			if c.efficiency && thread > 0 {
				continue
			}
			c.pkg, c.l2 = i/perPackage, i
			if c.efficiency {
				c.l2 = i - (within-m.CoresPerPackage)%4
			}
			c.node = c.pkg*nodes + within*nodes/perPackage
			c.l3 = c.pkg*((perPackage+perL3-1)/perL3) + within/perL3
			c.cpus = append(c.cpus, next)
			next++
		}
	}
	return cores
}

// FS returns the machine's sysfs and procfs, as far as package host reads it.
func (m Machine) FS() fstest.MapFS {
	files := fstest.MapFS{}
	put := func(path string, value any) { files[path] = &fstest.MapFile{Data: []byte(fmt.Sprintln(value))} }
	cores := m.cores()
	by := func(key func(core) int) map[int]cpuset.Set {
		sets := map[int]cpuset.Set{}
		for _, c := range cores {
			sets[key(c)] = sets[key(c)].Union(cpuset.Of(c.cpus...).Difference(m.Offline))
		}
		return sets
	}
	packages, l3s := by(func(c core) int { return c.pkg }), by(func(c core) int { return c.l3 })
	l2s := by(func(c core) int { return c.l2 })
	kinds := by(func(c core) int {
		if c.efficiency {
			return 1
		}
		return 0
	})
	for number, c := range cores {
		siblings := cpuset.Of(c.cpus...).Difference(m.Offline)
		for _, id := range c.cpus {
			dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", id)
			put(dir+"uevent", "")
			if m.Offline.Contains(id) {
				continue
			}
			put(dir+"topology/core_id", number%(m.CoresPerPackage+m.EfficiencyCores)) // unique in its package only
			put(dir+"topology/physical_package_id", c.pkg)
			put(dir+"topology/thread_siblings_list", siblings)
			put(dir+"topology/core_siblings_list", packages[c.pkg])
			for level, shared := range map[int]cpuset.Set{2: l2s[c.l2], 3: l3s[c.l3]} {
				cache := fmt.Sprintf("%scache/index%d/", dir, level)
				put(cache+"level", level)
				put(cache+"type", "Unified")
				put(cache+"shared_cpu_list", shared)
			}
		}
	}
	online := kinds[0].Union(kinds[1])
	put("sys/devices/system/cpu/online", online)
	put("sys/devices/system/cpu/isolated", m.Isolated)
	put("sys/devices/system/cpu/possible", online.Union(m.Offline))
	if m.EfficiencyCores > 0 {
		put("sys/devices/cpu_core/cpus", kinds[0])
		put("sys/devices/cpu_atom/cpus", kinds[1])
	}
	if !m.Allowed.IsEmpty() {
		put("proc/self/status", "Name:\ttest\nCpus_allowed_list:\t"+m.Allowed.String())
	}
	m.putNodes(put, by(func(c core) int { return c.node }))
	return files
}

// putNodes gives each node 16 GiB. Nodes of a package are nearer to each other than to the others.
func (m Machine) putNodes(put func(string, any), nodes map[int]cpuset.Set) {
	perPackage := max(1, m.NodesPerPackage)
	count := m.Packages*perPackage + m.MemoryOnlyNodes
	for id := range count {
		var distances []string
		for other := range count {
			distance := 21
			switch {
			case other == id:
				distance = 10
			case other/perPackage == id/perPackage:
				distance = 12
			}
			distances = append(distances, fmt.Sprint(distance))
		}
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", id)
		put(dir+"cpulist", nodes[id])
		put(dir+"distance", strings.Join(distances, " "))
		put(dir+"meminfo", fmt.Sprintf("Node %d MemTotal: 16777216 kB", id))
	}
}

// Host reads the machine.
func (m Machine) Host(tb testing.TB) host.Host {
	tb.Helper()
	h, err := host.Read(m.FS())
	if err != nil || len(h.Warnings) > 0 {
		tb.Fatalf("%+v: %v, warnings %v", m, err, h.Warnings)
	}
	return h
}
