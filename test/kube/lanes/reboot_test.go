package lanes_test

import (
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
)

// A restarted node has no lanes and no record of them: its pods get the CPUs that they had, even if others
// are free by then.
func TestReboot(t *testing.T) {
	c := share(t)
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
	c := share(t)
	c.run(t)
	c.lane(t, "gone", "", "2")
	c.ready(t, "gone")
	cpus, claim := c.cpusOf(t, "gone"), c.uidOf(t, "gone")
	c.reboot(t, func() error {
		c.kubectl(t, "", "delete", "pod/gone", "resourceclaimtemplate/gone", "--force", "--grace-period=0")
		c.noClaims(t)
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

// The same while only the node part is away: the lane goes when that is back, and the pod's processes have
// ended.
func TestDeletedWhileAway(t *testing.T) {
	c := share(t)
	c.run(t)
	c.lane(t, "gone", "", "2")
	c.ready(t, "gone")
	cpus := c.cpusOf(t, "gone")
	c.kill(t)
	c.kubectl(t, "", "delete", "pod/gone", "resourceclaimtemplate/gone", "--force", "--grace-period=0")
	c.noClaims(t)
	c.run(t)
	c.until(t, "the lane is released", c.noLanes)
	c.noFiles(t)
	c.lane(t, "next", "", "1")
	c.ready(t, "next")
	if now := c.cpusOf(t, "next"); now != cpus {
		t.Errorf("CPUs %s, the pod that went had %s", now, cpus)
	}
	c.delete(t, "next")
	c.until(t, "the lane is released", c.noLanes)
}

// The node is a machine that loses its power and boots again: $ISOLANE_KUBE_BOOT says what part of this test
// runs. "before" leaves pods with lanes, writes their CPUs into the cluster, and cuts the power. The other
// part is a folder with the node's disk: pods have the CPUs that they had, also beside one that came since.
func TestBoot(t *testing.T) {
	const note = "example.com/cpus"
	disk := os.Getenv("ISOLANE_KUBE_BOOT")
	if disk == "" {
		t.Skip("skipped: needs a machine that boots, ISOLANE_KUBE_BOOT")
	}
	needCPUs(t, 4)
	if disk == "before" {
		c := start(t, bed.Options{})
		c.run(t)
		c.lane(t, "first", "", "1") // goes before the cut, so that other CPUs are free than when the others came
		c.ready(t, "first")
		for _, name := range []string{"edge", "other"} {
			c.lane(t, name, "", "2")
			c.ready(t, name)
			c.kubectl(t, "", "annotate", "pod", name, note+"="+c.cpusOf(t, name))
		}
		c.delete(t, "first")
		c.lane(t, "last", "", "1") // nobody but kubelet and runtime have written to the disk
		c.ready(t, "last")
		c.kubectl(t, "", "annotate", "pod", "last", note+"="+c.cpusOf(t, "last"))
		if err := os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	c := start(t, bed.Options{Nodes: []bed.NodeOptions{{Disk: disk}}})
	c.run(t)
	for _, name := range []string{"edge", "other", "last"} {
		before := c.kubectl(t, "", "get", "pod", name, "-o", `jsonpath={.metadata.annotations.example\.com/cpus}`)
		c.again(t, name, 1)
		if now := c.cpusOf(t, name); now != before {
			t.Errorf("%s: CPUs %s after the boot, %q before", name, now, before)
		}
		c.apart(t, before, name)
	}
	if err := c.lanesOf(t, "edge", "other", "last"); err != nil {
		t.Error(err)
	}
	c.kubectl(t, "", "delete", "pod", "--all", "--wait")
	c.until(t, "the lanes are released", c.noLanes)
	c.noFiles(t)
}

// noClaims waits until no claim is there.
func (c *cluster) noClaims(t *testing.T) {
	t.Helper()
	c.until(t, "the claim is gone", func() error {
		left, err := c.tryKubectl(t, "", "get", "resourceclaims", "-o", "name")
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
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
