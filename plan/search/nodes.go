package search

import (
	"slices"

	"isolane.dev/isolane/plan/stock"
)

// useful are the nodes that can give the lane anything: machines have many that are there for cards alone.
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

// free is, by node, at most how much memory a lane can have.
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

// fewest is on how many nodes at least the lane has room, and memory, which spares all combinations of fewer;
// more than there are where it has not even on all together.
func (s *search) fewest() int {
	bytes := s.a.memory
	for _, h := range s.a.huge {
		bytes = stock.PlusCapped(bytes, h.Bytes)
	}
	return max(1, atLeast(s.room, s.count), atLeast(s.free(), bytes))
}

// atLeast is how many of some amounts make up a sum, the largest first; more than there are where all do not.
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
