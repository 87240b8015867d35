package lanes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/topology"
)

// If the node that the scheduler prefers refuses a pod, it goes to another one: the first has threads of
// which the lane owns two, for which the pod does not ask.
func TestAnotherNode(t *testing.T) {
	threads := t.TempDir()
	err := topology.Write(threads, topology.Machine{NUMANodes: 1, CoresPerNode: runtime.NumCPU(), ThreadsPerCore: 2, MemoryPerNode: 8 << 30})
	if err != nil {
		t.Fatal(err)
	}
	// With the policy none it would give pods' cgroups CPUs that do not exist. So both nodes have the same
	// number to assign.
	static := map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": fmt.Sprintf("0-%d", runtime.NumCPU()-1)}
	c := start(t, bed.Options{Nodes: []bed.NodeOptions{{}, {Topology: threads, Kubelet: static}}})
	c.run(t)
	c.runBeside(t, c.Nodes[1])
	p := pod{name: "edge", likes: c.Nodes[1].Name, claims: map[string]string{"lane": request(`{cores: "1"}`, `{cpus: {smt: isolate}}`)},
		all: []container{{name: "main", claim: "lane", cpus: "1", args: `"1"`}}}
	c.applyPod(t, p)
	c.says(t, "edge", "reason=Refused", "resources.requests.cpu: expected 2 or more, the CPUs that the lane owns")
	c.ready(t, "edge")
	if on := c.kubectl(t, "", "get", "pod", "edge", "-o", "jsonpath={.spec.nodeName}"); on != c.node.Name {
		t.Errorf("the pod is on %s, expected %s", on, c.node.Name)
	}
	events := c.kubectl(t, "", "get", "events", "-o", `jsonpath={range .items[*]}{.reason} {.count} {.message}{"\n"}{end}`)
	t.Logf("%d events of refusals:\n%s", strings.Count(events, "reason=Refused"), events)
	c.apart(t, c.cpusOf(t, "edge"), "edge")
	c.deletePod(t, p)
	c.until(t, "the lane is released", c.noLanes)
}

// runBeside starts a node part of an invented node of this kernel, which may only refuse. It has its own
// record of lanes, so that it does not take those of the first for its own, and assumes that its kubelet's
// policy is none.
func (c *cluster) runBeside(t *testing.T, n *bed.Node) {
	t.Helper()
	const own = `mount --make-rprivate / && mount -t tmpfs -o mode=700 own /run/isolane && echo '{"policyName":"none"}' > /run/isolane/none &&
		mount --bind /run/isolane/none /var/lib/kubelet/cpu_manager_state && exec "$0" "$@"`
	part := n.Command(context.WithoutCancel(t.Context()), "sh", "-c", own, c.programs+"/isolane-kube", "node", "--node", n.Name,
		"--kubeconfig", c.credentials(t, n, "isolane", "isolane-kube"))
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err == nil {
		part.Stderr = log
		err = errors.Join(part.Start(), log.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = part.Process.Kill() // or it has ended, which its log says
		_ = part.Wait()
		said, _ := os.ReadFile(log.Name())
		t.Logf("isolane-kube of %s has said:\n%s", n.Name, said)
	})
	c.until(t, n.Name+" offers CPUs", func() error {
		cpus, err := c.tryKubectl(t, "", "get", "resourceslices", "-o",
			`jsonpath={.items[?(@.spec.nodeName=="`+n.Name+`")].spec.devices[*].capacity.cpus.value}`)
		if err == nil && cpus == "" {
			err = errors.New("none")
		}
		return err
	})
}

// If the kubelet itself assigns CPUs, nothing is offered, and an event says why.
func TestStaticKubelet(t *testing.T) {
	c := start(t, bed.Options{Nodes: []bed.NodeOptions{{Kubelet: map[string]any{"cpuManagerPolicy": "static",
		"reservedSystemCPUs": "0"}}}})
	c.runWithout(t)
	c.until(t, "an event", func() error {
		node, err := c.tryKubectl(t, "", "describe", "node", c.node.Name)
		if err == nil && !strings.Contains(node, `the kubelet's policy is "static": no lanes are offered`) {
			err = errors.New(node)
		}
		return err
	})
	slices := c.kubectl(t, "", "get", "resourceslices", "-o", "jsonpath={.items[*].spec.devices}")
	if strings.Contains(slices, "numa") {
		t.Error(slices)
	}
}

// With another directory than the kubelet's the node part ends and says so. If the kubelet looks there for no
// plugins, it would prepare no claim: nothing is offered, and an event says why.
func TestUnregistered(t *testing.T) {
	c := share(t)
	c.runWithout(t, "--kubelet=/var/lib/elsewhere")
	err := c.part.Wait()
	c.part = nil
	if said := c.said(); err == nil || !strings.Contains(said, "--kubelet: expected the directory of this node's kubelet") {
		t.Errorf("%v: %s", err, said)
	}
	if err = os.MkdirAll(c.node.Path("/var/lib/elsewhere/plugins_registry"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.runWithout(t, "--kubelet=/var/lib/elsewhere")
	c.until(t, "an event", func() error {
		node, err := c.tryKubectl(t, "", "describe", "node", c.node.Name)
		if err == nil && !strings.Contains(node, "/var/lib/elsewhere: the kubelet has not registered this driver (it has not called): no lanes are offered") {
			err = errors.New(node)
		}
		return err
	})
	c.offers(t, false)
}

// If the API server or only the kubelet is without features that are on by default since Kubernetes 1.36, as
// older ones are, a pod has its lane nevertheless, or is told why it has none.
func TestFeaturesOff(t *testing.T) {
	off := map[string]bool{"DRAConsumableCapacity": false}
	t.Run("everywhere", func(t *testing.T) {
		c := start(t, bed.Options{Features: off})
		c.runWithout(t)
		c.until(t, "an event", func() error {
			node, err := c.tryKubectl(t, "", "describe", "node", c.node.Name)
			if err == nil && !strings.Contains(node, "DRAConsumableCapacity: no lanes are offered") {
				err = errors.New(node)
			}
			return err
		})
		c.offers(t, false)
	})
	t.Run("in the kubelet", func(t *testing.T) {
		c := start(t, bed.Options{Nodes: []bed.NodeOptions{{Kubelet: map[string]any{"featureGates": off}}}})
		c.run(t)
		c.lane(t, "edge", "", "2")
		c.ready(t, "edge")
		c.apart(t, c.cpusOf(t, "edge"), "edge")
		c.delete(t, "edge")
		c.until(t, "the lane is released", c.noLanes)
	})
}
