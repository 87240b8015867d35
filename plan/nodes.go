package plan

import (
	"iter"
	"math/bits"

	"isolane.dev/isolane/cpuset"
)

// nodeSet is a set of nodes by index, of the first 63.
type nodeSet uint64

func (s nodeSet) has(n int) bool { return s&(1<<n) != 0 }
func (s nodeSet) len() int       { return bits.OnesCount64(uint64(s)) }
func (s nodeSet) first() int     { return bits.TrailingZeros64(uint64(s)) }

func (s nodeSet) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0 && yield(s.first()); s &= s - 1 {
		}
	}
}

// subsets calls use with all sets of k of the first n bits, in ascending order (Gosper's hack). No
// machine that this is for has more than 64 nodes; of a larger one the rest is not considered.
func subsets(n, k int, use func(nodeSet)) {
	n = min(n, 63)
	if k == 0 {
		use(0)
		return
	}
	for set := nodeSet(1)<<k - 1; k <= n && set < 1<<n; {
		use(set)
		low := set & -set
		next := set + low
		set = next | (set^next)>>2/low
	}
}

// nodesOf are the nodes of those CPUs that are usable.
func (m *machine) nodesOf(cpus cpuset.Set) nodeSet {
	var s nodeSet
	for id := range cpus.All() {
		if n := m.nodeOf(id); n >= 0 {
			s |= 1 << n
		}
	}
	return s
}

// ids are the kernel's numbers of nodes.
func (m *machine) ids(nodes nodeSet) cpuset.Set {
	var ids []int
	for n := range nodes.all() {
		if m.nodes[n].id >= 0 {
			ids = append(ids, m.nodes[n].id)
		}
	}
	return cpuset.Of(ids...)
}

// cpusOf are the usable CPUs of a node.
func (m *machine) cpusOf(n int) cpuset.Set {
	var ids []int
	for id := range m.coreOf {
		if m.nodeOf(id) == n {
			ids = append(ids, id)
		}
	}
	return cpuset.Of(ids...)
}

// cachesOf are the L3s, by index, of those CPUs that are usable.
func (m *machine) cachesOf(cpus cpuset.Set) cpuset.Set {
	var caches []int
	for id := range cpus.All() {
		if m.nodeOf(id) >= 0 {
			caches = append(caches, m.domains[m.cores[m.coreOf[id]].domain].cache)
		}
	}
	return cpuset.Of(caches...)
}

// nearest are the nodes with CPUs that are nearest to some nodes: these themselves, if they have CPUs.
func (m *machine) nearest(from nodeSet) nodeSet {
	var nearest nodeSet
	best := 0
	for i, n := range m.nodes {
		if from == 0 || n.from == n.to {
			continue
		}
		d := m.distance(from, i)
		if nearest == 0 || d < best {
			best, nearest = d, 0
		}
		if d == best {
			nearest |= 1 << i
		}
	}
	return nearest
}

// distance is the least distance from some nodes to one; 0 from none.
func (m *machine) distance(from nodeSet, to int) int {
	least := 0
	for f := range from.all() {
		if d := m.nodes[f].distances[to]; least == 0 || d < least {
			least = d
		}
	}
	return least
}

// deviceDistance is field 7 of the cost: from the nearest of some nodes to the farthest of a set.
func (m *machine) deviceDistance(from, set nodeSet) int {
	far := 10
	for n := range set.all() {
		far = max(far, m.distance(from, n))
	}
	return far - 10
}

// memoryDistance is field 6 of the cost: how far the nodes of a set are from the farthest with CPUs.
func (m *machine) memoryDistance(cpus, memory nodeSet) int {
	sum := 0
	for n := range memory.all() {
		far := 10
		for c := range cpus.all() {
			far = max(far, m.nodes[c].distances[n])
		}
		sum += far - 10
	}
	return sum
}
