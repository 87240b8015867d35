package lanes_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// What somebody writes to get a lane that is not theirs, or by mistake, is refused with the reason.
func TestForged(t *testing.T) {
	c := share(t)
	c.run(t)

	// The node part of one node cannot write slices of another, whatever its program is made to do.
	slice := `apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: forged}
spec: {driver: isolane.dev, nodeName: %s, pool: {name: %s, generation: 1, resourceSliceCount: 1}, devices: [{name: numa0}]}
`
	out, err := c.tryKubectl(t, fmt.Sprintf(slice, "another", c.node.Name), "--kubeconfig="+c.kubeconfig, "create", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "slices of node another are not those of node "+c.node.Name) {
		t.Errorf("%s %v", out, err)
	}

	// As an extended resource, which has no amounts.
	c.kubectl(t, c.podOf("extended", "", `limits: {deviceclass.resource.kubernetes.io/lane.isolane.dev: 1}`, "1"), "apply", "-f", "-")
	c.says(t, "extended", "reason=Refused", "ask for a lane by a ResourceClaimTemplate")
	c.kubectl(t, "", "delete", "pod", "extended", "--wait")

	// A claim of two pods is the first one's.
	c.kubectl(t, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: shared}\nspec: {devices: "+
		request(`{cpus: "1"}`, "{}")+"}\n", "apply", "-f", "-")
	c.shares(t, "first", "1")
	c.ready(t, "first")
	cpus := c.cpusOf(t, "first")
	c.shares(t, "second", "10m")
	c.says(t, "second", "expected the claim of this pod alone: a lane is one pod's: delete this pod, and give it a claim of its own")
	c.apart(t, cpus, "first")

	// Somebody else writes other CPUs into the status: the lane stays as it is, even when its container
	// restarts.
	patch := `[{"op": "replace", "path": "/status/devices/0/data/lanes/0/cpus", "value": "0"}]`
	status := func() string {
		return c.kubectl(t, "", "get", "resourceclaim", "shared", "-o", "jsonpath={.status.devices[0].data.lanes[0].cpus} {.status.devices[0].conditions[?(@.type=='Placed')].message}")
	}
	c.kubectl(t, "", "patch", "resourceclaim", "shared", "--subresource=status", "--type=json", "--patch", patch)
	c.until(t, "the status is as before", func() error {
		if now := status(); !strings.HasPrefix(now, cpus+" CPUs "+cpus+", memory of NUMA node 0, ") {
			return errors.New(now)
		}
		return nil
	})
	c.says(t, "first", "LaneChanged", "claim shared: somebody else has written its status: put back")
	c.kill(t)
	c.kubectl(t, "", "patch", "resourceclaim", "shared", "--subresource=status", "--type=json", "--patch", patch)
	c.run(t)
	c.restart(t, "first")
	if now := c.cpusOf(t, "first"); now != cpus {
		t.Errorf("CPUs %s, before the status was written %s", now, cpus)
	}
	c.apart(t, cpus, "first")
	c.until(t, "second has no process in the lane", func() error {
		if pids := c.processesNow("second"); len(pids) > 0 {
			return errors.New(fmt.Sprint(pids))
		}
		return nil
	})
	// Nor does it get the lane when the first has gone: nobody has checked what it asks for.
	c.kubectl(t, "", "delete", "pod", "first", "--wait")
	tries := func() string { // how many containers the kubelet could not start: its events become rare
		metrics := c.kubectl(t, "", "get", "--raw", "/api/v1/nodes/"+c.node.Name+"/proxy/metrics")
		return fmt.Sprint(regexp.MustCompile(`(?m)^kubelet_started_containers_errors_total.*$`).FindAllString(metrics, -1))
	}
	for range 2 { // the first try may have begun before
		before := tries()
		c.until(t, "second is tried again", func() error {
			if tries() == before {
				return errors.New(before)
			}
			return nil
		})
	}
	if pids := c.processesNow("second"); len(pids) > 0 {
		t.Errorf("second has processes %v in the lane of first", pids)
	}
	c.kubectl(t, "", "delete", "pod", "second", "--wait")
	c.kubectl(t, "", "delete", "resourceclaim", "shared", "--wait")
	c.until(t, "the lane is released", c.noLanes)
}

// shares applies a pod with the claim named shared.
func (c *cluster) shares(t *testing.T, pod, cpu string) {
	t.Helper()
	c.kubectl(t, c.podOf(pod, "resourceClaims: [{name: lane, resourceClaimName: shared}]",
		fmt.Sprintf(`claims: [{name: lane}], requests: {cpu: "%s"}`, cpu), "1"), "apply", "-f", "-")
}

// What is asked for in a way that gives no lane is refused with the field and what was expected of it.
func TestMistakes(t *testing.T) {
	c := share(t)
	c.run(t)
	for _, m := range []struct{ name, capacity, spec, says string }{
		{"counted", `{cpus: "1"}`, "{cpus: {count: 2}}", "parameters: spec.cpus.count: 2 contradicts capacity.requests, which says 1"},
		{"many", `{cpus: "1000"}`, "{}", "cannot allocate all claims"}, // the scheduler's word: no device has that
	} {
		p := pod{name: m.name, claims: map[string]string{"lane": request(m.capacity, m.spec)},
			all: []container{{name: "main", claim: "lane", cpus: "1", args: `"1"`}}}
		c.applyPod(t, p)
		c.says(t, m.name, m.says)
		c.deletePod(t, p)
	}
	for amounts, says := range map[string]string{
		`capacity: {requests: {cpu: "1", memory: 64Mi}}`:  "capacity.requests: cpu: expected cpus, cores, memory, hugepages2Mi or hugepages1Gi",
		`capacity: {requests: {cpus: "-1"}}`:              `request lane: capacity.requests.cpus: -1: expected a whole number, 0 or more, such as "2" or 512Mi`,
		`capacity: {requests: {cpus: 500m}}`:              "request lane: capacity.requests.cpus: 500m: expected a whole number",
		`capacity: {requests: {cpus: "1", memory: -1Mi}}`: "request lane: capacity.requests.memory: -1Mi: expected a whole number",
		`capacity: {requests: {cpus: "0"}}`:               `request lane: capacity.requests.cpus: expected the CPUs of the lane, such as "2"`,
		`capacity: {requests: {memory: 64Mi}}`:            "request lane: capacity.requests.cpus: expected the CPUs of the lane",
		``:                                                "request lane: capacity.requests.cpus: expected the CPUs of the lane",
		`count: 4, capacity: {requests: {cpus: "1"}}`:     "request lane: count: expected 1: capacity.requests.cpus says how many CPUs a lane has",
	} {
		for kind, spec := range map[string]string{"ResourceClaim": "%s", "ResourceClaimTemplate": "{spec: %s}"} {
			for _, request := range []string{"exactly: {%s}", "firstAvailable: [{name: a, %s}]"} {
				of := fmt.Sprintf(request, strings.TrimSuffix("deviceClassName: lane.isolane.dev, "+amounts, ", "))
				manifest := fmt.Sprintf("{apiVersion: resource.k8s.io/v1, kind: %s, metadata: {name: unnamed}, spec: %s}", kind,
					fmt.Sprintf(spec, "{devices: {requests: [{name: lane, "+of+"}]}}"))
				if out, err := c.tryKubectl(t, manifest, "create", "--dry-run=server", "-f", "-"); err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%s: %v: %s, expected %q", manifest, err, out, says)
				}
			}
		}
	}
	other := `{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: other}, spec: {devices: {requests: [{name: gpu,
  exactly: {deviceClassName: gpu.example.com, capacity: {requests: {cpu: "1"}}}}]}}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: empty}, spec: {}}`
	c.kubectl(t, other, "apply", "-f", "-")
	c.kubectl(t, "", "delete", "resourceclaim", "other", "empty")
	if err := c.noLanes(); err != nil {
		t.Error(err)
	}
}
