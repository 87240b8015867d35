// Package host describes a machine as its kernel does: CPUs, caches, NUMA nodes, interrupts, boot
// and run-time settings, read from an fs.FS that is / or looks like it. Reading changes nothing.
//
// Words are those of hwloc if it has one. Identifiers are unique in the whole machine and made from the
// kernel's sibling lists, because a raw core_id is unique only within its package. What the source does not
// say is nil, never a guess. Contradictions become warnings.
//
//	h, err := host.Read(host.Live())
//	fmt.Println(h.Online(), h.Siblings(0), h.Warnings)
package host

import (
	"cmp"
	"io/fs"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/firmware"
)

// APIVersion and Kind head the JSON document.
const (
	APIVersion = "isolane.dev/v1alpha1"
	Kind       = "Host"
)

// Host is one machine at one moment. A string or size that the source does not say is zero here and null in
// JSON.
type Host struct {
	APIVersion  string      `json:"apiVersion"`
	Kind        string      `json:"kind"`
	Hostname    string      `json:"hostname"`
	CPUs        []CPU       `json:"cpus"`      // by id
	NUMANodes   []NUMANode  `json:"numaNodes"` // by id
	MemoryBytes uint64      `json:"memoryBytes"`
	Caches      []Cache     `json:"caches"`     // by level, type and lowest CPU
	PCIDevices  []PCIDevice `json:"pciDevices"` // by address
	Interrupts  []Interrupt `json:"interrupts"` // by number
	Kernel      Kernel      `json:"kernel"`

	Firmware *firmware.Board `json:"firmware"` // of the board; nil also if the machine was read for a plan
	Warnings []string        `json:"warnings"` // what is wrong in the source, or contradicts itself
}

// CPUKind says which kind of core a CPU belongs to; "" if it is not known.
type CPUKind string

// The kinds of CPU.
const (
	Performance CPUKind = "performance"
	Efficiency  CPUKind = "efficiency"
	Uniform     CPUKind = "uniform" // all CPUs of the machine are alike
)

// CPU is a logical CPU. Die, Cluster, L1 (of data), L2, L3 and Core are numbers that are unique in the
// machine: the lowest online CPU of the group. For an offline CPU everything but ID, Online, Allowed, Kind,
// Capacity and MaxHertz is nil.
type CPU struct {
	ID       int     `json:"id"` // the kernel's number
	Online   bool    `json:"online"`
	Allowed  *bool   `json:"allowed"`  // by the cpuset in force for the reading process
	Package  *int    `json:"package"`  // the kernel's number if that is unique, else as Die
	Die      *int    `json:"die"`      //
	NUMANode *int    `json:"numaNode"` // the kernel's number
	L3       *int    `json:"l3"`
	Cluster  *int    `json:"cluster"` // cores that share something below the L3, as the firmware says
	L2       *int    `json:"l2"`
	L1       *int    `json:"l1"`
	Core     *int    `json:"core"`
	Thread   *int    `json:"thread"` // place among the online CPUs of its core, from 0
	Kind     CPUKind `json:"kind"`
	Capacity *uint64 `json:"capacity"` // relative to the largest core, 1024 (sched-capacity.rst)
	MaxHertz *uint64 `json:"maxHertz"` // of the hardware, not of the policy in force
}

// Cache is one cache and the online CPUs that share it.
type Cache struct {
	Level     int        `json:"level"`
	Type      string     `json:"type"`      // data, instruction, unified; "": not known
	SizeBytes uint64     `json:"sizeBytes"` // 0: not known
	CPUs      cpuset.Set `json:"cpus"`
}

// PCIDevice is one function of a device on PCI.
type PCIDevice struct {
	Address   string      `json:"address"` // "0000:3b:00.0"
	Class     string      `json:"class"`   // "0x020000": base class, subclass, programming interface
	Kind      string      `json:"kind"`    // network, storage, gpu, accelerator, bridge or other, by class
	Vendor    string      `json:"vendor"`  // "0x8086"
	Device    string      `json:"device"`
	Driver    *string     `json:"driver"`
	NUMANode  *int        `json:"numaNode"`
	LocalCPUs *cpuset.Set `json:"localCPUs"`
	Netdevs   []string    `json:"netdevs"`  // in the network namespace of the reader
	SRIOV     *SRIOV      `json:"sriov"`    // nil: it has no SR-IOV
	PF        *string     `json:"pf"`       // of a virtual function: its physical function
	VFs       []string    `json:"vfs"`      // of a physical function
	Firmware  *string     `json:"firmware"` // version; of most network cards only the running machine says it
	InUse     string      `json:"-"`        // of a network card's virtual function, see FunctionInUse
}

// FreeFunctions returns the numbers of the virtual functions of a device that nobody seems to use. If it has
// none yet, these are the ones that can be made.
func (h Host) FreeFunctions(d PCIDevice) []int {
	var free []int
	if d.SRIOV == nil {
		return nil
	}
	for n := range d.SRIOV.Pool() {
		if n >= len(d.VFs) || !slices.ContainsFunc(h.PCIDevices,
			func(vf PCIDevice) bool { return vf.Address == d.VFs[n] && vf.InUse != "" }) {
			free = append(free, n)
		}
	}
	return free
}

// SRIOV is the number of virtual functions that a physical function can have and has
// (Documentation/PCI/pci-iov-howto.rst).
type SRIOV struct {
	TotalVFs int `json:"totalVFs"`
	NumVFs   int `json:"numVFs"`
}

// Pool returns how many virtual functions there are. If there are none, it returns how many will be made: not
// all of a large card, because the card divides its queues among them.
func (s SRIOV) Pool() int {
	if s.NumVFs > 0 {
		return s.NumVFs
	}
	return min(s.TotalVFs, 16)
}

// NUMANode is a memory node. It may have no CPUs, or no memory.
type NUMANode struct {
	ID          int         `json:"id"`
	CPUs        cpuset.Set  `json:"cpus"` // the online ones
	HasMemory   *bool       `json:"hasMemory"`
	Allowed     *bool       `json:"allowed"` // its memory is, by the cpuset in force for the reading process
	MemoryBytes uint64      `json:"memoryBytes"`
	Distances   []int       `json:"distances"` // to the nodes in the order of their ids, 10 to itself
	Hugepages   []Hugepages `json:"hugepages"` // by size
}

// Hugepages are the hugepages of one size on one node.
type Hugepages struct {
	PageBytes uint64  `json:"pageBytes"`
	Total     *uint64 `json:"total"` // without surplus pages, which the kernel frees when their user ends
	Free      *uint64 `json:"free"`
}

// Interrupt is a numbered interrupt and the CPUs where it may fire.
type Interrupt struct {
	IRQ       int         `json:"irq"`
	Name      *string     `json:"name"`      // of its actions, "virtio2-input.0"
	Device    *string     `json:"device"`    // PCI address, "0000:00:03.0", if known
	Affinity  *cpuset.Set `json:"affinity"`  // requested
	Effective *cpuset.Set `json:"effective"` // in force
	Managed   *bool       `json:"managed"`   // the kernel refuses to move it; only debugfs says so
	Fired     *cpuset.Set `json:"-"`         // the CPUs on which it has fired since boot
}

// Kernel is what the kernel reports about itself.
type Kernel struct {
	Release      string            `json:"release"`
	Version      string            `json:"version"`
	Cmdline      string            `json:"cmdline"` // in force
	BootID       string            `json:"bootID"`
	MachineID    string            `json:"machineID"` // Isolane's own, made from /etc/machine-id
	Isolated     *cpuset.Set       `json:"isolated"`  // in force, from isolcpus= or isolated partitions
	NohzFull     *cpuset.Set       `json:"nohzFull"`  // in force; nil also if the kernel cannot, see KeepsTick
	RCUNoCBs     *cpuset.Set       `json:"rcuNocbs"`  // requested by rcu_nocbs=, and NohzFull, which implies it
	Preempt      *string           `json:"preempt"`   // none, voluntary, full, lazy, rt; dynamic: while running
	Realtime     *bool             `json:"realtime"`  // PREEMPT_RT, which may preempt ordinary tasks lazily
	Cgroup       cgroup.Mounts     `json:"cgroup"`    //
	Clocksource  string            `json:"clocksource"`
	IdleDriver   string            `json:"idleDriver"`
	IdleGovernor string            `json:"idleGovernor"`
	CPUModel     string            `json:"cpuModel"` // several if cores differ, "Cortex-X925, Cortex-A725"
	Microcode    string            `json:"microcode"`
	Flags        []string          `json:"-"`                // of an x86 CPU, as in /proc/cpuinfo
	Hypervisor   *bool             `json:"hypervisor"`       // the machine is a guest
	Steal        *uint64           `json:"stealNanoseconds"` // taken by the hypervisor from all CPUs since boot
	Mitigations  map[string]string `json:"mitigations"`      // of hardware vulnerabilities, by name
}

// KeepsTick reports that the kernel lacks CONFIG_NO_HZ_FULL: its file nohz_full is missing while the file
// isolated beside it exists.
func (k Kernel) KeepsTick() bool { return k.NohzFull == nil && k.Isolated != nil }

// Read reads the machine under root. What is missing there is nil; what is wrong there is nil and a warning.
// It fails only if the source has no CPUs.
func Read(root fs.FS) (Host, error) { return (&reader{root: root}).host() }

// ReadForPlan is like Read, for callers that plan and change lanes. It does not read Interrupt.Effective,
// which is one file for each of thousands of interrupts, and no firmware.
func ReadForPlan(root fs.FS) (Host, error) { return (&reader{root: root, forPlan: true}).host() }

func (r *reader) host() (Host, error) {
	r.warnings = []string{}
	h := Host{APIVersion: APIVersion, Kind: Kind, Hostname: r.text("proc/sys/kernel/hostname")}
	h.CPUs = r.cpus()
	h.NUMANodes = r.nodes(h.Online())
	r.allowNodes(h.NUMANodes)
	h.MemoryBytes, _ = r.memTotal("proc/meminfo")
	r.checkMemory(h.NUMANodes, h.MemoryBytes)
	h.Caches = r.caches
	h.PCIDevices = r.pciDevices()
	h.Interrupts = r.interrupts(h.PCIDevices)
	h.Kernel = r.kernel(h.PCIDevices)
	if !r.forPlan {
		r.firmware(&h)
	}
	if r.differ > 0 {
		r.warn("%s (%d lists contradict their masks; the masks are taken)", r.differs, r.differ)
	}
	h.Warnings = r.warnings
	return h, r.err
}

// Online returns the online CPUs.
func (h Host) Online() cpuset.Set {
	return h.where(func(c CPU) bool { return c.Online })
}

// Possible returns all CPUs, including the offline ones.
func (h Host) Possible() cpuset.Set { return h.where(func(CPU) bool { return true }) }

// Usable returns the online CPUs that this process may use.
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

// CPU returns the CPU with that number, or false.
func (h Host) CPU(id int) (CPU, bool) {
	at, ok := slices.BinarySearchFunc(h.CPUs, id, func(c CPU, id int) int { return cmp.Compare(c.ID, id) })
	if !ok {
		return CPU{}, false
	}
	return h.CPUs[at], true
}

// Siblings returns the online CPUs of the core of a CPU, including that CPU. It returns only that CPU if the
// core is not known, and none if the CPU is offline.
func (h Host) Siblings(id int) cpuset.Set {
	cpu, ok := h.CPU(id)
	if !ok || !cpu.Online {
		return cpuset.Set{}
	}
	if cpu.Core == nil {
		return cpuset.Of(id)
	}
	return h.where(func(c CPU) bool { return c.Core != nil && *c.Core == *cpu.Core })
}

// Cores returns the usable CPUs by core, in the order of their lowest numbers. A CPU whose core is
// not known is a core of its own.
func (h Host) Cores() []cpuset.Set { return h.CoresOf(h.Usable()) }

// CoresOf is like Cores for any CPUs. Those of a lane in force are online, and not usable by others.
func (h Host) CoresOf(cpus cpuset.Set) []cpuset.Set {
	var cores []cpuset.Set
	for left := cpus; !left.IsEmpty(); {
		id := left.First()
		core := left.Intersection(h.Siblings(id).Union(cpuset.Of(id)))
		cores, left = append(cores, core), left.Difference(core)
	}
	return cores
}

// MemoryNodes returns the nodes that have memory, and those of which the source does not say. If the kernel
// knows no nodes it returns node 0, because the kernel then counts all memory there.
func (h Host) MemoryNodes() cpuset.Set {
	if len(h.NUMANodes) == 0 {
		return cpuset.Of(0)
	}
	var ids []int
	for _, n := range h.NUMANodes {
		if n.HasMemory == nil || *n.HasMemory {
			ids = append(ids, n.ID)
		}
	}
	return cpuset.Of(ids...)
}
