// Package host describes a machine as its kernel does: CPUs, caches, NUMA nodes, interrupts, boot
// and run-time settings, read from an fs.FS that is / or looks like it. Reading changes nothing.
//
// Identifiers are unique over the whole machine and made from the kernel's sibling lists: a raw
// core_id is unique only within its package. What the source does not say is nil, never a guess;
// contradictions become warnings.
package host

import (
	"io/fs"
	"os"

	"isolane.dev/isolane/cpuset"
)

// APIVersion and Kind head the JSON document.
const (
	APIVersion = "isolane.dev/v1alpha1"
	Kind       = "Host"
)

// Host is one machine at one moment.
type Host struct {
	APIVersion  string      `json:"apiVersion"`
	Kind        string      `json:"kind"`
	Hostname    string      `json:"hostname"`
	CPUs        []CPU       `json:"cpus"` // by id
	NUMANodes   []NUMANode  `json:"numaNodes"`
	MemoryBytes uint64      `json:"memoryBytes"`
	Interrupts  []Interrupt `json:"interrupts"`
	Kernel      Kernel      `json:"kernel"`
	Warnings    []string    `json:"warnings"`
}

// The kinds of CPU.
const (
	Performance = "performance"
	Efficiency  = "efficiency"
	Uniform     = "uniform" // all CPUs of the machine are alike
)

// CPU is a logical CPU. Package, Die, L2, L3 and Core are numbers that are unique over the machine:
// the lowest CPU of the group. They are nil of an offline CPU, and where the kernel says nothing.
type CPU struct {
	ID       int    `json:"id"` // the kernel's number
	Online   bool   `json:"online"`
	Allowed  *bool  `json:"allowed"` // by the cpuset in force for the reading process
	Package  *int   `json:"package"`
	Die      *int   `json:"die"`
	NUMANode *int   `json:"numaNode"` // the kernel's number
	L3       *int   `json:"l3"`
	L2       *int   `json:"l2"`
	Core     *int   `json:"core"`
	Thread   *int   `json:"thread"` // place among the siblings of its core, from 0
	Kind     string `json:"kind"`
}

// NUMANode is a memory node; one without CPUs has none.
type NUMANode struct {
	ID          int         `json:"id"`
	CPUs        cpuset.Set  `json:"cpus"`
	MemoryBytes uint64      `json:"memoryBytes"`
	Distances   []int       `json:"distances"` // to the nodes in the order of their ids
	Hugepages   []Hugepages `json:"hugepages"`
}

// Hugepages are those of one size on one node.
type Hugepages struct {
	PageBytes uint64 `json:"pageBytes"`
	Total     uint64 `json:"total"`
	Free      uint64 `json:"free"`
}

// Interrupt is one line of /proc/interrupts with a number, and where it may fire.
type Interrupt struct {
	IRQ       int         `json:"irq"`
	Name      string      `json:"name"`      // of its actions, "virtio2-input.0"; "" where none is registered
	Affinity  *cpuset.Set `json:"affinity"`  // asked
	Effective *cpuset.Set `json:"effective"` // in force
}

// Kernel is what the kernel says of itself.
type Kernel struct {
	Release      string     `json:"release"`
	Version      string     `json:"version"`
	Cmdline      string     `json:"cmdline"`
	BootID       string     `json:"bootID"`
	Isolated     cpuset.Set `json:"isolated"`
	NohzFull     cpuset.Set `json:"nohzFull"`
	Realtime     bool       `json:"realtime"` // PREEMPT_RT
	Cgroup       Cgroup     `json:"cgroup"`
	Clocksource  string     `json:"clocksource"`
	IdleDriver   string     `json:"idleDriver"`
	IdleGovernor string     `json:"idleGovernor"`
	Hypervisor   bool       `json:"hypervisor"`
	CPUModel     string     `json:"cpuModel"`
}

// Cgroup says where the hierarchies are mounted.
type Cgroup struct {
	Version            string   `json:"version"`  // v1, v2, hybrid or none
	CpusetV1           *string  `json:"cpusetV1"` // mount point of the cpuset hierarchy
	Unified            *string  `json:"unified"`  // mount point of cgroup v2
	UnifiedControllers []string `json:"unifiedControllers"`
}

// Live returns the file system of this machine.
func Live() fs.FS { return os.DirFS("/") }

// Read reads the machine under root.
func Read(root fs.FS) (Host, error) {
	r := &reader{root: root}
	h := Host{APIVersion: APIVersion, Kind: Kind, Hostname: r.text("proc/sys/kernel/hostname")}
	h.CPUs = r.cpus()
	h.NUMANodes = r.nodes(h.CPUs)
	h.MemoryBytes = r.meminfo("proc/meminfo", "MemTotal:")
	h.Interrupts = r.interrupts()
	h.Kernel = r.kernel()
	h.Warnings = r.warnings
	return h, r.err
}

// Online returns the CPUs that run.
func (h Host) Online() cpuset.Set {
	return h.where(func(c CPU) bool { return c.Online })
}

// Usable returns the CPUs that run and that this process may use.
func (h Host) Usable() cpuset.Set {
	return h.where(func(c CPU) bool { return c.Online && (c.Allowed == nil || *c.Allowed) })
}

func (h Host) where(is func(CPU) bool) cpuset.Set {
	var ids []int
	for _, c := range h.CPUs {
		if is(c) {
			ids = append(ids, c.ID)
		}
	}
	return cpuset.Of(ids...)
}

// Cores returns the usable CPUs by core, each set in the order of the CPUs' lowest number. A CPU
// whose core is not known is a core of its own.
func (h Host) Cores() []cpuset.Set {
	usable := h.Usable()
	byCore := map[int][]int{}
	var order []int
	for _, c := range h.CPUs {
		if !usable.Contains(c.ID) {
			continue
		}
		core := c.ID
		if c.Core != nil {
			core = *c.Core
		}
		if byCore[core] == nil {
			order = append(order, core)
		}
		byCore[core] = append(byCore[core], c.ID)
	}
	cores := make([]cpuset.Set, 0, len(order))
	for _, core := range order {
		cores = append(cores, cpuset.Of(byCore[core]...))
	}
	return cores
}

// CPU returns the CPU of that number, or false.
func (h Host) CPU(id int) (CPU, bool) {
	for _, c := range h.CPUs {
		if c.ID == id {
			return c, true
		}
	}
	return CPU{}, false
}

// MemoryNodes returns the nodes that have memory; node 0 where the kernel knows no nodes.
func (h Host) MemoryNodes() cpuset.Set {
	var ids []int
	for _, n := range h.NUMANodes {
		if n.MemoryBytes > 0 {
			ids = append(ids, n.ID)
		}
	}
	if len(ids) == 0 {
		return cpuset.Of(0)
	}
	return cpuset.Of(ids...)
}
