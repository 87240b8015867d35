package solver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// One more lane on a host with 256 CPUs, eight nodes and 60 lanes.
func BenchmarkRequest(b *testing.B) {
	h := hosttest.Machine{Packages: 2, CoresPerPackage: 64, ThreadsPerCore: 2, NodesPerPackage: 4, CoresPerL3: 8}.Host(b)
	rng := rand.New(rand.NewPCG(1, 0))
	sizes := []int{1, 2, 2, 3, 4, 4, 6}
	var p plan.Placement
	for len(p.Lanes) < 60 {
		next, err := Solve(h, p, []lane.Lane{askFor(fmt.Sprint("l", len(p.Lanes)), sizes[rng.IntN(len(sizes))], "")})
		if err != nil {
			b.Fatal(err)
		}
		p = next
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		l := askFor("new", []int{1, 2, 3, 4, 6, 8, 12, 16}[i%8], []string{"", lane.Isolate, lane.Pack}[i%3])
		start := time.Now()
		_, err := Solve(h, p, []lane.Lane{l})
		took = append(took, time.Since(start))
		if err != nil && i%3 == 0 {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "P50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "P99-µs")
}

// A fleet of hosts with 64 CPUs and 20 lanes each, replanned from nothing: 100 of the 10,000 hosts.
func BenchmarkFleet(b *testing.B) {
	const hosts, lanes = 100, 20
	h := hosttest.Machine{Packages: 2, CoresPerPackage: 16, ThreadsPerCore: 2, CoresPerL3: 8}.Host(b)
	rng := rand.New(rand.NewPCG(1, 0))
	for b.Loop() {
		for range hosts {
			var all []lane.Lane
			for free := 60; len(all) < lanes; {
				n := min(1+rng.IntN(4), free-(lanes-len(all)-1))
				free -= n
				all = append(all, askFor(fmt.Sprint("l", len(all)), n, ""))
			}
			var p plan.Placement
			slices.SortStableFunc(all, func(x, y lane.Lane) int { return y.Spec.CPUs.Count - x.Spec.CPUs.Count })
			for _, l := range all {
				next, err := Solve(h, p, []lane.Lane{l})
				if err != nil {
					b.Fatal(err)
				}
				p = next
			}
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*10000/hosts, "s/10,000-hosts")
}

// Twenty lanes at once: mixed wishes, memory that does not fit on one node, and a file that is refused.
func BenchmarkTogether(b *testing.B) {
	small := hosttest.Machine{Packages: 2, CoresPerPackage: 20, ThreadsPerCore: 1}
	large := hosttest.Machine{Packages: 2, CoresPerPackage: 64, ThreadsPerCore: 2, NodesPerPackage: 4, CoresPerL3: 8}
	for _, bench := range []struct {
		name    string
		machine hosttest.Machine
		count   func(i int) int
		memory  string
		refused bool
	}{
		{"40-CPUs", small, func(int) int { return 1 }, "", false},
		{"40-CPUs-memory", small, func(i int) int { return 1 + i%2 }, "1Gi", false},
		{"40-CPUs-refused", small, func(int) int { return 2 }, "", true},
		{"256-CPUs", large, func(i int) int { return 1 + i%8 }, "", false},
		{"256-CPUs-memory", large, func(i int) int { return 1 + i%8 }, "5Gi", false},
		{"256-CPUs-refused", large, func(int) int { return 13 }, "", true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			h := bench.machine.Host(b)
			var lanes []lane.Lane
			for i := range 20 {
				l := askFor(fmt.Sprintf("l%02d", i), bench.count(i), []string{"", "", lane.Isolate}[i%3*i%2])
				if err := l.Spec.Memory.Size.UnmarshalText([]byte(bench.memory)); bench.memory != "" && err != nil {
					b.Fatal(err)
				}
				lanes = append(lanes, l)
			}
			for b.Loop() {
				p, err := Solve(h, plan.Placement{}, lanes)
				if (err != nil) != bench.refused {
					b.Fatal(err)
				}
				if err == nil && !p.Optimal {
					b.ReportMetric(1, "not-proven")
				}
			}
		})
	}
}
