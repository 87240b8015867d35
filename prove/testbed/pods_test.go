package testbed

import (
	"testing"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/pod"
)

// A session goes on with pods of the same node.
func TestPodsAgain(t *testing.T) {
	p := Pods{cluster: pod.Cluster{Node: "a", Version: "v1", Image: "i"}}
	now, err := p.Described(nil)
	if err != nil || *now != (results.Pods{Node: "a", Kubelet: "v1", Image: "i"}) {
		t.Fatal(err, now)
	}
	if _, err = p.Described(now); err != nil {
		t.Error(err)
	}
	if _, err = p.Described(&results.Pods{Node: "b", Kubelet: "v1", Image: "i"}); err == nil {
		t.Error("another node is taken for the same")
	}
}
