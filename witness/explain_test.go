package witness

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
	one := []results.Sample{{Begin: 100 * µs, End: 210 * µs}} // 100 µs beyond the median
	for _, c := range []struct {
		name        string
		samples     []results.Sample
		all         []Intrusion
		excess      results.Nanoseconds // µs
		met         []results.Met
		unexplained results.Nanoseconds // µs
	}{
		{"nothing measured", nil, []Intrusion{on(1, Task, "a", 0, 500)}, 0, []results.Met{}, 0},
		{"nothing met", one, nil, 100, []results.Met{}, 100},
		{"a sample below the median", []results.Sample{{Begin: 100 * µs, End: 105 * µs}},
			[]Intrusion{on(1, Task, "a", 100, 105)}, 0, []results.Met{}, 0},
		{"before, behind, and at the edges", one,
			[]Intrusion{on(1, Task, "a", 0, 100), on(1, Task, "b", 210, 300), on(1, Task, "c", 90, 120), on(1, Task, "d", 200, 220)},
			100, []results.Met{took(Task, "c", 20), took(Task, "d", 10)}, 70},
		{"twice the same", one, []Intrusion{on(1, Task, "a", 110, 120), on(1, Task, "a", 130, 140)},
			100, []results.Met{took(Task, "a", 20)}, 80},
		{"an interrupt in a softirq in a task", one,
			[]Intrusion{on(1, Tick, "t", 130, 135), on(1, Softirq, "s", 120, 140), on(1, Task, "a", 110, 160)},
			100, []results.Met{took(Task, "a", 30), took(Softirq, "s", 15), took(Tick, "t", 5)}, 50},
		{"begun together, one within the other", one,
			[]Intrusion{on(1, Task, "a", 50, 150), on(1, Softirq, "s", 50, 120)},
			100, []results.Met{took(Task, "a", 30), took(Softirq, "s", 20)}, 50},
		{"no more than the excess", one,
			[]Intrusion{on(1, Task, "a", 0, 155), on(1, Softirq, "s", 155, 300)},
			100, []results.Met{took(Softirq, "s", 50), took(Task, "a", 50)}, 0},
		{"the CPU that the application ran on last", one,
			[]Intrusion{on(2, Own, "", 20, 30), on(1, Own, "", 200, 215), on(2, Own, "", 220, 230),
				on(1, Task, "a", 150, 200), on(2, Task, "b", 100, 210)},
			100, []results.Met{took(Task, "a", 50)}, 50},
		{"two samples", []results.Sample{one[0], {Begin: 300 * µs, End: 360 * µs}},
			[]Intrusion{on(1, Task, "a", 110, 120), on(1, Task, "b", 310, 340)},
			150, []results.Met{took(Task, "b", 30), took(Task, "a", 10)}, 110},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := results.Tail{Samples: len(c.samples), Excess: c.excess * µs, Met: c.met, Unexplained: c.unexplained * µs}
			if diff := cmp.Diff(want, Explain(c.samples, 10*µs, c.all)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Of many sources the cheapest are added up, and the sum stays whole.
func TestExplainBoundsSources(t *testing.T) {
	sample := results.Sample{End: 1000}
	var all []Intrusion
	for i := range results.Nanoseconds(20) {
		all = append(all, Intrusion{Kind: Task, Name: string(rune('a' + i)), Begin: 20 * i, End: 21*i + 1})
	}
	tail := Explain([]results.Sample{sample}, 0, all)
	sum := tail.Unexplained
	for _, m := range tail.Met {
		sum += m.Took
	}
	if len(tail.Met) != maxMet || tail.Met[maxMet-1].Name != others || sum != tail.Excess {
		t.Errorf("%d sources, sum %d: %+v", len(tail.Met), sum, tail)
	}
}
