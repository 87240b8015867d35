package lanes_test

import (
	"strings"
	"testing"

	"isolane.dev/isolane/test/kube/bed"
)

// If the scheduler counts claims as CPUs of the node, a pod need not request these.
func TestCounted(t *testing.T) {
	c := start(t, bed.Options{Features: map[string]bool{"DRANodeAllocatableResources": true}})
	c.run(t)
	if devices := c.kubectl(t, "", "get", "resourceslices", "-o", "jsonpath={.items[*].spec.devices[*].nodeAllocatableResources}"); !strings.Contains(devices, `"capacityKey":"cpus"`) {
		t.Errorf("nodeAllocatableResources: %s", devices)
	}
	c.apply(t, "edge", "{}", "claims: [{name: lane}]", "1")
	c.ready(t, "edge")
	counted := c.kubectl(t, "", "get", "pod", "edge", "-o", "jsonpath={.status.nodeAllocatableResourceClaimStatuses}")
	t.Logf("nodeAllocatableResourceClaimStatuses: %s", counted)
	if !strings.Contains(counted, `"mapping":[{"name":"cpu","quantity":"1"}]`) {
		t.Errorf("the pod's status: %s", counted)
	}
	c.apart(t, c.cpusOf(t, "edge"), "edge")
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
}
