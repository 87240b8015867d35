// Package topology invents machines for nodes: folders that look like /sys/devices/system/cpu and node.
package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Machine describes a machine. CPUs are numbered by thread: first all first threads, node after node.
type Machine struct {
	NUMANodes, CoresPerNode, ThreadsPerCore int

	MemoryPerNode int64 // bytes
}

// files collects the files of a machine.
type files struct {
	dir string
	err error
}

func (f *files) put(name string, value any) {
	file := filepath.Join(f.dir, name)
	if f.err == nil {
		f.err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if f.err == nil {
		f.err = os.WriteFile(file, fmt.Appendln(nil, value), 0o644)
	}
}

// Write writes the machine to a folder, for bed.NodeOptions. Each node is a package with one L3 cache.
func Write(dir string, m Machine) error {
	f := &files{dir: dir}
	cores := m.NUMANodes * m.CoresPerNode
	all := fmt.Sprintf("0-%d", cores*m.ThreadsPerCore-1)
	for _, name := range []string{"online", "possible", "present"} {
		f.put("cpu/"+name, all)
	}
	for _, name := range []string{"online", "possible", "has_cpu", "has_memory", "has_normal_memory"} {
		f.put("node/"+name, fmt.Sprintf("0-%d", m.NUMANodes-1))
	}
	for core := range cores {
		var siblings []string
		for thread := range m.ThreadsPerCore {
			siblings = append(siblings, fmt.Sprint(core+thread*cores))
		}
		for _, id := range siblings {
			m.putCPU(f, id, core, strings.Join(siblings, ","))
		}
	}
	for node := range m.NUMANodes {
		m.putNode(f, node)
	}
	return f.err
}

// cpus returns the CPUs of a node.
func (m Machine) cpus(node int) (ids []string) {
	for thread := range m.ThreadsPerCore {
		for core := range m.CoresPerNode {
			ids = append(ids, fmt.Sprint((thread*m.NUMANodes+node)*m.CoresPerNode+core))
		}
	}
	return ids
}

func (m Machine) putCPU(f *files, id string, core int, siblings string) {
	node := core / m.CoresPerNode
	dir := "cpu/cpu" + id + "/"
	f.put(dir+"online", 1)
	f.put(dir+"topology/core_id", core%m.CoresPerNode)
	f.put(dir+"topology/physical_package_id", node)
	f.put(dir+"topology/die_id", 0)
	f.put(dir+"topology/thread_siblings_list", siblings)
	f.put(dir+"topology/core_cpus_list", siblings)
	f.put(dir+"topology/core_siblings_list", strings.Join(m.cpus(node), ","))
	for level, shared := range map[int]string{2: siblings, 3: strings.Join(m.cpus(node), ",")} {
		cache := fmt.Sprintf("%scache/index%d/", dir, level)
		f.put(cache+"level", level)
		f.put(cache+"type", "Unified")
		f.put(cache+"size", fmt.Sprintf("%dK", 1024<<level))
		f.put(cache+"id", map[int]int{2: core, 3: node}[level])
		f.put(cache+"shared_cpu_list", shared)
	}
}

func (m Machine) putNode(f *files, node int) {
	dir := fmt.Sprintf("node/node%d/", node)
	f.put(dir+"cpulist", strings.Join(m.cpus(node), ","))
	kib := m.MemoryPerNode >> 10
	f.put(dir+"meminfo", fmt.Sprintf("Node %d MemTotal: %d kB\nNode %[1]d MemFree: %[2]d kB", node, kib))
	var distances []string
	for other := range m.NUMANodes {
		distances = append(distances, map[bool]string{true: "10", false: "21"}[other == node])
	}
	f.put(dir+"distance", strings.Join(distances, " "))
	if f.err == nil {
		f.err = os.MkdirAll(filepath.Join(f.dir, dir, "hugepages"), 0o755)
	}
	for _, id := range m.cpus(node) {
		if f.err == nil {
			f.err = os.Symlink("/sys/devices/system/cpu/cpu"+id, filepath.Join(f.dir, dir, "cpu"+id))
		}
	}
}
