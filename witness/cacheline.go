package witness

import (
	"fmt"

	"isolane.dev/isolane/results"
)

// fetches counts how often a cache line took how long, as cpu.fetched of bpf/trace.c does.
type fetches [64]uint32

const (
	fetchWidth = 16 // nanoseconds, FETCH of bpf/trace.c
	leastLooks = 30 // for a median
)

// CacheLine says how long a cache line has taken between the CPUs of the application and of the client since
// the last call, or since Begin; nil if it hardly came, or if nothing says.
func (s *Session) CacheLine() *results.CacheLine {
	if s.trace.kernel == nil {
		return nil
	}
	var states []cpuState
	if err := s.trace.kernel.coll.Maps["cpus"].Lookup(uint32(0), &states); err != nil {
		s.Warn(fmt.Sprintf("not known how far the CPUs are from each other: %v", err))
		return nil
	}
	var now fetches
	for _, state := range states {
		for i, count := range state.Fetched {
			now[i] += count
		}
	}
	since := now
	for i := range since {
		since[i] -= s.fetched[i]
	}
	s.fetched = now
	return since.cacheLine()
}

// cacheLine returns the ranks of the middles of the buckets; nil for too few looks.
func (f fetches) cacheLine() *results.CacheLine {
	var looks uint64
	for _, count := range f {
		looks += uint64(count)
	}
	if looks < leastLooks {
		return nil
	}
	rank := func(tenths uint64) results.Nanoseconds {
		var upTo uint64
		for i, count := range f {
			if upTo += uint64(count); 10*upTo > tenths*looks {
				return results.Nanoseconds(i*fetchWidth + fetchWidth/2)
			}
		}
		return 0 // not reached: upTo is looks in the end
	}
	return &results.CacheLine{Looks: looks, P10: rank(1), Median: rank(5), P90: rank(9)}
}
