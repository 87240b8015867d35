package echo

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/results"
)

// longest keeps the longest round trips: a heap with the shortest of them on top, in one fixed array.
type longest struct {
	heap  [64]trip
	n     int
	least int64 // only round trips longer than that belong in; 0 until the heap is full
}

// trip is a round trip on CLOCK_MONOTONIC, in nanoseconds.
type trip struct{ begin, end int64 }

func (t trip) took() int64 { return t.end - t.begin }

// add takes in a round trip longer than least.
func (l *longest) add(begin, end int64) {
	at := 0
	if l.n < len(l.heap) {
		at = l.n
		l.n++
		for above := (at - 1) / 2; at > 0 && l.heap[above].took() > end-begin; above = (at - 1) / 2 {
			l.heap[at], at = l.heap[above], above
		}
	} else {
		for {
			below := 2*at + 1
			if below+1 < l.n && l.heap[below+1].took() < l.heap[below].took() {
				below++
			}
			if below >= l.n || l.heap[below].took() >= end-begin {
				break
			}
			l.heap[at], at = l.heap[below], below
		}
	}
	l.heap[at] = trip{begin, end}
	if l.n == len(l.heap) {
		l.least = l.heap[0].took()
	}
}

// samples returns what was kept, the longest first.
func (l *longest) samples() []results.Sample {
	kept := slices.Clone(l.heap[:l.n])
	slices.SortFunc(kept, func(a, b trip) int {
		return cmp.Or(cmp.Compare(b.took(), a.took()),
			cmp.Compare(a.begin, b.begin))
	})
	var all []results.Sample
	for _, t := range kept {
		all = append(all, results.Sample{Begin: results.Nanoseconds(t.begin), End: results.Nanoseconds(t.end)})
	}
	return all
}
