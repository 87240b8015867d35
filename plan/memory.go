package plan

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
)

// need is the memory of one lane, and the nodes from which it may come.
type need struct {
	bytes uint64 // beside the hugepages
	huge  []hugeSize
	nodes nodeSet
	from  nodeSet // of its CPUs: memory comes from the nearest node first
}

// hugeSize is bytes in pages of one size.
type hugeSize struct{ page, bytes uint64 }

// allocation is what a need gets.
type allocation struct {
	memory []Memory
	huge   []Hugepages
}

// allocate finds memory and hugepages for several needs at once, as a flow from wants to pools and memory of
// nodes in multiples of whole pages: no need takes what another one can get nowhere else. False: there is not
// enough.
func (m *machine) allocate(needs []need) ([]allocation, bool) {
	f := flow{m: m}
	for n := range m.nodes {
		left, pool := m.freeMemory(n)
		f.left = append(f.left, left)
		f.pools = append(f.pools, pool)
		f.spare = plusCapped(f.spare, left)
	}
	f.spare -= min(f.spare, m.housekeepingBytes)
	for i, n := range needs {
		for _, h := range n.huge {
			f.add(i, n, h.page, h.bytes/h.page*h.page)
		}
	}
	for i, n := range needs {
		if n.bytes > 0 {
			f.add(i, n, 1, n.bytes)
		}
	}
	// The largest pages first.
	slices.SortStableFunc(f.wants, func(a, b want) int { return cmp.Compare(b.page, a.page) })
	left := make([]uint64, len(f.wants))
	for i, w := range f.wants { // pools first, so that the least memory is taken
		for left[i] = w.bytes; w.page > 1 && left[i] > 0; {
			moved := f.push(i, left[i], true)
			if left[i] -= moved; moved == 0 {
				break
			}
		}
	}
	for i := range f.wants {
		for left[i] > 0 {
			moved := f.push(i, left[i], false)
			if left[i] -= moved; moved == 0 {
				return nil, false
			}
		}
	}
	return f.given(needs), true
}

// want is bytes in pages of one size for one need, and what it has of them so far.
type want struct {
	need  int
	page  uint64 // 1 of ordinary memory
	bytes uint64
	order []int // its nodes, the nearest first
	mem   map[int]uint64
	pool  map[int]uint64
}

// flow is the state of the search for an allocation.
type flow struct {
	m     *machine
	left  []uint64            // by node: free bytes of memory
	pools []map[uint64]uint64 // by node: free pages of the pools, by size
	spare uint64              // bytes of memory that may be taken in all; the rest is housekeeping's
	wants []want
}

func (f *flow) add(i int, n need, page, bytes uint64) {
	w := want{need: i, page: page, bytes: bytes, mem: map[int]uint64{}, pool: map[int]uint64{}}
	w.order = slices.Collect(n.nodes.all())
	slices.SortStableFunc(w.order, func(a, b int) int {
		return cmp.Compare(f.m.distance(n.from, a), f.m.distance(n.from, b))
	})
	f.wants = append(f.wants, w)
}

// via is the want that takes over what another one has on a node, in its pool or its memory.
type via struct {
	want, node int
	pooled     bool
}

// push brings up to most bytes to a want: from a pool, from memory unless onlyPools, or from another want
// that can get as much elsewhere (an augmenting path, found breadth first). It returns how many; 0 is none.
func (f *flow) push(to int, most uint64, onlyPools bool) uint64 {
	path := map[int]via{to: {want: -1}}
	queue := []int{to}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		w := &f.wants[i]
		for _, pooled := range []bool{true, false} {
			if onlyPools && !pooled {
				continue
			}
			for _, n := range w.order {
				if amount := f.along(path, i, min(most, f.room(w, n, pooled))); amount > 0 {
					f.take(w, n, pooled, amount)
					return amount
				}
				for j := range f.wants { // another want may give up what it has there
					if _, seen := path[j]; !seen && f.couldTake(w, &f.wants[j], n, pooled) {
						path[j] = via{i, n, pooled}
						queue = append(queue, j)
					}
				}
			}
		}
	}
	return 0
}

// along moves bytes from want to want along a path, as many whole pages as each of them has; last may then
// take as many elsewhere. It returns how many; with 0 nothing has changed.
func (f *flow) along(path map[int]via, last int, amount uint64) uint64 {
	page := uint64(1)
	for at := last; at >= 0; at = path[at].want {
		page = max(page, f.wants[at].page)
		if v := path[at]; v.want >= 0 {
			amount = min(amount, f.wants[at].have(v.pooled)[v.node])
		}
	}
	if amount -= amount % page; amount == 0 {
		return 0
	}
	for at := last; path[at].want >= 0; at = path[at].want {
		v := path[at]
		f.wants[at].have(v.pooled)[v.node] -= amount
		f.wants[v.want].have(v.pooled)[v.node] += amount
	}
	return amount
}

// couldTake says whether a want could use what another one has on a node.
func (f *flow) couldTake(w, o *want, n int, pooled bool) bool {
	if o.have(pooled)[n] == 0 || pooled && o.page != w.page {
		return false
	}
	_, known := f.pools[n][w.page]
	return w.page == 1 || known
}

// have is what a want has of pools, or of memory, by node.
func (w *want) have(pooled bool) map[int]uint64 {
	if pooled {
		return w.pool
	}
	return w.mem
}

// room is how many bytes, in whole pages, a node's pool or memory has for a want.
func (f *flow) room(w *want, n int, pooled bool) uint64 {
	if w.page > 1 {
		pages, ok := f.pools[n][w.page]
		if pooled || !ok { // a node without that size cannot make such pages of its memory
			return timesCapped(pages, w.page)
		}
	}
	if pooled {
		return 0
	}
	room := min(f.left[n], f.spare)
	return room - room%w.page
}

func (f *flow) take(w *want, n int, pooled bool, bytes uint64) {
	w.have(pooled)[n] += bytes
	if pooled {
		f.pools[n][w.page] -= bytes / w.page
		return
	}
	f.left[n] -= bytes
	f.spare -= bytes
}

// given is what each need got.
func (f *flow) given(needs []need) []allocation {
	all := make([]allocation, len(needs))
	for _, w := range f.wants {
		g := &all[w.need]
		for _, n := range w.order {
			bytes := w.mem[n] + w.pool[n]
			switch {
			case bytes == 0:
			case w.page == 1:
				g.memory = append(g.memory, Memory{Node: f.m.nodes[n].id, Bytes: bytes})
			default:
				g.huge = append(g.huge, Hugepages{Node: f.m.nodes[n].id, PageBytes: w.page,
					Pages: bytes / w.page, Reserve: w.mem[n] / w.page})
			}
		}
	}
	return all
}

// hasStock says whether lanes have no more memory of a node than there is, and leave housekeeping its part.
func (m *machine) hasStock() bool {
	left, taken := uint64(0), uint64(0)
	for n := range m.nodes {
		empty, pool := m.with(nil).freeMemory(n)
		used := m.usedMemory(n, pool)
		if used > empty {
			return false
		}
		left, taken = plusCapped(left, empty-used), plusCapped(taken, used)
	}
	return taken == 0 || left >= m.housekeepingBytes
}

// nodesOfMemory are the nodes that give memory.
func (m *machine) nodesOfMemory(g allocation) nodeSet {
	var set nodeSet
	for n, at := range m.nodes {
		if slices.ContainsFunc(g.memory, func(h Memory) bool { return h.Node == at.id }) ||
			slices.ContainsFunc(g.huge, func(h Hugepages) bool { return h.Node == at.id }) {
			set |= 1 << n
		}
	}
	return set
}

// pageSizes are the sizes of hugepages that the machine has.
func (m *machine) pageSizes() []uint64 {
	sizes := map[uint64]bool{}
	for _, n := range m.nodes {
		for size := range n.pool {
			sizes[size] = true
		}
	}
	return slices.Sorted(maps.Keys(sizes))
}

// freeMemory is what no lane has of a node's memory outside of pools, in bytes, and of its pools, in pages by
// size.
func (m *machine) freeMemory(n int) (bytes uint64, pool map[uint64]uint64) {
	at := m.nodes[n]
	pool = maps.Clone(at.pool)
	if !at.hasMemory {
		return 0, pool
	}
	used := m.usedMemory(n, pool)
	for size, pages := range at.pool {
		used = plusCapped(used, timesCapped(size, pages))
	}
	return at.memory - min(at.memory, used), pool
}

// allFreeMemory is that of all nodes outside of their pools.
func (m *machine) allFreeMemory() uint64 {
	sum := uint64(0)
	for n := range m.nodes {
		bytes, _ := m.freeMemory(n)
		sum = plusCapped(sum, bytes)
	}
	return sum
}

// usedMemory is what lanes have of a node's memory outside of its pools. It removes their pages from pool.
func (m *machine) usedMemory(n int, pool map[uint64]uint64) uint64 {
	used, id := uint64(0), m.nodes[n].id
	for _, l := range m.lanes {
		for _, has := range l.Memory {
			if has.Node == id {
				used = plusCapped(used, has.Bytes)
			}
		}
		for _, has := range l.Hugepages {
			if has.Node != id {
				continue
			}
			inPool := min(has.Pages-has.Reserve, pool[has.PageBytes])
			if inPool > 0 {
				pool[has.PageBytes] -= inPool
			}
			used = plusCapped(used, timesCapped(has.Pages-inPool, has.PageBytes))
		}
	}
	return used
}

// sharePools corrects Reserve after moves: lanes first keep the pages that they have of pools, as far as
// there are as many, then get those that others have left.
func (m *machine) sharePools(lanes []Lane) {
	type pool struct {
		node int
		page uint64
	}
	left := map[pool]uint64{}
	for _, n := range m.nodes {
		for page, pages := range n.pool {
			left[pool{n.id, page}] = pages
		}
	}
	var all []*Hugepages
	for i, l := range lanes {
		lanes[i].Hugepages = slices.Clone(l.Hugepages)
		for j := range lanes[i].Hugepages {
			all = append(all, &lanes[i].Hugepages[j])
		}
	}
	for _, h := range all {
		from := pool{h.Node, h.PageBytes}
		pooled := min(h.Pages-h.Reserve, left[from])
		h.Reserve, left[from] = h.Pages-pooled, left[from]-pooled
	}
	for _, h := range all {
		from := pool{h.Node, h.PageBytes}
		pooled := min(h.Reserve, left[from])
		h.Reserve, left[from] = h.Reserve-pooled, left[from]-pooled
	}
}

func plusCapped(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry > 0 {
		return 1<<64 - 1
	}
	return sum
}

func timesCapped(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high > 0 {
		return 1<<64 - 1
	}
	return low
}
