package solver

import (
	"fmt"
	"strings"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// What is free is what Solve places: a lane of each largest shape fits, and one of one CPU more does not.
// What lanes have is not in it.
func TestFree(t *testing.T) {
	h := vector(t)
	p, err := Solve(h, plan.Placement{}, declare(t, "a: {cpus: {count: 3, smt: isolate}, near: {numaNode: 1}, memory: {size: 4Gi, hugepages: {2Mi: 1Gi}}}"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := Free(h, plan.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Free(h, p)
	if err != nil {
		t.Fatal(err)
	}
	one := r.Nodes[1]
	if got := fmt.Sprint(r.CPUs, one.Node, one.CPUs, one.L3, one.Kinds[host.Uniform]); got != "1-7,11-15,17-23,27-31 1 11-15,27-31 map[8:11-15,27-31] 11-15,27-31" {
		t.Error(got)
	}
	if less := before.Nodes[1].Memory - one.Memory; less != 4<<30 || before.Nodes[1].Hugepages[2<<20]-one.Hugepages[2<<20] != 512 {
		t.Error(less, before.Nodes[1].Hugepages, one.Hugepages)
	}
	for _, s := range r.Shapes {
		for n, want := range map[int]bool{s.CPUs: true, s.CPUs + 1: false} {
			l := askFor("b", n, s.SMT)
			switch s.Within {
			case "node":
				l.Spec.CPUs.NUMA = lane.One
			case "l3":
				l.Spec.CPUs.L3 = lane.One
			}
			if _, err := Solve(h, p, []lane.Lane{l}); n > 0 && (err == nil) != want {
				t.Errorf("%+v: %d CPUs: %v", s, n, err)
			}
		}
	}
}

// A process that may use no CPU is told so, without a panic.
func TestNoUsableCPU(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 2, Allowed: cpuset.Of(8)}.Host(t)
	if room, err := Free(h, plan.Placement{}); err != nil || !room.CPUs.IsEmpty() {
		t.Errorf("%v, %v", room.CPUs, err)
	}
	for _, lanes := range []string{"a: {cpus: {count: 1}}", "a: {cpus: {count: 1}}\nb: {cpus: {count: 2, smt: isolate}}"} {
		if _, err := Solve(h, plan.Placement{}, declare(t, lanes)); err == nil || !strings.Contains(err.Error(), "asks for 1 CPU; none is usable") {
			t.Errorf("got %v", err)
		}
	}
}
