package tail

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"isolane.dev/isolane/results"
)

func TestExplain(t *testing.T) {
	const µs = results.Nanoseconds(1000)
	on := func(cpu int, kind, name string, from, to results.Nanoseconds) Intrusion {
		return Intrusion{CPU: cpu, Kind: kind, Name: name, Begin: from * µs, End: to * µs}
	}
	took := func(kind, name string, ns results.Nanoseconds) results.Met {
		return results.Met{Kind: kind, Name: name, Took: ns * µs}
	}
	onClients := func(kind, name string, ns results.Nanoseconds) results.Met {
		return results.Met{Kind: kind, Name: name, Side: results.Client, Took: ns * µs}
	}
	woken := func(at, from, to results.Nanoseconds) Intrusion {
		in := on(1, Own, results.Application, from, to)
		in.Woken = at * µs
		return in
	}
	stolen := func(in Intrusion, late, within results.Nanoseconds) Intrusion {
		in.Late, in.Stolen = late*µs, within*µs
		return in
	}
	beside := func(in Intrusion) Intrusion {
		in.TID = 7
		return in
	}
	at := func(cpu int) []results.Sample { return []results.Sample{{Begin: 100 * µs, End: 210 * µs, CPU: &cpu}} }
	one := []results.Sample{{Begin: 100 * µs, End: 210 * µs}} // 100 µs beyond the median
	for _, c := range []struct {
		name        string
		samples     []results.Sample
		all         []Intrusion
		excess      results.Nanoseconds // µs
		met         []results.Met
		unexplained results.Nanoseconds // µs
	}{
		{"nothing measured", nil, []Intrusion{on(1, results.Task, "a", 0, 500)}, 0, []results.Met{}, 0},
		{"nothing met", one, nil, 100, []results.Met{}, 100},
		{"a sample below the median", []results.Sample{{Begin: 100 * µs, End: 105 * µs}},
			[]Intrusion{on(1, results.Task, "a", 100, 105)}, 0, []results.Met{}, 0},
		{"before, behind, and at the edges", one,
			[]Intrusion{on(1, results.Task, "a", 0, 100), on(1, results.Task, "b", 210, 300), on(1, results.Task, "c", 90, 120), on(1, results.Task, "d", 200, 220)},
			100, []results.Met{took(results.Task, "c", 20), took(results.Task, "d", 10)}, 70},
		{"twice the same", one, []Intrusion{on(1, results.Task, "a", 110, 120), on(1, results.Task, "a", 130, 140)},
			100, []results.Met{took(results.Task, "a", 20)}, 80},
		{"an interrupt in a softirq in a task", one,
			[]Intrusion{on(1, results.Tick, "t", 130, 135), on(1, results.Softirq, "s", 120, 140), on(1, results.Task, "a", 110, 160)},
			100, []results.Met{took(results.Task, "a", 30), took(results.Softirq, "s", 15), took(results.Tick, "t", 5)}, 50},
		{"begun together, one within the other", one,
			[]Intrusion{on(1, results.Task, "a", 50, 150), on(1, results.Softirq, "s", 50, 120)},
			100, []results.Met{took(results.Task, "a", 30), took(results.Softirq, "s", 20)}, 50},
		{"no more than the excess", one,
			[]Intrusion{on(1, results.Task, "a", 0, 155), on(1, results.Softirq, "s", 155, 300)},
			100, []results.Met{took(results.Softirq, "s", 50), took(results.Task, "a", 50)}, 0},
		{"the CPU that the application ran on last", one,
			[]Intrusion{on(2, Own, results.Application, 20, 30), on(1, Own, results.Application, 200, 215), on(2, Own, results.Application, 220, 230),
				on(1, results.Task, "a", 150, 200), on(2, results.Task, "b", 100, 210)},
			100, []results.Met{took(results.Task, "a", 50)}, 50},
		{"on the client's CPU, where the application's does not explain it", one,
			[]Intrusion{on(1, Own, results.Application, 205, 209), on(0, Own, results.Client, 95, 212), on(1, results.Task, "a", 150, 200),
				on(0, results.Tick, "t", 190, 205), on(3, results.Task, "b", 100, 200)},
			100, []results.Met{took(results.Task, "a", 50), onClients(results.Tick, "t", 5)}, 45},
		{"both on one CPU", one,
			[]Intrusion{on(1, Own, results.Application, 205, 209), on(1, Own, results.Client, 95, 212), on(1, results.Task, "a", 150, 200)},
			100, []results.Met{took(results.Task, "a", 50)}, 50},
		{"a wake-up, beyond the usual", one,
			[]Intrusion{woken(1, 3, 5), woken(20, 23, 25), woken(110, 160, 170), on(1, results.Task, "a", 130, 140)},
			100, []results.Met{took(wakeUp, results.Application, 37), took(results.Task, "a", 10)}, 53},
		{"a wake-up of before the sample", one, []Intrusion{woken(1, 3, 5), woken(20, 23, 300)}, 100, []results.Met{}, 100},
		{"steal before and within a run", one,
			[]Intrusion{stolen(woken(110, 160, 180), 30, 10), stolen(woken(1, 3, 5), 1, 1)},
			100, []results.Met{took(results.Steal, results.Hypervisor, 40), took(wakeUp, results.Application, 18)}, 42},
		{"of a run that is longer than the sample, steal in proportion", one,
			[]Intrusion{stolen(on(0, Own, results.Client, 0, 220), 0, 100)},
			100, []results.Met{took(results.Steal, results.Hypervisor, 50)}, 50},
		{"another thread of the application wakes up", one,
			[]Intrusion{woken(1, 3, 5), beside(woken(110, 160, 161)), on(1, Own, results.Application, 205, 300)}, 100, []results.Met{}, 100},
		{"on the CPU of the sample, whoever ran longer elsewhere", at(3),
			[]Intrusion{woken(1, 3, 90), on(3, Own, results.Application, 205, 209), on(1, results.Task, "a", 110, 200), on(3, results.Task, "b", 120, 170)},
			100, []results.Met{took(results.Task, "b", 50)}, 50},
		{"on the CPU of the sample, where nothing of the application was seen", at(3),
			[]Intrusion{woken(1, 3, 90), on(1, results.Task, "a", 110, 200), on(3, results.Task, "b", 120, 170)},
			100, []results.Met{took(results.Task, "b", 50)}, 50},
		{"no more steal than is free", one,
			[]Intrusion{stolen(on(1, Own, results.Application, 90, 220), 0, 130), on(1, results.Task, "a", 122, 210)},
			100, []results.Met{took(results.Task, "a", 80), took(results.Steal, results.Hypervisor, 20)}, 0},
		{"two samples", []results.Sample{one[0], {Begin: 300 * µs, End: 360 * µs}},
			[]Intrusion{on(1, results.Task, "a", 110, 120), on(1, results.Task, "b", 310, 340)},
			150, []results.Met{took(results.Task, "b", 30), took(results.Task, "a", 10)}, 110},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := results.Tail{Samples: len(c.samples), Excess: c.excess * µs, Met: c.met, Unexplained: c.unexplained * µs}
			got, why := Explain(c.samples, 10*µs, c.all)
			if diff := cmp.Diff(want, got); diff != "" || why != "" {
				t.Error(diff, why)
			}
		})
	}
}

// Where several threads serve, nobody knows what the samples met, but for those of a program of Isolane's own,
// in which one serves.
func TestExplainServers(t *testing.T) {
	sample := []results.Sample{{End: 1000}}
	run := func(tid, server int, took results.Nanoseconds) Intrusion {
		return Intrusion{Kind: Own, Name: results.Application, TID: tid, Server: server, End: took}
	}
	outside := run(2, 2, 90) // it is asked by the application
	outside.Name = results.Outside
	asked := run(3, 3, 80)
	asked.Name = results.Outside
	for _, c := range []struct {
		second Intrusion
		told   bool
	}{{run(2, 2, 25), false}, {run(2, 2, 24), true}, {run(2, 1, 90), true}, {outside, true}} {
		if tail, why := Explain(sample, 0, []Intrusion{run(1, 1, 99), c.second, asked}); (why == "") != c.told || (tail.Samples == 1) != c.told {
			t.Errorf("%+v: %q, %+v", c.second, why, tail)
		}
	}
}

// Of many sources the cheapest are added up, and the sum stays whole.
func TestExplainBoundsSources(t *testing.T) {
	sample := results.Sample{End: 1000}
	var all []Intrusion
	for i := range results.Nanoseconds(20) {
		all = append(all, Intrusion{Kind: results.Task, Name: string(rune('a' + i)), Begin: 20 * i, End: 21*i + 1})
	}
	tail, _ := Explain([]results.Sample{sample}, 0, all)
	sum := tail.Unexplained
	for _, m := range tail.Met {
		sum += m.Took
	}
	if len(tail.Met) != maxMet || tail.Met[maxMet-1].Name != results.Others || sum != tail.Excess {
		t.Errorf("%d sources, sum %d: %+v", len(tail.Met), sum, tail)
	}
}

// Each moment counts for the span that comes first of those open; a hundred thousand do not take minutes.
func TestCover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var spans []span
		for range rapid.IntRange(0, 12).Draw(t, "spans") {
			begin := rapid.Int64Range(0, 20).Draw(t, "begin")
			spans = append(spans, span{Intrusion{Begin: results.Nanoseconds(begin),
				End: results.Nanoseconds(begin + rapid.Int64Range(1, 10).Draw(t, "length"))}, rapid.IntRange(0, 2).Draw(t, "rank")})
		}
		want := make([]results.Nanoseconds, len(spans))
		for now := range results.Nanoseconds(40) {
			first := -1
			for k, s := range spans {
				if s.Begin <= now && now < s.End && (first < 0 || s.before(spans[first])) {
					first = k
				}
			}
			if first >= 0 {
				want[first]++
			}
		}
		if d := cmp.Diff(want, cover(spans)); d != "" {
			t.Fatal(d)
		}
	})
	many := make([]span, 100_000)
	for k := range many {
		many[k] = span{Intrusion{Begin: results.Nanoseconds(k), End: results.Nanoseconds(k + 1)}, 0}
	}
	if took := cover(many); took[0] != 1 || took[len(took)-1] != 1 {
		t.Errorf("%d, %d", took[0], took[len(took)-1])
	}
}
