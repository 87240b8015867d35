package lanes_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/topology"
)

// cards makes devices of another driver: "last" is on the NUMA node of this number, "first" on another, and
// "nowhere" does not say where it is. slice has further fields of their slice, and each further fields of
// each device.
func (c *cluster) cards(t *testing.T, node int, slice, each string) {
	t.Helper()
	of := func(name, where string) string {
		return fmt.Sprintf(`{name: %s, attributes: {kind: {string: %[1]s}, resource.kubernetes.io/pciBusID: {string: "0000:81:00.0"}%s}%s}`, name, where, each)
	}
	numa := func(n int) string { return fmt.Sprintf(", resource.kubernetes.io/numaNode: {int: %d}", n) }
	c.kubectl(t, fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: cards}
spec: {driver: cards.example.com, nodeName: n0, pool: {name: cards, generation: 1, resourceSliceCount: 1}%s, devices: [%s, %s, %s]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: cards.example.com}
spec: {selectors: [{cel: {expression: device.driver == "cards.example.com"}}]}
`, slice, of("first", numa(1-node)), of("nowhere", ""), of("last", numa(node))), "apply", "-f", "-")
}

// withCard returns a pod whose claim has a lane of one CPU and a card on its NUMA node. kind says which card;
// "": any.
func withCard(name, kind string) pod {
	selectors := ""
	if kind != "" {
		selectors = fmt.Sprintf(`, selectors: [{cel: {expression: 'device.attributes["cards.example.com"].kind == "%s"'}}]`, kind)
	}
	devices := fmt.Sprintf(`{requests: [{name: lane, exactly: {deviceClassName: lane.isolane.dev, capacity: {requests: {cpus: "1"}}}},
        {name: card, exactly: {deviceClassName: cards.example.com%s}}],
      constraints: [{requests: [lane, card], matchAttribute: resource.kubernetes.io/numaNode}],
      config: [{requests: [lane], opaque: {driver: isolane.dev, parameters: {apiVersion: isolane.dev/v1alpha1, kind: Lane, spec: {roles: {worker: 1}}}}}]}`, selectors)
	return pod{name: name, claims: map[string]string{"devices": devices},
		all: []container{{name: "main", claim: "devices", cpus: "1", args: `"2"`}}}
}

// devicesOf returns the devices of a pod's claim, in their order.
func (c *cluster) devicesOf(t *testing.T, pod string) []string {
	t.Helper()
	claim := c.claimOf(t, pod)
	return strings.Fields(c.kubectl(t, "", "get", "resourceclaim", claim, "-o", "jsonpath={.status.allocation.devices.results[*].device}"))
}

// claimOf returns the name of a pod's claim, once it exists.
func (c *cluster) claimOf(t *testing.T, pod string) (claim string) {
	t.Helper()
	c.until(t, "a claim of "+pod, func() (err error) {
		claim, err = c.tryKubectl(t, "", "get", "pod", pod, "-o", "jsonpath={.status.resourceClaimStatuses[0].resourceClaimName}")
		if err == nil && claim == "" {
			err = errors.New("none")
		}
		return err
	})
	return claim
}

// A claim has a lane and a card of another driver: both are on one NUMA node, and the pod has its lane. The
// card needs no preparation on the node, so that no second driver must run.
func TestCard(t *testing.T) {
	c := start(t, bed.Options{Features: map[string]bool{"DRAOptionalNodeOperations": true, "NodeDeclaredFeatures": true}})
	c.cards(t, 0, `, skipNodeOperations: ["*"]`, "")
	c.run(t)
	p := withCard("edge", "")
	c.applyPod(t, p)
	c.ready(t, "edge")
	if got := c.devicesOf(t, "edge"); !slices.Equal(got, []string{"numa0", "last"}) {
		t.Errorf("devices %q", got)
	}
	c.apart(t, c.cpusOf(t, "edge"), "edge")
	c.deletePod(t, p)
	c.until(t, "the lane is released", c.noLanes)
}

// On an invented machine of two NUMA nodes, each lane is on the node of its card. The cards never become
// ready, so no pod is bound: its lane would be in force on this machine.
func TestCardNodes(t *testing.T) {
	two := t.TempDir()
	if err := topology.Write(two, topology.Machine{NUMANodes: 2, CoresPerNode: runtime.NumCPU(), ThreadsPerCore: 1, MemoryPerNode: 8 << 30}); err != nil {
		t.Fatal(err)
	}
	c := start(t, bed.Options{Nodes: []bed.NodeOptions{{Topology: two, Kubelet: map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}}}})
	c.cards(t, 1, "", ", bindingConditions: [ready], bindingFailureConditions: [broken]")
	c.runBeside(t, c.node)
	for kind, want := range map[string]struct{ device, says string }{
		"last":  {"numa1", fmt.Sprintf("CPUs %d, memory of NUMA node 1", runtime.NumCPU())},
		"first": {"numa0", "CPUs 1, memory of NUMA node 0"},
	} {
		c.applyPod(t, withCard(kind, kind))
		claim := c.claimOf(t, kind)
		c.until(t, "the claim says so", func() error {
			said, err := c.tryKubectl(t, "", "describe", "resourceclaim", claim)
			if err == nil && !strings.Contains(said, want.says) {
				err = errors.New(said)
			}
			return err
		})
		if got := c.devicesOf(t, kind); !slices.Equal(got, []string{want.device, kind}) {
			t.Errorf("devices %q, expected %s and %s", got, want.device, kind)
		}
	}
}
