package search

import (
	"slices"

	"isolane.dev/isolane/plan/stock"
)

// useful returns the nodes that can give the lane anything. Many machines have nodes that are there for
// devices alone.
func (s *search) useful() (nodes []int) {
	free := s.free()
	for n := range min(len(s.m.Nodes), stock.MostNodes) {
		memory := s.m.Nodes[n].HasMemory
		if s.a.wantsMemory() {
			memory = free[n] > 0
		}
		if s.room[n] > 0 || memory {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// free returns, by node, an upper bound of the memory that the lane can have.
func (s *search) free() []uint64 {
	all := make([]uint64, len(s.m.Nodes))
	for n := range all {
		left, pool := s.m.FreeMemory(n)
		for size, pages := range pool {
			left = stock.PlusCapped(left, stock.TimesCapped(size, pages))
		}
		all[n] = left
	}
	return all
}

// fewest returns a lower bound of the number of nodes on which the lane has room and memory: combinations of
// fewer need no try. If all nodes together are not enough, it returns more than there are.
func (s *search) fewest() int {
	bytes := s.a.memory
	for _, h := range s.a.huge {
		bytes = stock.PlusCapped(bytes, h.Bytes)
	}
	return max(1, atLeast(s.room, s.count), atLeast(s.free(), bytes))
}

// atLeast returns how many of some amounts, the largest first, reach a sum. If all together do not, it
// returns more than there are.
func atLeast[T int | uint64](amounts []T, sum T) int {
	for k, n := range slices.Backward(slices.Sorted(slices.Values(amounts))) {
		if sum <= 0 {
			return len(amounts) - 1 - k
		}
		sum -= min(sum, n)
	}
	if sum > 0 {
		return len(amounts) + 1
	}
	return len(amounts)
}
