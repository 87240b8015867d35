package probe

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/results"
)

// Longest keeps the longest samples: a heap in one fixed array, with the shortest of them on top.
type Longest struct {
	CPU   *int // on which the following samples are taken, if that is known
	heap  [64]sample
	n     int
	least int64 // only samples longer than this are kept; 0 until the heap is full
}

// sample is on CLOCK_MONOTONIC, in nanoseconds.
type sample struct {
	begin, end int64
	cpu        *int
}

func (s sample) took() int64 { return s.end - s.begin }

// Add adds a sample, in nanoseconds on CLOCK_MONOTONIC, if it is among the longest.
func (l *Longest) Add(begin, end int64) {
	if end-begin > l.least {
		l.add(sample{begin, end, l.CPU})
	}
}

// Merge adds the samples that the other has kept.
func (l *Longest) Merge(other *Longest) {
	for _, s := range other.heap[:other.n] {
		if s.took() > l.least {
			l.add(s)
		}
	}
}

func (l *Longest) add(s sample) {
	at := 0
	if l.n < len(l.heap) {
		at = l.n
		l.n++
		for above := (at - 1) / 2; at > 0 && l.heap[above].took() > s.took(); above = (at - 1) / 2 {
			l.heap[at], at = l.heap[above], above
		}
	} else {
		for {
			below := 2*at + 1
			if below+1 < l.n && l.heap[below+1].took() < l.heap[below].took() {
				below++
			}
			if below >= l.n || l.heap[below].took() >= s.took() {
				break
			}
			l.heap[at], at = l.heap[below], below
		}
	}
	l.heap[at] = s
	if l.n == len(l.heap) {
		l.least = l.heap[0].took()
	}
}

// Samples returns the kept samples, the longest first.
func (l *Longest) Samples() []results.Sample {
	kept := slices.Clone(l.heap[:l.n])
	slices.SortFunc(kept, func(a, b sample) int {
		return cmp.Or(cmp.Compare(b.took(), a.took()),
			cmp.Compare(a.begin, b.begin))
	})
	var all []results.Sample
	for _, s := range kept {
		all = append(all, results.Sample{Begin: results.Nanoseconds(s.begin), End: results.Nanoseconds(s.end),
			CPU: s.cpu})
	}
	return all
}
