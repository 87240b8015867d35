package lane

import (
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/quantity"
)

const full = `apiVersion: isolane.dev/v1alpha1
kind: Lane
metadata: {name: vrouter-17}
spec:
  cpus: {count: 2, smt: isolate, kind: performance}
  memory: {size: 1Gi, hugepages: {2Mi: 512Mi}}
  network: {path: express, device: ens1f0, vlan: {outer: 100, inner: 17}}
  near: {device: ens1f0}
  roles: {main: 1, worker: 1}
  scheduling: {policy: fifo, priority: 50}
  objective: {rtt: {p99: 100us, p99.9: 250us}, throughput: {min: 1Gbit/s}}
`

func TestParse(t *testing.T) {
	second := strings.ReplaceAll(full, "vrouter-17", "vrouter-18")
	got, err := Parse("lanes.yaml", strings.NewReader(full+"---\n"+second))
	if err != nil || len(got) != 2 {
		t.Fatalf("%d lanes, %v", len(got), err)
	}
	s := got[0].Spec
	if s.CPUs.Count != 2 || s.Memory.Hugepages["2Mi"] != 512<<20 || s.Objective.Throughput.Min != 1e9 ||
		s.Objective.RTT["p99.9"] != quantity.Duration(250*time.Microsecond) || s.Network.VLAN.Inner != 17 {
		t.Errorf("got %+v", s)
	}
}

func TestBalanced(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		cpus  int
		roles map[string]int
		asked *bool
		want  bool
	}{
		{1, nil, nil, false},
		{1, nil, &yes, true},
		{3, nil, nil, true},
		{3, nil, &no, false},
		{3, map[string]int{"main": 1, "worker": 2}, nil, false},
		{3, map[string]int{"main": 1, "worker": 2}, &yes, true},
		{4, map[string]int{"main": 1, "worker": 2}, nil, true},
	} {
		s := Spec{CPUs: CPUs{Count: c.cpus, Balance: c.asked}, Roles: c.roles}
		if err := s.Validate(); err != nil || s.Balanced() != c.want {
			t.Errorf("%+v: balanced %v, %v; want %v", c, s.Balanced(), err, c.want)
		}
	}
}
