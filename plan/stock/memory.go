package stock

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	"isolane.dev/isolane/plan"
)

// Need is the memory of one lane, and the nodes from which it may come.
type Need struct {
	Bytes uint64 // besides hugepages
	Huge  []HugeSize
	Nodes NodeSet
	From  NodeSet // of its CPUs: memory comes from the nearest node first
}

// HugeSize is bytes in pages of one size.
type HugeSize struct{ Page, Bytes uint64 }

// Allocation is what a need gets.
type Allocation struct {
	Memory []plan.Memory
	Huge   []plan.Hugepages
}

// Allocate finds memory and hugepages for several needs at once, so that no need takes what another one can
// get nowhere else. It solves a flow from wants to the pools and memory of nodes, in whole pages. It returns
// false if there is not enough.
func (m *Machine) Allocate(needs []Need) ([]Allocation, bool) {
	f := flow{m: m}
	for n := range m.Nodes {
		left, pool := m.FreeMemory(n)
		f.left = append(f.left, left)
		f.pools = append(f.pools, pool)
		f.spare = PlusCapped(f.spare, left)
	}
	f.spare -= min(f.spare, m.HousekeepingBytes)
	for i, n := range needs {
		for _, h := range n.Huge {
			f.add(i, n, h.Page, h.Bytes/h.Page*h.Page)
		}
	}
	for i, n := range needs {
		if n.Bytes > 0 {
			f.add(i, n, 1, n.Bytes)
		}
	}
	// The largest pages come first.
	slices.SortStableFunc(f.wants, func(a, b want) int { return cmp.Compare(b.page, a.page) })
	left := make([]uint64, len(f.wants))
	for i, w := range f.wants { // pools first, to take the least memory
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

// want is bytes in pages of one size for one need, and what it has got so far.
type want struct {
	need  int
	page  uint64 // 1 for ordinary memory
	bytes uint64
	order []int // its nodes, the nearest first
	mem   map[int]uint64
	pool  map[int]uint64
}

// flow is the state of the search for an allocation.
type flow struct {
	m     *Machine
	left  []uint64            // by node: free bytes of memory
	pools []map[uint64]uint64 // by node: free pages of the pools, by size
	spare uint64              // bytes of memory that may be taken in all; the rest is housekeeping's
	wants []want
}

func (f *flow) add(i int, n Need, page, bytes uint64) {
	w := want{need: i, page: page, bytes: bytes, mem: map[int]uint64{}, pool: map[int]uint64{}}
	w.order = slices.Collect(n.Nodes.All())
	slices.SortStableFunc(w.order, func(a, b int) int {
		return cmp.Compare(f.m.Distance(n.From, a), f.m.Distance(n.From, b))
	})
	f.wants = append(f.wants, w)
}

// via is the want that takes over what another one has on a node, in its pool or its memory.
type via struct {
	want, node int
	pooled     bool
}

// push brings up to most bytes to a want: from a pool, from memory unless onlyPools, or from another want
// that can get as much elsewhere (along an augmenting path, found breadth first). It returns how many bytes;
// 0 for none.
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

// along moves bytes from want to want along a path, as many whole pages as each of them has, so that last may
// take as many elsewhere. It returns how many bytes; if 0, nothing has changed.
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

// couldTake reports whether a want could use what another one has on a node.
func (f *flow) couldTake(w, o *want, n int, pooled bool) bool {
	if o.have(pooled)[n] == 0 || pooled && o.page != w.page {
		return false
	}
	_, known := f.pools[n][w.page]
	return w.page == 1 || known
}

// have returns what a want has of pools, or of memory, by node.
func (w *want) have(pooled bool) map[int]uint64 {
	if pooled {
		return w.pool
	}
	return w.mem
}

// room returns how many bytes, in whole pages, a node's pool or memory has for a want.
func (f *flow) room(w *want, n int, pooled bool) uint64 {
	if w.page > 1 {
		pages, ok := f.pools[n][w.page]
		if pooled || !ok { // a node without that size cannot make such pages from its memory
			return TimesCapped(pages, w.page)
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

// given returns what each need got.
func (f *flow) given(needs []Need) []Allocation {
	all := make([]Allocation, len(needs))
	for _, w := range f.wants {
		g := &all[w.need]
		for _, n := range w.order {
			bytes := w.mem[n] + w.pool[n]
			switch {
			case bytes == 0:
			case w.page == 1:
				g.Memory = append(g.Memory, plan.Memory{Node: f.m.Nodes[n].ID, Bytes: bytes})
			default:
				g.Huge = append(g.Huge, plan.Hugepages{Node: f.m.Nodes[n].ID, PageBytes: w.page,
					Pages: bytes / w.page, Reserve: w.mem[n] / w.page})
			}
		}
	}
	return all
}

// HasStock reports whether lanes take no more of a node's memory than there is, and leave housekeeping its
// part.
func (m *Machine) HasStock() bool {
	left, taken := uint64(0), uint64(0)
	for n := range m.Nodes {
		empty, pool := m.With(nil).FreeMemory(n)
		used := m.usedMemory(n, pool)
		if used > empty {
			return false
		}
		left, taken = PlusCapped(left, empty-used), PlusCapped(taken, used)
	}
	return taken == 0 || left >= m.HousekeepingBytes
}

// NodesOfMemory returns the nodes that memory comes from.
func (m *Machine) NodesOfMemory(g Allocation) NodeSet {
	var set NodeSet
	for n, at := range m.Nodes {
		if slices.ContainsFunc(g.Memory, func(h plan.Memory) bool { return h.Node == at.ID }) ||
			slices.ContainsFunc(g.Huge, func(h plan.Hugepages) bool { return h.Node == at.ID }) {
			set |= 1 << n
		}
	}
	return set
}

// PageSizes returns the sizes of hugepages that the machine has.
func (m *Machine) PageSizes() []uint64 {
	sizes := map[uint64]bool{}
	for _, n := range m.Nodes {
		for size := range n.pool {
			sizes[size] = true
		}
	}
	return slices.Sorted(maps.Keys(sizes))
}

// FreeMemory returns what no lane has of a node: bytes of memory outside of pools, and pages of its pools by
// size.
func (m *Machine) FreeMemory(n int) (bytes uint64, pool map[uint64]uint64) {
	at := m.Nodes[n]
	pool = maps.Clone(at.pool)
	if !at.HasMemory {
		return 0, pool
	}
	used := m.usedMemory(n, pool)
	for size, pages := range at.pool {
		used = PlusCapped(used, TimesCapped(size, pages))
	}
	return at.memory - min(at.memory, used), pool
}

// AllFreeMemory returns the free memory of all nodes outside of their pools, in bytes.
func (m *Machine) AllFreeMemory() uint64 {
	sum := uint64(0)
	for n := range m.Nodes {
		bytes, _ := m.FreeMemory(n)
		sum = PlusCapped(sum, bytes)
	}
	return sum
}

// usedMemory returns what lanes have of a node's memory outside of its pools. It removes their pages from
// pool.
func (m *Machine) usedMemory(n int, pool map[uint64]uint64) uint64 {
	used, id := uint64(0), m.Nodes[n].ID
	for _, l := range m.Lanes {
		for _, has := range l.Memory {
			if has.Node == id {
				used = PlusCapped(used, has.Bytes)
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
			used = PlusCapped(used, TimesCapped(has.Pages-inPool, has.PageBytes))
		}
	}
	return used
}

// SharePools corrects Reserve after moves. Lanes keep their pages of pools as far as the pools have that
// many, and then get those that others have left.
func (m *Machine) SharePools(lanes []plan.Lane) {
	type pool struct {
		node int
		page uint64
	}
	left := map[pool]uint64{}
	for _, n := range m.Nodes {
		for page, pages := range n.pool {
			left[pool{n.ID, page}] = pages
		}
	}
	var all []*plan.Hugepages
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

// PlusCapped returns the sum, or the largest number if it overflows.
func PlusCapped(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry > 0 {
		return 1<<64 - 1
	}
	return sum
}

// TimesCapped returns the product, or the largest number if it overflows.
func TimesCapped(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high > 0 {
		return 1<<64 - 1
	}
	return low
}
