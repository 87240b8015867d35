package prove

import (
	"strings"
	"testing"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/pod"
)

// What is asked to be in pods, and cannot, is refused before the host is touched.
func TestPodsAsked(t *testing.T) {
	o, err := Request{Runtime: Pod, Kinds: kinds(), Dir: "d"}.Options()
	if err != nil || !o.Pods || o.Scenario.Spec.Baseline != "quiet-floating" {
		t.Errorf("%v: %+v", err, o.Scenario.Spec.Baseline)
	}
	if _, err = (Request{Runtime: Pod, Kinds: kinds(), Cells: []string{"quiet-floating", "noisy-pinned"}}).Options(); err == nil ||
		!strings.Contains(err.Error(), `"noisy-pinned" is excluded: a cpuset of its own is what the kubelet's CPU manager gives`) {
		t.Error(err)
	}
	if _, err = (Request{Runtime: "vm", Kinds: kinds()}).Options(); err == nil || err.Error() != `--runtime: "vm": expected pod` {
		t.Error(err)
	}
}

// A session goes on with pods of the same node.
func TestPodsAgain(t *testing.T) {
	p := pods{cluster: pod.Cluster{Node: "a", Version: "v1", Image: "i"}}
	now, err := p.described(nil)
	if err != nil || *now != (results.Pods{Node: "a", Kubelet: "v1", Image: "i"}) {
		t.Fatal(err, now)
	}
	if _, err = p.described(now); err != nil {
		t.Error(err)
	}
	if _, err = p.described(&results.Pods{Node: "b", Kubelet: "v1", Image: "i"}); err == nil {
		t.Error("another node is taken for the same")
	}
}
