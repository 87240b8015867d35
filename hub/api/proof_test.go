package api

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/lane"
)

// A lane that misses its bound decides over one that keeps it. What is not proved does not count.
func TestProvedLabels(t *testing.T) {
	s := HostStatus{Proofs: []Proof{
		{Lane: "a", Metric: "rtt", Percentile: "p99.9", Verdict: lane.Held}, {Lane: "b", Metric: "rtt", Percentile: "p99.9", Verdict: lane.Unproven},
		{Lane: "a", Metric: "rtt", Percentile: "max", Verdict: lane.Missed}, {Lane: "b", Metric: "rtt", Percentile: "max", Verdict: lane.Held},
		{Lane: "a", Metric: "throughput", Verdict: lane.Unproven}}}
	want := map[string]string{Proved + "rtt-p99.9": "held", Proved + "rtt-max": "missed"}
	if d := cmp.Diff(want, s.ProvedLabels()); d != "" {
		t.Errorf("labels (-expected +found):\n%s", d)
	}
}
