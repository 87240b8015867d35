package ask_test

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// A refusal suggests what the pod's author can change, because nobody moves other lanes for a pod.
func TestNoMoves(t *testing.T) {
	h := on(t)
	var others []lane.Lane
	for i, name := range []string{"a", "b", "c"} { // each has one thread of every core
		others = append(others, lane.Lane{Metadata: lane.Metadata{Name: name},
			Spec: lane.Spec{CPUs: lane.CPUs{Count: 1, List: cpuset.Of(i + 1)}}})
	}
	placed, err := solver.Solve(h, plan.Placement{}, others)
	if err != nil {
		t.Fatal(err)
	}
	for i := range placed.Lanes {
		placed.Lanes[i].Spec.CPUs.List = cpuset.Set{}
	}
	c := request{capacity: map[string]string{"cpus": "2"}, parameters: spec(`{"cpus":{"smt":"pack"}}`)}.claim()
	want, err := ask.Lanes(h, c, "n0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = solver.Solve(h, placed, want); err == nil || !strings.Contains(err.Error(), "cheapest change: move ") {
		t.Fatalf("%v: expected moves, else this test says nothing", err)
	}
	_, err = ask.Solve(h, placed, "n0", pod("2"), []*resourceapi.ResourceClaim{c})
	if err == nil || !strings.HasSuffix(err.Error(), "; cheapest change: spec.preferred: {smt: 1}") {
		t.Error(err)
	}
}
