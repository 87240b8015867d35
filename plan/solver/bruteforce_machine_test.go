package solver_test

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing/fstest"

	"isolane.dev/isolane/cpuset"
)

// bruteMachine is a small machine as the referee knows it: what it decides on comes from here, never
// from what package host read.
type bruteMachine struct {
	cpus    []bruteCPU
	nodes   []bruteNode
	devices []bruteDevice
	hybrid  bool
	noL3    bool // it names none
	cpusetV bool // a cpuset in force says which CPUs and nodes are allowed
	cmdline string
}

// bruteCPU is one logical CPU; core, l3 and node are numbers of this file's own.
type bruteCPU struct {
	core, l3, node, pkg int
	efficient           bool
	online, allowed     bool
	isolated            bool // by isolcpus=, as the scheduler has it
	nohz, managed       bool // nohz_full=, isolcpus=managed_irq
}

func (c bruteCPU) usable() bool { return c.online && c.allowed }

// bruteNode has memory in GiB; all that a file asks for are whole GiB too.
type bruteNode struct {
	memory    int
	pool      map[int]int // free hugepages in GiB, by page size in MiB
	distances []int
	allowed   bool
}

// bruteDevice is a network card with virtual functions; node -1 is not known.
type bruteDevice struct {
	address    string
	netdev     string
	node       int
	totalVFs   int
	interrupts []int
}

const (
	bruteGiB     = 1 << 30
	brutePage2Mi = 2
	brutePage1Gi = 1024
)

// randomMachine makes a machine of at most 16 CPUs.
func randomMachine(r *rand.Rand) *bruteMachine {
	chance := func(percent int) bool { return r.IntN(100) < percent }
	m := &bruteMachine{}
	packages := 1 + r.IntN(2)
	perPackage := 1 + r.IntN(2) // nodes
	threads := 1 + r.IntN(2)
	if chance(8) {
		threads = 4
	}
	m.hybrid, m.noL3 = chance(20), chance(5)
	most := 16 / packages / perPackage / threads
	cores := min(max(1, 4/packages/perPackage)+r.IntN(5), most) // of a node
	perL3 := 1 + r.IntN(cores)
	if chance(40) {
		perL3 = cores
	}
	overNodes := perPackage == 2 && chance(15) // one L3 above both nodes of a package
	core, l3 := 0, -1
	for pkg := range packages {
		if overNodes {
			l3++
		}
		for n := range perPackage {
			node := pkg*perPackage + n
			for i := range cores {
				if !overNodes && i%perL3 == 0 {
					l3++
				}
				efficient := m.hybrid && i >= (cores+1)/2
				count := threads
				if efficient {
					count = 1
				}
				for range count {
					m.cpus = append(m.cpus, bruteCPU{core: core, l3: l3, node: node, pkg: pkg, efficient: efficient,
						online: true, allowed: true})
				}
				core++
			}
		}
	}
	m.number(r)
	m.randomNodes(r, packages*perPackage, perPackage)
	if chance(20) {
		for i := range m.cpus {
			m.cpus[i].online = i == 0 || !chance(20)
		}
	}
	if chance(20) {
		m.cpusetV = true
		for i := range m.cpus {
			m.cpus[i].allowed = !chance(15)
		}
		for i := range m.nodes {
			m.nodes[i].allowed = !chance(25)
		}
	}
	m.randomIsolation(r)
	m.randomDevices(r)
	return m
}

// number puts the CPUs in an order of the firmware's: threads of a core beside each other, or all first
// threads before all second ones.
func (m *bruteMachine) number(r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	seen := map[int]int{}
	var byThread [4][]bruteCPU
	for _, c := range m.cpus {
		byThread[seen[c.core]] = append(byThread[seen[c.core]], c)
		seen[c.core]++
	}
	m.cpus = m.cpus[:0]
	for _, cpus := range byThread {
		m.cpus = append(m.cpus, cpus...)
	}
}

func (m *bruteMachine) randomNodes(r *rand.Rand, withCPUs, perPackage int) {
	count := withCPUs
	if r.IntN(100) < 25 {
		count += 1 + r.IntN(2) // with memory only
	}
	far := 20 + r.IntN(3)
	m.nodes = make([]bruteNode, count)
	for i := range m.nodes {
		n := &m.nodes[i]
		n.allowed = true
		n.memory = 1 + r.IntN(10)
		if i < withCPUs && i > 0 && r.IntN(100) < 12 {
			n.memory = 0 // CPUs only
		}
		n.pool = map[int]int{}
		n.distances = make([]int, count)
	}
	for i := range m.nodes {
		m.nodes[i].distances[i] = 10
		for j := range i {
			d := far + 10*r.IntN(2)
			if i < withCPUs && i/perPackage == j/perPackage {
				d = 12
			}
			if i >= withCPUs {
				d = 11 + r.IntN(20)
			}
			m.nodes[i].distances[j], m.nodes[j].distances[i] = d, d
		}
	}
	for _, page := range []int{brutePage2Mi, brutePage1Gi} {
		if r.IntN(100) < 60 {
			continue
		}
		for i := range m.nodes { // the kernel has the same sizes on all nodes
			n := &m.nodes[i]
			n.pool[page] = 0
			if free := n.memory - n.pool[brutePage2Mi] - n.pool[brutePage1Gi]; free > 0 {
				n.pool[page] = r.IntN(min(free, 3))
			}
		}
	}
}

// randomIsolation boots it with CPUs kept for lanes, in one way or in several.
func (m *bruteMachine) randomIsolation(r *rand.Rand) {
	if r.IntN(100) >= 25 {
		return
	}
	var list []int
	for i := range m.cpus {
		if i > 0 && r.IntN(100) < 60 {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return
	}
	flags := []string{"", "managed_irq,", "domain,managed_irq,", "none"}[r.IntN(4)]
	nohz := flags == "none" || r.IntN(3) == 0
	isolcpus, nohzFull := cpuset.Of(list...), cpuset.Of(list...)
	if flags != "none" && nohz && r.IntN(2) == 0 {
		nohzFull = cpuset.Of(list[:1+r.IntN(len(list))]...)
	}
	for i := range m.cpus {
		c := &m.cpus[i]
		if flags != "none" && isolcpus.Contains(i) {
			c.isolated = (flags == "" || flags == "domain,managed_irq,") && c.online
			c.managed = flags != ""
		}
		c.nohz = nohz && nohzFull.Contains(i)
	}
	if flags != "none" {
		m.cmdline = "isolcpus=" + flags + isolcpus.String()
	}
	if nohz {
		m.cmdline = strings.TrimSpace(m.cmdline + " nohz_full=" + nohzFull.String())
	}
}

// mixed says whether some of its CPUs are performance and some efficiency ones.
func (m *bruteMachine) mixed() bool { return m.hybrid }

func (m *bruteMachine) randomDevices(r *rand.Rand) {
	irq := 30
	for i := range r.IntN(3) {
		d := bruteDevice{address: fmt.Sprintf("0000:%02x:00.0", 0x10*(i+1)), netdev: fmt.Sprintf("ens%df0", i+1),
			node: r.IntN(len(m.nodes)), totalVFs: r.IntN(4)}
		if r.IntN(10) == 0 {
			d.node = -1
		}
		for range r.IntN(4) {
			d.interrupts = append(d.interrupts, irq)
			irq++
		}
		m.devices = append(m.devices, d)
	}
}

// fs is the machine's sysfs and procfs.
func (m *bruteMachine) fs() fstest.MapFS {
	files := fstest.MapFS{}
	put := func(path string, value any) { files[path] = &fstest.MapFile{Data: []byte(fmt.Sprintln(value))} }
	same := func(alike func(bruteCPU) bool) cpuset.Set {
		return m.where(func(c bruteCPU) bool { return c.online && alike(c) })
	}
	for id, c := range m.cpus {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", id)
		put(dir+"uevent", "")
		if !c.online {
			continue
		}
		put(dir+"topology/core_id", c.core)
		put(dir+"topology/physical_package_id", c.pkg)
		put(dir+"topology/thread_siblings_list", same(func(o bruteCPU) bool { return o.core == c.core }))
		put(dir+"topology/core_siblings_list", same(func(o bruteCPU) bool { return o.pkg == c.pkg }))
		for level, shared := range map[int]cpuset.Set{
			2: same(func(o bruteCPU) bool { return o.core == c.core }), 3: same(func(o bruteCPU) bool { return o.l3 == c.l3 })} {
			if level == 3 && m.noL3 {
				continue
			}
			cache := fmt.Sprintf("%scache/index%d/", dir, level)
			put(cache+"level", level)
			put(cache+"type", "Unified")
			put(cache+"shared_cpu_list", shared)
		}
	}
	all := m.where(func(bruteCPU) bool { return true })
	put("sys/devices/system/cpu/possible", all)
	put("sys/devices/system/cpu/online", m.where(func(c bruteCPU) bool { return c.online }))
	put("sys/devices/system/cpu/isolated", m.where(func(c bruteCPU) bool { return c.isolated }))
	put("sys/devices/system/cpu/nohz_full", m.where(func(c bruteCPU) bool { return c.nohz }))
	put("proc/cmdline", strings.TrimSpace("BOOT_IMAGE=/vmlinuz "+m.cmdline))
	put("proc/sys/kernel/hostname", "brute")
	if m.hybrid {
		put("sys/devices/cpu_core/cpus", m.where(func(c bruteCPU) bool { return !c.efficient }))
		put("sys/devices/cpu_atom/cpus", m.where(func(c bruteCPU) bool { return c.efficient }))
	}
	if m.cpusetV {
		put("proc/self/status", "Name:\ttest\nCpus_allowed_list:\t"+m.where(func(c bruteCPU) bool { return c.allowed }).String()+
			"\nMems_allowed_list:\t"+m.allowedNodes().String())
	}
	m.putNodes(put)
	m.putDevices(files, put)
	return files
}

func (m *bruteMachine) where(is func(bruteCPU) bool) cpuset.Set {
	var ids []int
	for id, c := range m.cpus {
		if is(c) {
			ids = append(ids, id)
		}
	}
	return cpuset.Of(ids...)
}

func (m *bruteMachine) allowedNodes() cpuset.Set {
	var ids []int
	for id, n := range m.nodes {
		if n.allowed {
			ids = append(ids, id)
		}
	}
	return cpuset.Of(ids...)
}

func (m *bruteMachine) putNodes(put func(string, any)) {
	var withMemory []int
	for id, n := range m.nodes {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", id)
		put(dir+"cpulist", m.where(func(c bruteCPU) bool { return c.online && c.node == id }))
		put(dir+"distance", strings.Trim(fmt.Sprint(n.distances), "[]"))
		put(dir+"meminfo", fmt.Sprintf("Node %d MemTotal: %d kB", id, n.memory<<20))
		if n.memory > 0 {
			withMemory = append(withMemory, id)
		}
		for page, gib := range n.pool {
			pages := gib * 1024 / page
			put(fmt.Sprintf("%shugepages/hugepages-%dkB/nr_hugepages", dir, page<<10), pages)
			put(fmt.Sprintf("%shugepages/hugepages-%dkB/free_hugepages", dir, page<<10), pages)
		}
	}
	put("sys/devices/system/node/has_memory", cpuset.Of(withMemory...))
}

func (m *bruteMachine) putDevices(files fstest.MapFS, put func(string, any)) {
	header := "           "
	for id := range m.cpus {
		header += fmt.Sprintf(" CPU%d", id)
	}
	table := header + "\n"
	for _, d := range m.devices {
		dir := "sys/bus/pci/devices/" + d.address + "/"
		put(dir+"class", "0x020000")
		put(dir+"vendor", "0x8086")
		put(dir+"device", "0x1592")
		put(dir+"numa_node", d.node)
		files[dir+"net/"+d.netdev] = &fstest.MapFile{Mode: fs.ModeDir}
		if d.totalVFs > 0 {
			put(dir+"sriov_totalvfs", d.totalVFs)
			put(dir+"sriov_numvfs", 0)
		}
		for n, irq := range d.interrupts {
			table += fmt.Sprintf("%4d: %s PCI-MSIX-%s %d-edge %s-TxRx-%d\n", irq, strings.Repeat(" 0", len(m.cpus)), d.address, n,
				d.netdev, n)
			put(fmt.Sprintf("proc/irq/%d/smp_affinity_list", irq), m.where(func(bruteCPU) bool { return true }))
		}
	}
	put("proc/interrupts", strings.TrimSuffix(table, "\n"))
}

// String says the machine in a few lines.
func (m *bruteMachine) String() string {
	var b strings.Builder
	for id, n := range m.nodes {
		fmt.Fprintf(&b, "  node %d: %d GiB, distances %v", id, n.memory, n.distances)
		for _, page := range slices.Sorted(maps.Keys(n.pool)) {
			fmt.Fprintf(&b, ", %d GiB free of %d MiB pages", n.pool[page], page)
		}
		if !n.allowed {
			b.WriteString(", not allowed")
		}
		last := -1
		for cpu, c := range m.cpus {
			if c.node != id {
				continue
			}
			if c.l3 != last {
				fmt.Fprintf(&b, "\n    package %d L3 %d:", c.pkg, c.l3)
				last = c.l3
			}
			fmt.Fprintf(&b, " %d(core %d%s)", cpu, c.core, c.marks(m.hybrid))
		}
		b.WriteString("\n")
	}
	for _, d := range m.devices {
		fmt.Fprintf(&b, "  device %s %s: node %d, %d VFs, interrupts %v\n", d.address, d.netdev, d.node, d.totalVFs, d.interrupts)
	}
	if m.noL3 {
		b.WriteString("  no L3 is named\n")
	}
	if m.cmdline != "" {
		fmt.Fprintf(&b, "  booted with %s\n", m.cmdline)
	}
	return b.String()
}

func (c bruteCPU) marks(hybrid bool) string {
	s := ""
	if hybrid && c.efficient {
		s += " E"
	} else if hybrid {
		s += " P"
	}
	if !c.online {
		s += " offline"
	}
	if !c.allowed {
		s += " not allowed"
	}
	return s
}
