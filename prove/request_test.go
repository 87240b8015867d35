package prove

import (
	"strings"
	"testing"

	"isolane.dev/isolane/prove/testbed"
)

// What is asked to be in pods, and cannot, is refused before the host is touched.
func TestPodsAsked(t *testing.T) {
	o, err := Request{Runtime: testbed.Pod, Kinds: kinds(), Dir: "d"}.Options()
	if err != nil || !o.Pods || o.Scenario.Spec.Baseline != "quiet-floating" {
		t.Errorf("%v: %+v", err, o.Scenario.Spec.Baseline)
	}
	if _, err = (Request{Runtime: testbed.Pod, Kinds: kinds(), Cells: []string{"quiet-floating", "noisy-pinned"}}).Options(); err == nil ||
		!strings.Contains(err.Error(), `"noisy-pinned" is excluded: a cpuset of its own is what the kubelet's CPU manager gives`) {
		t.Error(err)
	}
	if _, err = (Request{Runtime: "vm", Kinds: kinds()}).Options(); err == nil || err.Error() != `--runtime: "vm": expected pod` {
		t.Error(err)
	}
}
