package lanes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/topology"
)

// A restarted node has no lanes and no record of them: its pods get the CPUs that they had, even if others
// are free by then.
func TestReboot(t *testing.T) {
	c := start(t, bed.Options{})
	c.run(t)
	other := runtime.NumCPU() > 2 // one that goes before the reboot
	if other {
		c.lane(t, "first", "", "1")
		c.ready(t, "first")
	}
	c.lane(t, "edge", "", "2")
	c.ready(t, "edge")
	cpus := c.cpusOf(t, "edge")
	if other {
		c.delete(t, "first")
	}
	c.reboot(t)
	c.again(t, "edge", 1)
	if now := c.cpusOf(t, "edge"); now != cpus {
		t.Errorf("CPUs %s after the reboot, %s before", now, cpus)
	}
	c.apart(t, cpus, "edge")
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
}

// A pod that was deleted by force while its node was down, with its claim, is not there again: it leaves no
// lane and no file, and its CPUs go to the next pod.
func TestDeletedWhileDown(t *testing.T) {
	c := start(t, bed.Options{})
	c.run(t)
	c.lane(t, "gone", "", "2")
	c.ready(t, "gone")
	cpus, claim := c.cpusOf(t, "gone"), c.uidOf(t, "gone")
	c.reboot(t, func() error {
		c.kubectl(t, "", "delete", "pod/gone", "resourceclaimtemplate/gone", "--force", "--grace-period=0")
		c.until(t, "the claim is gone", func() error {
			left, err := c.tryKubectl(t, "", "get", "resourceclaims", "-o", "name")
			if err == nil && left != "" {
				err = errors.New(left)
			}
			return err
		})
		return nil
	})
	c.lane(t, "next", "", "1")
	c.readyWithin(t, "next", 3*time.Minute)
	if err := c.lanesOf(t, "next"); err != nil {
		t.Error(err)
	}
	if now := c.cpusOf(t, "next"); now != cpus {
		t.Errorf("CPUs %s, the pod that went had %s", now, cpus)
	}
	if strings.Contains(c.said(), claim) {
		t.Errorf("the node part has seen claim %s of the pod that went", claim)
	}
	c.delete(t, "next")
	c.until(t, "the lane is released", c.noLanes)
	c.noFiles(t)
}

// reboot takes the node down and up again as a reboot of its machine would: nothing of the lanes is set, and
// /run/isolane knows of none.
func (c *cluster) reboot(t *testing.T, down ...func() error) {
	t.Helper()
	c.kill(t)
	if out, err := exec.Command(c.programs+"/isolane", "release", "--all").CombinedOutput(); err != nil {
		t.Fatalf("isolane release --all: %v: %s", err, out)
	}
	if err := c.node.Reboot(t.Context(), down...); err != nil {
		t.Fatal(err)
	}
	c.run(t)
}

// again waits until a pod's container was restarted as often as its node. If the kubelet has asked before the
// node part was there, it asks again at the pod's next turn (syncFrequency of the bed's kubelet).
func (c *cluster) again(t *testing.T, pod string, times int) {
	t.Helper()
	c.untilWithin(t, 3*time.Minute, pod+" runs again", func() error {
		count, err := c.tryKubectl(t, "", "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
		if err == nil && (count < fmt.Sprint(times) || len(c.processesNow(pod)) == 0) {
			err = fmt.Errorf("%s restarts", count)
		}
		return err
	})
	c.ready(t, pod)
}

// uidOf returns the uid of a pod's claim.
func (c *cluster) uidOf(t *testing.T, pod string) string {
	t.Helper()
	claim := c.kubectl(t, "", "get", "pod", pod, "-o", "jsonpath={.status.resourceClaimStatuses[0].resourceClaimName}")
	return c.kubectl(t, "", "get", "resourceclaim", claim, "-o", "jsonpath={.metadata.uid}")
}

// lanesOf returns nil if the lanes in force, and the files of claims, are exactly those of these pods.
func (c *cluster) lanesOf(t *testing.T, pods ...string) error {
	t.Helper()
	var want, have []string
	for _, pod := range pods {
		want = append(want, "kube-"+c.uidOf(t, pod)+"-0")
	}
	out, err := exec.Command(c.programs+"/isolane", "status", "-o", "json").Output()
	var status struct{ Lanes []struct{ Name string } }
	if err == nil {
		err = json.Unmarshal(out, &status)
	}
	for _, l := range status.Lanes {
		have = append(have, l.Name)
	}
	slices.Sort(want)
	slices.Sort(have)
	files, ferr := filepath.Glob(c.node.Path("/run/cdi/*"))
	if err = errors.Join(err, ferr); err == nil && (!slices.Equal(want, have) || len(files) != len(pods)) {
		err = fmt.Errorf("expected lanes %v and a file for each: lanes %v, files %v", want, have, files)
	}
	return err
}

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
