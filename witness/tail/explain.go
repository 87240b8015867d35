package tail

import (
	"cmp"
	"fmt"
	"slices"

	"isolane.dev/isolane/results"
)

// Own is the kind of a run of a subject's thread.
const Own = "own"

// Intrusion is one stay of a source on a CPU of 2 µs or more, including what interrupted it; or a run of a
// subject's thread of any length. Begin and End are of CLOCK_MONOTONIC.
type Intrusion struct {
	CPU        int
	Kind, Name string // for an own run the name is the role
	Begin, End results.Nanoseconds
	// TID is set for own runs, and those of the lane's workload.
	TID int
	// Server is the TID too, or for Isolane's own programs the PID: there one thread serves or measures, and the
	// others are of Go's runtime.
	Server int
	Woken  results.Nanoseconds // when somebody began to wake the thread; 0: it did not sleep before
	Stolen results.Nanoseconds // by the hypervisor during the run
	Late   results.Nanoseconds // the same before the run, while the CPU was idle
}

// wakeUp is the kind of the time between waking a subject and its run: the interrupt that tells its CPU, the
// CPU's way out of its idle state, the scheduler.
const wakeUp = "wake-up"

// maxMet bounds the number of sources that a tail names. The cheapest ones are added up.
const maxMet = 16

// Explain returns which share of the samples' excess over the median the intrusions cover, by their overlaps
// in time with the samples. Intrusions on the application's CPU count before those on the client's. If
// intrusions nest, only the innermost counts, so no time counts twice. If they cover more than the excess, as
// the packet's own softirqs do, all are scaled down to it. If several CPUs are possible, only those count on
// which application and client ran last before the reply, or the sample's own. Of a wake-up only what exceeds
// a usual one counts. why says why nothing can be explained.
func Explain(samples []results.Sample, median results.Nanoseconds, intrusions []Intrusion) (
	tail results.Tail, why string) {
	on := map[int]served{}
	tail = results.Tail{Samples: len(samples), Met: []results.Met{}}
	for _, s := range samples {
		excess := s.End - s.Begin - median
		if excess <= 0 {
			continue
		}
		tail.Excess += excess
		cpu := unknown
		if s.CPU != nil {
			cpu = *s.CPU
		}
		by, known := on[cpu]
		if !known {
			if by, why = serving(intrusions, cpu); why != "" {
				return results.Tail{}, why
			}
			on[cpu] = by
		}
		met := explainOne(s, intrusions, by)
		var covered results.Nanoseconds
		for _, m := range met {
			covered += m.Took
		}
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
		tail.Met[last-1] = results.Met{Name: results.Others, Took: tail.Met[last-1].Took + tail.Met[last].Took}
		tail.Met = tail.Met[:last]
	}
	return tail, ""
}

// served is what served or measured: by role, the runs of a thread, and the median of its wake-ups.
type served struct {
	cpu   int // of the application, or unknown
	runs  map[string][]Intrusion
	usual map[string]results.Nanoseconds
}

// alone is how many times as long as any other thread of its role a thread ran that serves alone.
const alone = 4

// serving returns the thread of each role that ran longest, on cpu if that is known. It serves or measures;
// its process's other threads delay nobody. If several do, why says so, since any of them may have been late.
func serving(all []Intrusion, cpu int) (by served, why string) {
	type thread struct {
		role        string
		server, tid int
	}
	ran := map[thread]results.Nanoseconds{}
	of, longest := map[thread][]Intrusion{}, map[string]thread{}
	for _, in := range all {
		if in.Kind == Own && (cpu == unknown || in.CPU == cpu) {
			t := thread{in.Name, in.Server, in.TID}
			ran[t] += in.End - in.Begin
			of[t] = append(of[t], in)
		}
	}
	by = served{cpu, map[string][]Intrusion{}, map[string]results.Nanoseconds{}}
	for t, took := range ran {
		if took > ran[longest[t.role]] {
			longest[t.role], by.runs[t.role] = t, of[t]
		}
	}
	for t, took := range ran {
		most := longest[t.role]
		counts := t.role == results.Application || t.role == results.Client
		if cpu == unknown && counts && t.server != most.server && alone*took > ran[most] {
			return by, fmt.Sprintf("several threads of the %s work, as %d and %d: which of them the longest samples "+
				"are of is not known, nor what they met", t.role, min(t.tid, most.tid), max(t.tid, most.tid))
		}
	}
	for role, runs := range by.runs {
		var waits []results.Nanoseconds
		for _, in := range runs {
			if in.Woken > 0 {
				waits = append(waits, in.Begin-in.Woken)
			}
		}
		if slices.Sort(waits); len(waits) > 0 {
			by.usual[role] = waits[(len(waits)-1)/2]
		}
	}
	return by, ""
}

// The ranks of overlapping spans: the lowest counts.
const (
	onApplication = iota // an intrusion on the application's CPU
	applicationWaits
	onClient
	clientWaits
)

type span struct {
	Intrusion
	rank int
}

// before reports which of two overlapping spans counts. Within a rank that is the innermost, which began
// last, and among equals the one that ends first.
func (s span) before(o span) bool {
	return cmp.Or(cmp.Compare(s.rank, o.rank), cmp.Compare(o.Begin, s.Begin), cmp.Compare(s.End, o.End)) < 0
}

func explainOne(sample results.Sample, all []Intrusion, by served) (met []results.Met) {
	spans, stolen := spansOf(sample, all, by)
	free := sample.End - sample.Begin
	for i, took := range cover(spans) {
		s := spans[i]
		free -= took
		if s.Kind == wakeUp {
			late := min(s.Late, took)
			stolen, took = stolen+late, took-late-by.usual[s.Name]
			free += late
		}
		met = addMet(met, results.Met{Kind: s.Kind, Name: s.Name, Side: s.side(), Took: took})
	}
	return addMet(met, results.Met{Kind: results.Steal, Name: results.Hypervisor, Took: min(stolen, free)})
}

// spansOf returns what overlaps the sample on the CPUs of the application and the client, clipped to it.
// stolen is what the hypervisor took of their runs; of a run longer than the sample it takes a proportional
// part.
func spansOf(sample results.Sample, all []Intrusion, by served) (spans []span, stolen results.Nanoseconds) {
	add := func(in Intrusion, rank int) {
		in.Begin, in.End = max(in.Begin, sample.Begin), min(in.End, sample.End)
		if in.Begin < in.End {
			spans = append(spans, span{in, rank})
		}
	}
	at := map[string]int{results.Application: by.cpu, results.Client: unknown} // by side: the CPU
	for role, wait := range map[string]int{results.Application: applicationWaits, results.Client: clientWaits} {
		for _, in := range by.runs[role] {
			if in.Begin >= sample.End {
				break
			}
			at[role] = in.CPU
			within := min(in.End, sample.End) - max(in.Begin, sample.Begin)
			if within > 0 {
				stolen += results.Nanoseconds(float64(in.Stolen) * float64(within) / float64(in.End-in.Begin))
			}
			if in.Woken > 0 {
				in.Kind, in.Begin, in.End = wakeUp, in.Woken, in.Begin
				add(in, wait)
			}
		}
	}
	server, client := at[results.Application], at[results.Client]
	for _, in := range all {
		switch {
		case in.Kind == Own:
		case in.CPU == server || server == unknown && in.CPU != client:
			add(in, onApplication)
		case in.CPU == client:
			add(in, onClient)
		}
	}
	return spans, stolen
}

const unknown = -1

// cover returns how much time each span covers alone.
func cover(spans []span) []results.Nanoseconds {
	var edges []results.Nanoseconds
	for _, s := range spans {
		edges = append(edges, s.Begin, s.End)
	}
	slices.Sort(edges)
	took := make([]results.Nanoseconds, len(spans))
	order := make([]int, len(spans)) // by their start
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(spans[a].Begin, spans[b].Begin) })
	var open []int // started and not ended; few, even if a long sample has many spans
	for i, to := range edges[min(1, len(edges)):] {
		from, counts := edges[i], -1
		for len(order) > 0 && spans[order[0]].Begin <= from {
			open, order = append(open, order[0]), order[1:]
		}
		open = slices.DeleteFunc(open, func(k int) bool { return spans[k].End <= from })
		for _, k := range open {
			if counts < 0 || spans[k].before(spans[counts]) {
				counts = k
			}
		}
		if counts >= 0 {
			took[counts] += to - from
		}
	}
	return took
}

// side returns the side of an intrusion. A wake-up is named after its side.
func (s span) side() string {
	if s.rank == onClient {
		return results.Client
	}
	return ""
}

func addMet(all []results.Met, m results.Met) []results.Met {
	if m.Took <= 0 {
		return all
	}
	at := slices.IndexFunc(all, func(o results.Met) bool {
		return o.Kind == m.Kind && o.Name == m.Name && o.Side == m.Side
	})
	if at < 0 {
		return append(all, m)
	}
	all[at].Took += m.Took
	return all
}
