// Package stock has one machine as the planner sees it: its cores, L3 caches and nodes, which lane has which
// CPU, and what is left of memory, hugepages and devices. It decides nothing.
package stock

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
)

// Machine is a host as the search sees it, with the lanes on it.
type Machine struct {
	Host    host.Host
	Cores   []Core // ordered by node, L3 and lowest CPU
	Domains []Domain
	Nodes   []Node
	L3s     int // how many L3 caches the domains have

	HousekeepingBytes uint64 // bytes of memory that lanes leave to housekeeping
	Performant        bool   // there are performance cores

	Lanes []plan.Lane // on the machine; changed by Put and Pop

	prepared
	boot   int   // the core of the boot CPU
	coreOf []int // by CPU: its core; -1: not usable
	owner  []int // by CPU: Nobody, Several or the index of its lane in Lanes
	// claims are, by lane, the CPUs that lanes of the request name, with their idle siblings.
	claims map[string]cpuset.Set
	// sharers means that lanes that share CPUs are still to come, and may have CPUs that are reserved for
	// housekeeping, except the boot core. bootSharers means that they may have that too.
	sharers, bootSharers bool
}

// Owners of a CPU other than a single lane: no lane has it, or several share it.
const (
	Nobody  = -1
	Several = -2
)

// Core is a physical core: its usable CPUs in ascending order.
type Core struct {
	CPUs   []int
	Kind   host.CPUKind
	Domain int // index in Machine.Domains
}

// Domain is the cores of one node below one L3: Machine.Cores[From:To].
type Domain struct {
	Node     int // index in Machine.Nodes
	L3       int // the host's number; if unknown, a negative one for each node
	Cache    int // index of the L3
	From, To int
}

// Node is a NUMA node: Machine.Domains[From:To]. CPUs whose node is unknown are on one with number -1.
type Node struct {
	ID        int
	From, To  int
	HasMemory bool
	memory    uint64            // bytes that lanes may have; 0: unknown
	pool      map[uint64]uint64 // hugepages by size
	distances []int             // by index in Machine.Nodes
}

// New returns a machine for a host with the lanes that are placed.
func New(h host.Host, placed []plan.Lane) *Machine {
	m := &Machine{Host: h}
	ids := 0
	if n := len(h.CPUs); n > 0 {
		ids = h.CPUs[n-1].ID + 1
	}
	m.coreOf, m.owner = make([]int, ids), make([]int, ids)
	for i := range m.coreOf {
		m.coreOf[i], m.owner[i] = -1, Nobody
	}
	m.divide()
	m.describeNodes()
	m.prepare()
	for _, l := range placed {
		m.Put(l)
	}
	return m
}

// divide groups the usable CPUs into cores, domains and nodes.
func (m *Machine) divide() {
	type place struct{ node, l3, core, cpu int }
	var places []place
	boot := -1
	for _, c := range m.Host.CPUs {
		if !c.Online || !known(c.Allowed, true) {
			continue
		}
		if boot < 0 {
			boot = c.ID
		}
		places = append(places, place{known(c.NUMANode, -1), known(c.L3, -1), known(c.Core, c.ID), c.ID})
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.l3, b.l3), cmp.Compare(a.core, b.core),
			cmp.Compare(a.cpu, b.cpu))
	})
	for i, p := range places {
		newNode := i == 0 || places[i-1].node != p.node
		newCell := newNode || places[i-1].l3 != p.l3
		if newNode {
			m.Nodes = append(m.Nodes, Node{ID: p.node, From: len(m.Domains)})
		}
		if newCell {
			l3 := p.l3
			if l3 < 0 {
				l3 = -2 - p.node
			}
			m.Domains = append(m.Domains, Domain{Node: len(m.Nodes) - 1, L3: l3, Cache: m.cacheOf(l3),
				From: len(m.Cores)})
		}
		if newCell || places[i-1].core != p.core {
			c, _ := m.Host.CPU(p.cpu)
			m.Cores = append(m.Cores, Core{Kind: c.Kind, Domain: len(m.Domains) - 1})
			m.Performant = m.Performant || c.Kind == host.Performance
		}
		last := &m.Cores[len(m.Cores)-1]
		last.CPUs = append(last.CPUs, p.cpu)
		m.coreOf[p.cpu] = len(m.Cores) - 1
		m.Domains[len(m.Domains)-1].To = len(m.Cores)
		m.Nodes[len(m.Nodes)-1].To = len(m.Domains)
	}
	if boot >= 0 {
		m.boot = m.coreOf[boot]
	}
}

// known returns a value, or otherwise if the host does not say it.
func known[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// cacheOf returns the index of an L3, which is new if it has no domain yet.
func (m *Machine) cacheOf(l3 int) int {
	for _, c := range m.Domains {
		if c.L3 == l3 {
			return c.Cache
		}
	}
	m.L3s++
	return m.L3s - 1
}

// describeNodes adds memory, pools and distances, and the nodes without CPUs.
func (m *Machine) describeNodes() {
	for _, n := range m.Host.NUMANodes {
		at := slices.IndexFunc(m.Nodes, func(o Node) bool { return o.ID == n.ID })
		if at < 0 {
			at = len(m.Nodes)
			m.Nodes = append(m.Nodes, Node{ID: n.ID, From: len(m.Domains), To: len(m.Domains)})
		}
		to := &m.Nodes[at]
		if !known(n.Allowed, true) {
			continue // this process may not use its memory
		}
		to.HasMemory, to.memory = known(n.HasMemory, true), n.MemoryBytes
		to.pool = map[uint64]uint64{}
		for _, p := range n.Hugepages {
			to.pool[p.PageBytes] = known(p.Total, 0)
		}
	}
	if len(m.Host.NUMANodes) == 0 && len(m.Nodes) > 0 { // the kernel counts all memory as that of node 0
		m.Nodes[0].ID, m.Nodes[0].HasMemory, m.Nodes[0].memory = 0, true, m.Host.MemoryBytes
	}
	total := uint64(0)
	for _, n := range m.Nodes {
		if n.HasMemory {
			total = PlusCapped(total, n.memory)
		}
	}
	m.HousekeepingBytes = min(512<<20, total/8)
	m.measure()
}

// measure records how far nodes are from each other: the kernel's number; 10 for a node and itself, and 20 if
// unknown.
func (m *Machine) measure() {
	at := map[int]int{} // by the host's number: its index
	for i, n := range m.Host.NUMANodes {
		at[n.ID] = i
	}
	for i, a := range m.Nodes {
		var distances []int
		if from, is := at[a.ID]; is {
			distances = m.Host.NUMANodes[from].Distances
		}
		m.Nodes[i].distances = make([]int, len(m.Nodes))
		for j, b := range m.Nodes {
			d := 20
			if to, is := at[b.ID]; a.ID == b.ID {
				d = 10
			} else if is && to < len(distances) {
				d = distances[to]
			}
			m.Nodes[i].distances[j] = d
		}
	}
}

// NodeOf returns the index of a CPU's node; -1 if the CPU is not usable.
func (m *Machine) NodeOf(id int) int {
	if id >= len(m.coreOf) || m.coreOf[id] < 0 {
		return -1
	}
	return m.Domains[m.Cores[m.coreOf[id]].Domain].Node
}

// CoreOf returns the index of a CPU's core; -1 if the CPU is not usable.
func (m *Machine) CoreOf(id int) int { return m.coreOf[id] }

// IsBoot reports whether a CPU belongs to the boot core.
func (m *Machine) IsBoot(id int) bool { return m.coreOf[id] == m.boot }
