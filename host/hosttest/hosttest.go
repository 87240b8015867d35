// Package hosttest makes hosts for tests, and says which tests this machine cannot run.
package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"testing/fstest"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

// Feature is something that a test needs of the machine; it returns why that is missing, or "".
type Feature func() string

// Need skips the test with the reason where this machine lacks a feature.
func Need(tb testing.TB, needed ...Feature) {
	tb.Helper()
	for _, missing := range needed {
		if why := missing(); why != "" {
			tb.Skip("skipped: " + why)
		}
	}
}

// Root is the right to change the host.
func Root() string {
	if os.Geteuid() != 0 {
		return "needs root"
	}
	return ""
}

// BPF is a kernel that takes eBPF programs from this process.
func BPF() string {
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		return fmt.Sprintf("needs eBPF: %v", err)
	}
	return ""
}

// Cpuset is a cgroup hierarchy with the cpuset controller.
func Cpuset() string {
	h, err := host.Read(host.Live())
	if err != nil {
		return err.Error()
	}
	for _, c := range h.Kernel.Cgroup.UnifiedControllers {
		if c == "cpuset" {
			return ""
		}
	}
	if h.Kernel.Cgroup.CpusetV1 == nil {
		return "needs a cgroup hierarchy with the cpuset controller"
	}
	return ""
}

// CPUs is at least n usable CPUs.
func CPUs(n int) Feature {
	return func() string {
		h, err := host.Read(host.Live())
		if err != nil {
			return err.Error()
		}
		if h.Usable().Len() < n {
			return fmt.Sprintf("needs %d CPUs", n)
		}
		return ""
	}
}

// Program is a program on the PATH.
func Program(name string) Feature {
	return func() string {
		if _, err := exec.LookPath(name); err != nil {
			return "needs " + name
		}
		return ""
	}
}

// Machine describes a host to be made up: CPUs are numbered thread by thread, first all first
// threads, package after package and core after core, as most firmware does.
type Machine struct {
	Packages, CoresPerPackage, ThreadsPerCore int
	NodesPerPackage                           int        // 0 is 1
	CoresPerL3                                int        // 0: all of a package
	Offline                                   cpuset.Set // their topology is gone, as in sysfs
	// EfficiencyCores are the last of each package; they have one thread, and the machine is hybrid.
	EfficiencyCores int
}

// core is one core of a machine: its CPUs and where it lies.
type core struct {
	cpus          []int
	pkg, node, l3 int
	efficiency    bool
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
			efficiency := within >= m.CoresPerPackage
			if efficiency && thread > 0 {
				continue
			}
			c := &cores[i]
			c.pkg, c.efficiency = i/perPackage, efficiency
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
			sets[key(c)] = sets[key(c)].Union(cpuset.Of(c.cpus...)).Difference(m.Offline)
		}
		return sets
	}
	packages, nodes, l3s := by(func(c core) int { return c.pkg }), by(func(c core) int { return c.node }), by(func(c core) int { return c.l3 })
	var all, performance, efficiency cpuset.Set
	for number, c := range cores {
		siblings := cpuset.Of(c.cpus...).Difference(m.Offline)
		all = all.Union(cpuset.Of(c.cpus...))
		if c.efficiency {
			efficiency = efficiency.Union(siblings)
		} else {
			performance = performance.Union(siblings)
		}
		for _, id := range c.cpus {
			dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", id)
			put(dir+"uevent", "")
			if m.Offline.Contains(id) {
				continue
			}
			put(dir+"topology/core_id", number%(m.CoresPerPackage+m.EfficiencyCores)) // unique in its package only
			put(dir+"topology/thread_siblings_list", siblings)
			put(dir+"topology/core_siblings_list", packages[c.pkg])
			put(dir+"cache/index2/level", 2)
			put(dir+"cache/index2/type", "Unified")
			put(dir+"cache/index2/shared_cpu_list", siblings)
			put(dir+"cache/index3/level", 3)
			put(dir+"cache/index3/type", "Unified")
			put(dir+"cache/index3/shared_cpu_list", l3s[c.l3])
		}
	}
	put("sys/devices/system/cpu/online", all.Difference(m.Offline))
	for id, cpus := range nodes {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", id)
		put(dir+"cpulist", cpus)
		put(dir+"meminfo", fmt.Sprintf("Node %d MemTotal: 16777216 kB", id))
	}
	if m.EfficiencyCores > 0 {
		put("sys/devices/cpu_core/cpus", performance)
		put("sys/devices/cpu_atom/cpus", efficiency)
	}
	return files
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
