package solver

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// A lane that names its CPUs gets these, with memory, idle siblings and reasons as if they had been chosen
// for it; or the refusal says what is wrong with them.
func TestNamedCPUs(t *testing.T) {
	for _, c := range []struct{ name, lanes, want string }{
		{"any", "a: {cpus: {count: 2, list: '9,25'}}", "a=9,25 idle  node 1"},
		{"of two nodes", "a: {cpus: {count: 2, list: '3,9'}, memory: {size: 1Gi}}", "a=3,9 idle  node 1"},
		{"the second thread, its sibling idle", "a: {cpus: {count: 1, list: '20', smt: isolate}}", "a=20 idle 4 node 0"},
		{"whole cores", "a: {cpus: {count: 2, list: '4,20', smt: pack}}", "a=4,20 idle  node 0"},
		{"others keep off, also its sibling", "a: {cpus: {count: 14}, near: {numaNode: 0}}\nb: {cpus: {count: 1, list: '1', smt: isolate}}", "2 are named by b, 28 are free; spec.near: node 0"},
		{"others go elsewhere", "a: {cpus: {count: 1}}\nb: {cpus: {count: 1, list: '1', smt: isolate}}", "a=2 idle  node 0; b=1 idle 17 node 0"},
		{"of the boot core", "a: {cpus: {count: 1, list: '16'}}", "16 are of the boot core (spec.cpus.boot)"},
		{"cut a core", "a: {cpus: {count: 2, list: '4,21', smt: pack}}", "smt: pack wants all of core 4,20; smt: pack wants all of core 5,21"},
		{"both threads", "a: {cpus: {count: 2, list: '4,20', smt: isolate}}", "smt: isolate wants one of core 4,20"},
		{"not there", "a: {cpus: {count: 1, list: '99'}}", "99 are offline or not allowed"},
		{"taken", "a: {cpus: {count: 1, list: '4'}}\nb: {cpus: {count: 1, list: '4'}}", "refused"},
		{"against a wish", "a: {cpus: {count: 1, list: '4'}, near: {numaNode: 1}}", "spec.near: node 1"},
	} {
		p, err := Solve(vector(t), plan.Placement{}, declare(t, c.lanes))
		got := show(p)
		for _, l := range p.Lanes {
			if reasons := strings.Join(l.Reasons, "\n"); !l.Spec.CPUs.List.IsEmpty() &&
				(!strings.Contains(reasons, "because spec.cpus.list names them") || strings.Contains(reasons, "no room")) {
				t.Errorf("%s: %s", c.name, reasons)
			}
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: expected %s, found %s", c.name, c.want, got)
		}
	}
	lanes := declare(t, "a: {cpus: {count: 1, list: '4'}}")
	if err := lanes[0].Validate(); err != nil {
		t.Error(err)
	}
	lanes[0].Spec.CPUs.Count = 2
	if err := lanes[0].Validate(); err == nil || !strings.Contains(err.Error(), "spec.cpus.list: expected 2 CPUs, spec.cpus.count, found 4") {
		t.Error(err)
	}
}

// What the planner chooses for lanes, they get too when they name it: the same CPUs, siblings and memory.
// What they name at random they get, or they are refused.
func TestNamedIsChosen(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := hosttest.Machine{Packages: rapid.IntRange(1, 2).Draw(r, "packages"), CoresPerPackage: rapid.IntRange(2, 5).Draw(r, "cores"),
			ThreadsPerCore: rapid.IntRange(1, 2).Draw(r, "threads")}
		h := m.Host(t)
		h.CPUs = append([]host.CPU(nil), h.CPUs...)
		var lanes []lane.Lane
		for i := range rapid.IntRange(1, 3).Draw(r, "lanes") {
			l := lane.Lane{Metadata: lane.Metadata{Name: string(rune('a' + i))}}
			l.Spec.CPUs.Count = rapid.IntRange(1, 3).Draw(r, "count")
			l.Spec.CPUs.SMT = rapid.SampledFrom([]string{"", lane.Isolate, lane.Pack, lane.Any}).Draw(r, "smt")
			lanes = append(lanes, l)
		}
		p, err := Solve(h, plan.Placement{}, lanes)
		if err == nil {
			for i := range lanes {
				lanes[i].Spec.CPUs.List = p.Lanes[i].CPUs
			}
			again, aerr := Solve(h, plan.Placement{}, lanes)
			if aerr != nil || show(again) != show(p) {
				r.Fatalf("chosen %s, named %s: %v", show(p), show(again), aerr)
			}
		}
		ids := rapid.SliceOfNDistinct(rapid.IntRange(0, len(h.CPUs)-1), lanes[0].Spec.CPUs.Count, lanes[0].Spec.CPUs.Count, rapid.ID[int]).Draw(r, "list")
		for i := range lanes {
			lanes[i].Spec.CPUs.List = cpuset.Set{}
		}
		lanes[0].Spec.CPUs.List = cpuset.Of(ids...)
		p, err = Solve(h, plan.Placement{}, lanes)
		var refusal *plan.Refusal
		switch {
		case err == nil && p.Lanes[0].CPUs != lanes[0].Spec.CPUs.List:
			r.Fatalf("named %s, got %s", lanes[0].Spec.CPUs.List, show(p))
		case err != nil && !errors.As(err, &refusal):
			r.Fatal(err)
		}
	})
}
