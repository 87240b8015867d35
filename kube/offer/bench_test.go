package offer_test

import (
	"fmt"
	"testing"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// BenchmarkDevices has a machine of 256 CPUs with 60 lanes.
func BenchmarkDevices(b *testing.B) {
	h := hosttest.Machine{Packages: 2, CoresPerPackage: 64, ThreadsPerCore: 2, NodesPerPackage: 4, CoresPerL3: 8}.Host(b)
	p := plan.Placement{}
	for i := range 60 {
		var err error
		l := lane.Lane{Metadata: lane.Metadata{Name: fmt.Sprint("lane-", i)}, Spec: lane.Spec{CPUs: lane.CPUs{Count: 2, SMT: lane.Pack}}}
		if p, err = solver.Solve(h, p, []lane.Lane{l}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := (offer.Node{Host: h, Placed: p, Pool: "n0"}).Devices(); err != nil {
			b.Fatal(err)
		}
	}
}
