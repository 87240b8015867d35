package layout

import (
	"strings"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/results"
)

// The application is where its distance says, and the client where it is in all cells; what a machine has not
// is said.
func TestDistance(t *testing.T) {
	two := hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1}
	three := hosttest.Machine{Packages: 1, CoresPerPackage: 3, ThreadsPerCore: 2}
	large := hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 2}
	for _, c := range []struct {
		name    string
		machine hosttest.Machine
		place   factor.Place
		d       factor.Distance
		want    string // "" for none
	}{
		{"two CPUs", two, factor.InCpuset, factor.SameCPU, "same"},
		{"two CPUs", two, factor.InLane, factor.SameCPU, ""},
		{"two CPUs", two, factor.InLane, factor.SameL3, "core"},
		{"two CPUs", two, factor.InLane, factor.Siblings, ""},
		{"two CPUs", two, factor.InLane, factor.OtherNode, ""},
		{"three cores", three, factor.InLane, factor.Siblings, "sibling"},
		{"three cores", three, factor.InLane, factor.SameL3, "core"},
		{"large", large, factor.InCpuset, factor.SameCPU, "same"},
		{"large", large, factor.InLane, factor.Siblings, "sibling"},
		{"large", large, factor.InLane, factor.SameL3, "core"},
		{"large", large, factor.InLane, factor.OtherNode, "node"},
		{"large", large, factor.InLane, factor.OtherL3, ""},
	} {
		h := c.machine.Host(t)
		cells := []*results.Cell{{Name: "free"}, {Name: "set"}}
		given := func(cell results.Cell) factor.Conditions {
			f := factor.Conditions{Place: c.place, Lane: lane.Spec{CPUs: lane.CPUs{Count: 1}}}
			if cell.Name == "set" {
				f.Distance = c.d
			}
			return f
		}
		_, impossible, err := Plan(Request{Host: h, Cells: cells, Conditions: given, Outside: true})
		if err != nil || impossible["free"] != nil {
			t.Fatal(c.name, impossible, err)
		}
		why := impossible["set"]
		if c.want == "" {
			if why == nil || !strings.Contains(why.Error(), c.d.String()) {
				t.Errorf("%s, %s: application %s, %v", c.name, c.d, cells[1].Application, why)
			}
			continue
		}
		if why != nil || cells[0].Client != cells[1].Client || cells[1].Application.Len() != 1 {
			t.Errorf("%s, %s: %v, client %s and %s", c.name, c.d, why, cells[0].Client, cells[1].Client)
			continue
		}
		if got := shares(t, h.CPUs[cells[1].Client.First()], h.CPUs[cells[1].Application.First()]); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.name, c.d, got, c.want)
		}
		if got, same := cells[1].Apart, c.d == factor.SameCPU; len(got) > 0 == same || !same && got[0] != c.d.String() {
			t.Errorf("%s: %q, want %s", c.name, got, c.d)
		}
	}
	if cpus := away(two.Host(t), 0, factor.SameL3); cpus != cpuset.Of(1) {
		t.Error(cpus)
	}
}

// shares says in a word what two CPUs share.
func shares(t *testing.T, a, b host.CPU) string {
	t.Helper()
	switch {
	case a.ID == b.ID:
		return "same"
	case *a.Core == *b.Core:
		return "sibling"
	case *a.L3 == *b.L3:
		return "core"
	case *a.NUMANode == *b.NUMANode:
		return "l3"
	}
	return "node"
}
