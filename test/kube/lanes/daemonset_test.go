package lanes_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/image"
)

// The node part as the DaemonSet of deploy/kube, in an image of its two programs: a pod gets a lane, which its container
// keeps while the node part is made anew.
func TestDaemonSet(t *testing.T) {
	c := start(t, bed.Options{})
	err := c.Load(t.Context(), image.Image{Name: "docker.io/library/isolane-kube:latest",
		Programs:   []string{c.programs + "/isolane-kube", c.programs + "/isolane-kube-hook"},
		Entrypoint: []string{"/isolane-kube"}})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(root + "/deploy/kube/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, string(manifest), "apply", "-f", "-")
	t.Cleanup(func() {
		if t.Failed() {
			said, _ := c.tryKubectl(t, "", "-n", "isolane", "logs", "daemonset/isolane-kube")
			pods, _ := c.tryKubectl(t, "", "-n", "isolane", "describe", "pods")
			t.Logf("daemonset/isolane-kube:\n%s\n%s", said, pods)
		}
	})
	rollout := func() {
		c.until(t, "CPUs are offered, and the container runtime has the plugin", func() error {
			said, err := c.tryKubectl(t, "", "-n", "isolane", "logs", "daemonset/isolane-kube")
			if err == nil && (!strings.Contains(said, "msg=synchronized") || !strings.Contains(said, "msg=offered")) {
				err = errors.New(said)
			}
			return err
		})
	}
	rollout()
	c.spin(t, "noisy", "", "4")
	c.lane(t, "edge", "", "2")
	c.ready(t, "edge")
	cpus := c.cpusOf(t, "edge")
	c.apart(t, cpus, "edge", "noisy")
	c.kubectl(t, "", "-n", "isolane", "delete", "pod", "--all", "--wait")
	c.apart(t, cpus, "edge", "noisy")
	rollout()
	c.restart(t, "edge")
	c.apart(t, cpus, "edge", "noisy")
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
	c.kubectl(t, string(manifest), "delete", "--wait", "-f", "-")
}
