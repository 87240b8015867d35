package stock

import (
	"iter"
	"math/bits"
	"slices"

	"isolane.dev/isolane/cpuset"
)

// NodeSet is a set of nodes by index, of the first 63.
type NodeSet uint64

// Has reports whether a node is in the set.
func (s NodeSet) Has(n int) bool { return s&(1<<n) != 0 }

// Len counts the nodes.
func (s NodeSet) Len() int { return bits.OnesCount64(uint64(s)) }

// First returns the lowest node; 64 for an empty set.
func (s NodeSet) First() int { return bits.TrailingZeros64(uint64(s)) }

// All iterates over the nodes in ascending order.
func (s NodeSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0 && yield(s.First()); s &= s - 1 {
		}
	}
}

// MostNodes is how many nodes of a machine are considered, the first ones.
const MostNodes = 63

// Subsets calls use with all sets of k of the first n bits, in ascending order (Gosper's hack).
func Subsets(n, k int, use func(NodeSet)) {
	n = min(n, MostNodes)
	if k == 0 {
		use(0)
		return
	}
	for set := NodeSet(1)<<k - 1; k <= n && set < 1<<n; {
		use(set)
		low := set & -set
		next := set + low
		set = next | (set^next)>>2/low
	}
}

// NodesOf returns the nodes of the usable ones of some CPUs.
func (m *Machine) NodesOf(cpus cpuset.Set) NodeSet {
	var s NodeSet
	for id := range cpus.All() {
		if n := m.NodeOf(id); n >= 0 {
			s |= 1 << n
		}
	}
	return s
}

// IDs returns the kernel's numbers of nodes.
func (m *Machine) IDs(nodes NodeSet) cpuset.Set {
	var ids []int
	for n := range nodes.All() {
		if m.Nodes[n].ID >= 0 {
			ids = append(ids, m.Nodes[n].ID)
		}
	}
	return cpuset.Of(ids...)
}

// NodeOfID returns the node of that number; none if the machine has no such node, or it is not considered.
func (m *Machine) NodeOfID(id int) NodeSet {
	at := slices.IndexFunc(m.Nodes, func(n Node) bool { return n.ID == id })
	if at < 0 || at >= MostNodes {
		return 0
	}
	return 1 << at
}

// CPUsOf returns the usable CPUs of a node.
func (m *Machine) CPUsOf(n int) cpuset.Set {
	var ids []int
	for id := range m.coreOf {
		if m.NodeOf(id) == n {
			ids = append(ids, id)
		}
	}
	return cpuset.Of(ids...)
}

// CachesOf returns the L3s, by index, of the usable ones of some CPUs.
func (m *Machine) CachesOf(cpus cpuset.Set) cpuset.Set {
	var caches []int
	for id := range cpus.All() {
		if m.NodeOf(id) >= 0 {
			caches = append(caches, m.Domains[m.Cores[m.coreOf[id]].Domain].Cache)
		}
	}
	return cpuset.Of(caches...)
}

// Nearest returns the nodes with CPUs that are nearest to some nodes: these themselves if they have CPUs.
func (m *Machine) Nearest(from NodeSet) NodeSet {
	var nearest NodeSet
	best := 0
	for i, n := range m.Nodes {
		if from == 0 || n.From == n.To {
			continue
		}
		d := m.Distance(from, i)
		if nearest == 0 || d < best {
			best, nearest = d, 0
		}
		if d == best {
			nearest |= 1 << i
		}
	}
	return nearest
}

// Distance returns the least distance from some nodes to one; 0 if there are none.
func (m *Machine) Distance(from NodeSet, to int) int {
	least := 0
	for f := range from.All() {
		if d := m.Nodes[f].distances[to]; least == 0 || d < least {
			least = d
		}
	}
	return least
}

// DeviceDistance is field 7 of the cost: from the nearest of some nodes to the farthest node of a set.
func (m *Machine) DeviceDistance(from, set NodeSet) int {
	far := 10
	for n := range set.All() {
		far = max(far, m.Distance(from, n))
	}
	return far - 10
}

// MemoryDistance is field 6 of the cost: how far the memory nodes are from the farthest node with CPUs.
func (m *Machine) MemoryDistance(cpus, memory NodeSet) int {
	sum := 0
	for n := range memory.All() {
		far := 10
		for c := range cpus.All() {
			far = max(far, m.Nodes[c].distances[n])
		}
		sum += far - 10
	}
	return sum
}

// UsualMemory returns the nodes from which a lane on some nodes takes memory if none is set aside for it:
// these nodes, or if they have none that it may use, the nearest that have.
func (m *Machine) UsualMemory(cpus NodeSet) NodeSet {
	best, nearest := 0, NodeSet(0)
	for i, n := range m.Nodes {
		d := m.Distance(cpus, i)
		if cpus.Has(i) {
			d = 0
		}
		if !n.HasMemory || nearest != 0 && d > best {
			continue
		}
		if d < best {
			nearest = 0
		}
		best, nearest = d, nearest|1<<i
	}
	return nearest
}

// FarMemory returns the first of the nodes of UsualMemory if none of the lane's own nodes has memory; else
// none.
func (m *Machine) FarMemory(cpus NodeSet) NodeSet {
	for n := range cpus.All() {
		if m.Nodes[n].HasMemory {
			return 0
		}
	}
	from := m.UsualMemory(cpus)
	return from & -from
}
