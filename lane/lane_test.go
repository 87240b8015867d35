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

// The part of 1 is the number that its digits say: 99.9 divided by 100 is not 0.999.
func TestQuantile(t *testing.T) {
	for name, want := range map[string]float64{"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "p99.999": 0.99999, "max": 1} {
		if got, err := Quantile(name); got != want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "p", "p0", "p100", "p-1", "pNaN", "p1e1", "99.9", "p99.9e-9999999999", "p0x1p-3"} {
		if got, err := Quantile(name); err == nil {
			t.Errorf("%q: %v", name, got)
		}
	}
}
