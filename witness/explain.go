package witness

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/results"
)

// maxMet bounds the sources that a tail names; the cheapest of them are added up.
const maxMet = 16

// Explain says which share of what the samples took beyond median the intrusions cover: overlaps in
// time, clipped to the sample. Where intrusions nest, the innermost counts, so none is counted twice;
// where they cover more than the excess, as the packet's own softirqs do, all are scaled down to it.
// Of several CPUs only the one counts on which the application ran last before the reply.
func Explain(samples []results.Sample, median results.Nanoseconds, intrusions []Intrusion) results.Tail {
	tail := results.Tail{Samples: len(samples), Met: []results.Met{}}
	for _, s := range samples {
		excess := s.End - s.Begin - median
		if excess <= 0 {
			continue
		}
		tail.Excess += excess
		met, covered := cover(within(s, intrusions))
		scale := 1.0
		if covered > excess {
			scale = float64(excess) / float64(covered)
		}
		tail.Unexplained += excess
		for _, m := range met {
			m.Took = results.Nanoseconds(float64(m.Took) * scale)
			tail.Unexplained -= m.Took
			tail.Met = addMet(tail.Met, m)
		}
	}
	slices.SortFunc(tail.Met, func(a, b results.Met) int {
		return cmp.Or(cmp.Compare(b.Took, a.Took), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	for len(tail.Met) > maxMet {
		last := len(tail.Met) - 1
		tail.Met[last-1] = results.Met{Name: others, Took: tail.Met[last-1].Took + tail.Met[last].Took}
		tail.Met = tail.Met[:last]
	}
	return tail
}

// within returns what overlaps with the sample on the application's CPU, clipped to it.
func within(s results.Sample, all []Intrusion) []Intrusion {
	var last *Intrusion // run of the application
	for i, in := range all {
		if in.Kind == Own && in.Begin < s.End && (last == nil || in.Begin > last.Begin) {
			last = &all[i]
		}
	}
	var found []Intrusion
	for _, in := range all {
		if in.Kind == Own || last != nil && in.CPU != last.CPU {
			continue
		}
		in.Begin, in.End = max(in.Begin, s.Begin), min(in.End, s.End)
		if in.Begin < in.End {
			found = append(found, in)
		}
	}
	return found
}

// cover returns what each source covers, and how much they cover together.
func cover(found []Intrusion) (met []results.Met, covered results.Nanoseconds) {
	var edges []results.Nanoseconds
	for _, in := range found {
		edges = append(edges, in.Begin, in.End)
	}
	slices.Sort(edges)
	for i, to := range edges[min(1, len(edges)):] {
		from := edges[i]
		var inner *Intrusion // the one that began last, of equals the one that ends first
		for k, in := range found {
			if in.Begin <= from && to <= in.End && from < to && (inner == nil || in.Begin > inner.Begin ||
				in.Begin == inner.Begin && in.End < inner.End) {
				inner = &found[k]
			}
		}
		if inner != nil {
			met = addMet(met, results.Met{Kind: inner.Kind, Name: inner.Name, Took: to - from})
			covered += to - from
		}
	}
	return met, covered
}

func addMet(all []results.Met, m results.Met) []results.Met {
	at := slices.IndexFunc(all, func(o results.Met) bool { return o.Kind == m.Kind && o.Name == m.Name })
	if at < 0 {
		return append(all, m)
	}
	all[at].Took += m.Took
	return all
}
