package solver

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

func askFor(name string, count int, smt string) lane.Lane {
	return lane.Lane{Metadata: lane.Metadata{Name: name}, Spec: lane.Spec{CPUs: lane.CPUs{Count: count, SMT: smt}}}
}

func show(p plan.Placement) string {
	var all []string
	for _, l := range p.Lanes {
		all = append(all, fmt.Sprintf("%s=%s idle %s node %s", l.Name, l.CPUs, l.Idle, l.MemoryNodes))
	}
	return strings.Join(append(all, "housekeeping="+p.Housekeeping.String()), "; ")
}

func TestSolve(t *testing.T) {
	small := hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1}
	smt := hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 2} // 0,8 1,9 2,10 3,11 | 4,12 5,13 6,14 7,15
	node1 := 1
	near := askFor("a", 2, "")
	near.Spec.Near.NUMANode = &node1
	for _, c := range []struct {
		name    string
		machine hosttest.Machine
		lanes   []lane.Lane
		want    string
	}{
		{"two CPUs: the boot CPU is housekeeping", small, []lane.Lane{askFor("a", 1, "")}, "a=1 idle  node 0; housekeeping=0"},
		{"isolate pays for whole cores", smt, []lane.Lane{askFor("a", 2, lane.Isolate)}, "a=1-2 idle 9-10 node 0; housekeeping=0,3-8,11-15"},
		{"pack takes whole cores", smt, []lane.Lane{askFor("a", 4, lane.Pack)}, "a=1-2,9-10 idle  node 0; housekeeping=0,3-8,11-15"},
		{"what does not fit beside the boot core goes to the other node", smt, []lane.Lane{askFor("a", 8, lane.Pack)}, "a=4-7,12-15 idle  node 1; housekeeping=0-3,8-11"},
		{"near a node", smt, []lane.Lane{near}, "a=4,12 idle  node 1; housekeeping=0-3,5-11,13-15"},
		{"the second lane avoids the first", smt, []lane.Lane{askFor("a", 2, ""), askFor("b", 2, "")}, "a=1,9 idle  node 0; b=2,10 idle  node 0; housekeeping=0,3-8,11-15"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Solve(c.machine.Host(t), plan.Placement{}, c.lanes)
			if err != nil || show(p) != c.want {
				t.Errorf("%s, %v\nwant %s", show(p), err, c.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1}.Host(t)
	_, err := Solve(h, plan.Placement{}, []lane.Lane{askFor("a", 1, ""), askFor("b", 1, "")})
	var r *plan.Refusal
	if !errors.As(err, &r) || r.Lane != "b" || !strings.Contains(err.Error(), "of 2 usable, 1 belongs to lanes placed before it (a), 1 stays housekeeping's (the boot core, CPUs 0), 0 are free; cheapest change: leave it out") {
		t.Errorf("got %v", err)
	}
	for _, c := range []struct {
		count int
		edit  func(*lane.Spec)
		want  string
	}{
		{3, nil, "cheapest change: spec.cpus.count: 1"},
		{1, func(s *lane.Spec) { s.CPUs.Kind = "efficiency" }, "spec.cpus.kind: efficiency; cheapest change: spec.preferred: {kind: 1}"},
		{1, func(s *lane.Spec) { s.Memory.Size = 17 << 30 }, "spec.memory.size: 17Gi"},
		{1, func(s *lane.Spec) { s.Near.Device = "ens9" }, `spec.near.device: "ens9": the machine has the network devices none`},
		{1, func(s *lane.Spec) { s.Network.VFs = 1 }, "no device has 1 free virtual functions: expected fewer, or a card with SR-IOV"},
		{1, func(s *lane.Spec) { s.Near.Lane = "b" }, "there is no lane b"},
		{1, func(s *lane.Spec) { s.Memory.Hugepages = map[string]quantity.Bytes{"3Mi": 3 << 20} }, "no hugepages of that size"},
	} {
		l := askFor("a", c.count, "")
		if c.edit != nil {
			c.edit(&l.Spec)
		}
		if _, err = Solve(h, plan.Placement{}, []lane.Lane{l}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// A referee that knows only the rules looks at random lanes on random machines.
func TestRules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := hosttest.Machine{Packages: rapid.IntRange(1, 2).Draw(rt, "packages"), CoresPerPackage: rapid.IntRange(1, 4).Draw(rt, "cores"),
			ThreadsPerCore: rapid.IntRange(1, 2).Draw(rt, "threads"), EfficiencyCores: rapid.IntRange(0, 2).Draw(rt, "efficiency")}
		h := m.Host(t)
		var p plan.Placement
		for i := range rapid.IntRange(1, 4).Draw(rt, "lanes") {
			l := askFor(fmt.Sprint("l", i), rapid.IntRange(1, 4).Draw(rt, "count"), rapid.SampledFrom([]string{"", lane.Isolate, lane.Pack}).Draw(rt, "smt"))
			next, err := Solve(h, p, []lane.Lane{l})
			if err == nil {
				referee(rt, h, p, next, l)
				p = next
			}
		}
	})
}

func referee(t *rapid.T, h host.Host, before, after plan.Placement, l lane.Lane) {
	got := after.Lanes[len(after.Lanes)-1]
	own := got.CPUs.Union(got.Idle)
	switch {
	case got.CPUs.Len() != l.Spec.CPUs.Count:
		t.Fatalf("%s has %s, asked for %d", l.Metadata.Name, got.CPUs, l.Spec.CPUs.Count)
	case own.Intersects(before.CPUs()):
		t.Fatalf("%s has %s, which others own", l.Metadata.Name, own.Intersection(before.CPUs()))
	case !own.IsSubsetOf(h.Usable()), after.Housekeeping != h.Usable().Difference(after.CPUs()), !after.Housekeeping.Contains(0):
		t.Fatalf("lane %s, housekeeping %s of %s", own, after.Housekeeping, h.Usable())
	}
	free := h.Usable().Difference(before.CPUs())
	for _, core := range h.Cores() {
		if l.Spec.CPUs.SMT != "" && core.Intersects(own) && !core.IsSubsetOf(own) {
			t.Fatalf("%s shares core %s", l.Metadata.Name, core)
		}
		if l.Spec.CPUs.SMT == lane.Isolate && core.Intersection(got.CPUs).Len() > 1 {
			t.Fatalf("%s uses two threads of core %s", l.Metadata.Name, core)
		}
	}
	if l.Spec.CPUs.SMT != "" || got.MemoryNodes.Len() == 1 {
		return
	}
	for _, n := range h.NUMANodes { // any: crossing nodes is right only where none had room
		if boot := h.Cores()[0]; n.CPUs.Intersection(free).Difference(boot).Len() >= l.Spec.CPUs.Count {
			t.Fatalf("%s crosses nodes %s, node %d had room", l.Metadata.Name, got.MemoryNodes, n.ID)
		}
	}
}
