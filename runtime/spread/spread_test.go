package spread

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"isolane.dev/isolane/cpuset"
)

func TestMoves(t *testing.T) {
	cpus := cpuset.MustParse("4-6")
	for name, test := range map[string]struct {
		threads []thread
		want    []move
	}{
		"all on one":            {[]thread{{1, 4, false}, {2, 4, false}, {3, 4, false}, {4, 4, false}}, []move{{1, 5}, {2, 6}}},
		"spread already":        {[]thread{{1, 4, false}, {2, 5, false}, {3, 6, false}, {4, 4, false}}, nil},
		"bound ones stay":       {[]thread{{1, 4, true}, {2, 4, true}, {3, 4, false}}, []move{{3, 5}}},
		"only bound ones there": {[]thread{{1, 4, true}, {2, 4, true}, {3, 5, false}}, nil},
		"no threads":            {nil, nil},
	} {
		if d := cmp.Diff(test.want, moves(test.threads, cpus)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// However the threads lie, afterwards no CPU idles beside a queue, and each has moved at most once.
func TestNoneIdleBesideAQueue(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		cpus := cpuset.Of(rapid.SliceOfNDistinct(rapid.IntRange(0, 20), 1, 8, rapid.ID[int]).Draw(r, "cpus")...)
		on := map[int]int{}
		var threads []thread
		for id := range rapid.IntRange(0, 30).Draw(r, "threads") {
			cpu := rapid.SampledFrom(cpus.Slice()).Draw(r, "cpu")
			threads, on[id] = append(threads, thread{ID: id, CPU: cpu}), cpu
		}
		moved := map[int]bool{}
		for _, m := range moves(threads, cpus) {
			if moved[m.Thread] {
				r.Fatalf("thread %d moves twice", m.Thread)
			}
			on[m.Thread], moved[m.Thread] = m.To, true
		}
		queue := map[int]int{}
		for cpu := range maps.Values(on) {
			queue[cpu]++
		}
		for a := range cpus.All() {
			for b := range cpus.All() {
				if queue[a] > queue[b]+1 {
					r.Fatalf("CPU %d has %d threads, CPU %d %d", a, queue[a], b, queue[b])
				}
			}
		}
	})
}
