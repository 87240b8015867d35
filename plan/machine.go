package plan

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

// machine is a host as the search sees it, and the lanes on it.
type machine struct {
	h       host.Host
	cores   []core // by node, L3 and lowest CPU
	domains []domain
	nodes   []node
	boot    int // the core of the boot CPU
	l3s     int // how many L3 caches the domains have

	prepared
	housekeepingBytes uint64 // bytes of memory that lanes leave to housekeeping
	performant        bool   // there are performance cores

	coreOf []int // core by CPU; -1: not usable
	owner  []int // by CPU: free, shared or the number of the lane in lanes
	lanes  []Lane
	// claims are, by lane, the CPUs that lanes of the request name, with their idle siblings.
	claims map[string]cpuset.Set
}

const (
	free   = -1
	shared = -2
)

// core is a physical core: its usable CPUs in ascending order.
type core struct {
	cpus   []int
	kind   host.CPUKind
	domain int
}

// domain is the cores of one node below one L3, cores[from:to].
type domain struct {
	node, l3 int // l3 is the host's number; where that is not known, one of its own for each node
	cache    int // index of the L3
	from, to int
}

// node is a NUMA node, domains[from:to]. CPUs of which the node is not known are on one with number -1.
type node struct {
	id        int
	from, to  int
	hasMemory bool
	memory    uint64            // bytes that lanes may have; 0 is not known
	pool      map[uint64]uint64 // hugepages by size
	distances []int             // by index in nodes
}

// newMachine is a host with the lanes that are placed.
func newMachine(h host.Host, placed []Lane) *machine {
	m := &machine{h: h}
	ids := 0
	if n := len(h.CPUs); n > 0 {
		ids = h.CPUs[n-1].ID + 1
	}
	m.coreOf, m.owner = make([]int, ids), make([]int, ids)
	for i := range m.coreOf {
		m.coreOf[i], m.owner[i] = -1, free
	}
	m.divide()
	m.describeNodes()
	m.prepare()
	for _, l := range placed {
		m.put(l)
	}
	return m
}

// divide groups the usable CPUs into cores, domains and nodes.
func (m *machine) divide() {
	type place struct{ node, l3, core, cpu int }
	var places []place
	boot := -1
	for _, c := range m.h.CPUs {
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
			m.nodes = append(m.nodes, node{id: p.node, from: len(m.domains)})
		}
		if newCell {
			l3 := p.l3
			if l3 < 0 {
				l3 = -2 - p.node
			}
			m.domains = append(m.domains, domain{node: len(m.nodes) - 1, l3: l3, cache: m.cacheOf(l3),
				from: len(m.cores)})
		}
		if newCell || places[i-1].core != p.core {
			c, _ := m.h.CPU(p.cpu)
			m.cores = append(m.cores, core{kind: c.Kind, domain: len(m.domains) - 1})
			m.performant = m.performant || c.Kind == host.Performance
		}
		last := &m.cores[len(m.cores)-1]
		last.cpus = append(last.cpus, p.cpu)
		m.coreOf[p.cpu] = len(m.cores) - 1
		m.domains[len(m.domains)-1].to = len(m.cores)
		m.nodes[len(m.nodes)-1].to = len(m.domains)
	}
	if boot >= 0 {
		m.boot = m.coreOf[boot]
	}
}

// known is a value that the host may not say.
func known[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// cacheOf is the index of an L3, a new one if it has no domain yet.
func (m *machine) cacheOf(l3 int) int {
	for _, c := range m.domains {
		if c.l3 == l3 {
			return c.cache
		}
	}
	m.l3s++
	return m.l3s - 1
}

// describeNodes adds memory, pools and distances, and the nodes without CPUs.
func (m *machine) describeNodes() {
	for _, n := range m.h.NUMANodes {
		at := slices.IndexFunc(m.nodes, func(o node) bool { return o.id == n.ID })
		if at < 0 {
			at = len(m.nodes)
			m.nodes = append(m.nodes, node{id: n.ID, from: len(m.domains), to: len(m.domains)})
		}
		to := &m.nodes[at]
		if !known(n.Allowed, true) {
			continue // this process may not use its memory
		}
		to.hasMemory, to.memory = known(n.HasMemory, true), n.MemoryBytes
		to.pool = map[uint64]uint64{}
		for _, p := range n.Hugepages {
			to.pool[p.PageBytes] = known(p.Total, 0)
		}
	}
	if len(m.h.NUMANodes) == 0 && len(m.nodes) > 0 { // the kernel counts all memory to one node, which is 0
		m.nodes[0].id, m.nodes[0].hasMemory, m.nodes[0].memory = 0, true, m.h.MemoryBytes
	}
	total := uint64(0)
	for _, n := range m.nodes {
		if n.hasMemory {
			total = plusCapped(total, n.memory)
		}
	}
	m.housekeepingBytes = min(512<<20, total/8)
	for i := range m.nodes {
		m.nodes[i].distances = make([]int, len(m.nodes))
		for j := range m.nodes {
			m.nodes[i].distances[j] = m.distanceOf(m.nodes[i].id, m.nodes[j].id)
		}
	}
}

// distanceOf is the kernel's number for two nodes; 10 for a node and itself, 20 where it is not known.
func (m *machine) distanceOf(a, b int) int {
	if a == b {
		return 10
	}
	from := slices.IndexFunc(m.h.NUMANodes, func(n host.NUMANode) bool { return n.ID == a })
	to := slices.IndexFunc(m.h.NUMANodes, func(n host.NUMANode) bool { return n.ID == b })
	if from < 0 || to < 0 || to >= len(m.h.NUMANodes[from].Distances) {
		return 20
	}
	return m.h.NUMANodes[from].Distances[to]
}

// nodeOf is the index in nodes of a CPU; -1 of one that is not usable.
func (m *machine) nodeOf(id int) int {
	if id >= len(m.coreOf) || m.coreOf[id] < 0 {
		return -1
	}
	return m.domains[m.cores[m.coreOf[id]].domain].node
}
