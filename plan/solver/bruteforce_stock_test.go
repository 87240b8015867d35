package solver_test

import (
	"slices"

	"isolane.dev/isolane/quantity"
)

// bruteStock is what nodes and devices have left for lanes, in GiB.
type bruteStock struct {
	memory []int         // beside the pools
	pool   []map[int]int // by page size in MiB
	vfs    []int
}

func newStock(m *bruteMachine, before []*bruteLane) bruteStock {
	st := bruteStock{}
	for _, n := range m.nodes {
		left, pool := n.memory, map[int]int{}
		for page, gib := range n.pool {
			left -= gib
			pool[page] = gib
		}
		if !n.allowed {
			left, pool = 0, map[int]int{}
		}
		st.memory, st.pool = append(st.memory, left), append(st.pool, pool)
	}
	for _, d := range m.devices {
		st.vfs = append(st.vfs, d.totalVFs)
	}
	for _, l := range before {
		for n := range st.memory { // of one node, pages from the pool
			if l.memory.has(n) {
				st.memory[n] -= gib(l.spec.Memory.Size)
				for size, total := range l.spec.Memory.Hugepages {
					st.pool[n][pageMiB(size)] -= gib(total)
				}
			}
		}
		if l.device >= 0 {
			st.vfs[l.device] -= functions(l.spec)
		}
	}
	return st
}

// pooled says whether the pages of a lane that is to be there before come from the pool.
func (st bruteStock) pooled(l *bruteLane) bool {
	for size, total := range l.spec.Memory.Hugepages {
		for n := range st.pool {
			if l.memory.has(n) && st.pool[n][pageMiB(size)] < gib(total) {
				return false
			}
		}
	}
	return true
}

func gib(b quantity.Bytes) int { return int(b / bruteGiB) }

func pageMiB(size string) int {
	b, err := quantity.ParseBytes(size)
	if err != nil {
		panic(err)
	}
	return int(b >> 20)
}

// fits says whether the sizes and functions of the lanes up to i can all be had where they are to come from.
func (s *bruteSearch) fits(i int) bool {
	vfs := slices.Clone(s.stock.vfs)
	key := make([]byte, 0, 8)
	for _, l := range s.lanes[s.first : i+1] {
		key = append(key, byte(l.memory))
		if l.device >= 0 {
			if vfs[l.device] -= functions(l.spec); vfs[l.device] < 0 {
				return false
			}
		}
	}
	ok, known := s.places[string(key)]
	if !known {
		ok = s.stock.holds(s.lanes[s.first : i+1])
		s.places[string(key)] = ok
	}
	return ok
}

// holds says whether nodes have what lanes ask for: pages of the pools alone, or with memory, of which
// housekeeping then keeps some. Sizes are whole GiB, so some is one.
func (st bruteStock) holds(lanes []*bruteLane) bool {
	var demands []bruteDemand
	pagesOnly := true
	for _, l := range lanes {
		if n := gib(l.spec.Memory.Size); n > 0 {
			demands = append(demands, bruteDemand{l.memory, 0, n})
			pagesOnly = false
		}
		for size, total := range l.spec.Memory.Hugepages {
			demands = append(demands, bruteDemand{l.memory, pageMiB(size), gib(total)})
		}
	}
	none := make([]int, len(st.memory))
	if pagesOnly && st.flow(demands, none) {
		return true
	}
	return st.flow(append(demands, bruteDemand{1<<len(none) - 1, 0, 1}), st.memory)
}

// bruteDemand is so many GiB, of memory or of pages of that size, from any of the nodes.
type bruteDemand struct {
	nodes mask
	page  int // in MiB; 0 is ordinary memory
	size  int
}

// flow is a maximum flow, GiB by GiB, from demands to what nodes have: memory, and pages from the pool or
// made of memory.
func (st bruteStock) flow(demands []bruteDemand, memory []int) bool {
	nodes := len(memory)
	// Stores: node n's memory is n; its pool of the first size is nodes+n, of the second 2*nodes+n.
	left := make([]int, 3*nodes)
	for n := range nodes {
		left[n], left[nodes+n], left[2*nodes+n] = memory[n], st.pool[n][brutePage2Mi], st.pool[n][brutePage1Gi]
	}
	used := make([][]int, len(demands)) // GiB of a demand in a store
	for d := range used {
		used[d] = make([]int, 3*nodes)
	}
	open := func(d, store int) bool {
		page := [...]int{0, brutePage2Mi, brutePage1Gi}[store/nodes]
		return demands[d].nodes.has(store%nodes) && (page == 0 || page == demands[d].page)
	}
	seen := make([]bool, 3*nodes)
	var push func(d int) bool // one GiB of demand d goes somewhere, others give way
	push = func(d int) bool {
		for store := range left {
			if seen[store] || !open(d, store) {
				continue
			}
			seen[store] = true
			if left[store] > 0 {
				left[store]--
				used[d][store]++
				return true
			}
			for o := range demands {
				if o != d && used[o][store] > 0 && push(o) {
					used[o][store]--
					used[d][store]++
					return true
				}
			}
		}
		return false
	}
	for d := range demands {
		for range demands[d].size {
			clear(seen)
			if !push(d) {
				return false
			}
		}
	}
	return true
}
