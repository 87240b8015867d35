package lanes_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/image"
)

// The node part runs as the DaemonSet of deploy/kube, in an image of its two programs: a pod gets a lane,
// which its container keeps while the node part is replaced.
func TestDaemonSet(t *testing.T) {
	c := start(t, bed.Options{})
	rollout := c.daemonSet(t, "", "-k", root+"/deploy/kube")
	c.hostNetwork(t)
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
	c.rollOut(t, func() { c.apart(t, cpus, "edge", "noisy") })
	rollout()
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
	c.kubectl(t, "", "delete", "pod", "noisy", "--wait")
	c.until(t, "its container keeps no network namespace of a pod that has gone", func() error { return c.sameNamespaces(t) })
	c.leave(t)
}

// daemonSet begins the node part as the DaemonSet, which kubectl applies from there, and returns what waits until the newest
// container of it does its work.
func (c *cluster) daemonSet(t *testing.T, manifest string, from ...string) (rollout func()) {
	t.Helper()
	err := c.Load(t.Context(), image.Image{Name: "docker.io/library/isolane-kube:latest",
		Programs:   []string{c.programs + "/isolane-kube", c.programs + "/isolane-kube-hook"},
		Entrypoint: []string{"/isolane-kube"}})
	if err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, manifest, append([]string{"apply"}, from...)...)
	t.Cleanup(func() {
		if t.Failed() {
			said, _ := c.tryKubectl(t, "", "-n", "isolane", "logs", "daemonset/isolane-kube")
			pods, _ := c.tryKubectl(t, "", "-n", "isolane", "describe", "pods")
			t.Logf("daemonset/isolane-kube:\n%s\n%s", said, pods)
		}
	})
	rollout = func() {
		c.until(t, "CPUs are offered, and the container runtime has the plugin", func() error {
			said, err := c.tryKubectl(t, "", "-n", "isolane", "logs", "daemonset/isolane-kube")
			if err == nil && (!strings.Contains(said, "msg=synchronized") || !strings.Contains(said, "msg=offered")) {
				err = errors.New(said)
			}
			return err
		})
	}
	rollout()
	return rollout
}

// hostNetwork has a lane of the node itself with a network namespace and eBPF programs, which begins after the container
// of the node part and is let alone by it.
func (c *cluster) hostNetwork(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "own.yaml")
	err := os.WriteFile(file, []byte("apiVersion: isolane.dev/v1alpha1\nkind: Lane\nmetadata: {name: own}\n"+
		"spec: {cpus: {count: 1}, network: {path: express, addresses: [198.18.9.1/24]}}\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	isolane := func(args ...string) {
		t.Helper()
		of := []string{"-t", strconv.Itoa(c.node.PID()), "-m", "-n", "-p", "-u", "-i", "--", c.programs + "/isolane"} // as the DaemonSet
		out, ierr := exec.CommandContext(t.Context(), "nsenter", append(of, args...)...).CombinedOutput()
		if ierr != nil {
			t.Fatalf("isolane %v: %v: %s", args, ierr, out)
		}
	}
	isolane("apply", "-f", file)
	var before unix.Stat_t
	if err = unix.Stat(c.node.Path("/run/netns/isolane-own"), &before); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it looks at all settings
		c.changed(t, map[string]string{"/proc/irq/default_smp_affinity": fmt.Sprintf("%x", 1<<runtime.NumCPU()-1)})
	}
	// Not by status: on cgroup v1 it speaks of processes in the top cpuset that this node does not see.
	said, err := c.tryKubectl(t, "", "-n", "isolane", "logs", "daemonset/isolane-kube")
	if err != nil || !strings.Contains(said, "default_smp_affinity") || strings.Contains(said, "isolane-own") || strings.Contains(said, "02:15:") {
		t.Errorf("expected only interrupts to be put back, and nothing of the lane's network: %v\n%s", err, said)
	}
	var now unix.Stat_t
	if err = unix.Stat(c.node.Path("/run/netns/isolane-own"), &now); err != nil || now.Ino != before.Ino || now.Dev != before.Dev {
		t.Errorf("the namespace was %d, is %d: %v", before.Ino, now.Ino, err)
	}
	isolane("release", "own")
}

// sameNamespaces returns an error if the container of the node part has names of network namespaces mounted that the
// node does not.
func (c *cluster) sameNamespaces(t *testing.T) error {
	t.Helper()
	of := func(mounts []byte) map[string]bool {
		all := map[string]bool{}
		for line := range strings.Lines(string(mounts)) {
			if target := strings.Fields(line)[1]; strings.HasPrefix(target, "/run/netns/") {
				all[target] = true
			}
		}
		return all
	}
	out, err := c.node.Command(t.Context(), "cat", "/proc/self/mounts").Output()
	if err != nil {
		return err
	}
	node, found := of(out), false
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range commands {
		if text, rerr := os.ReadFile(file); rerr != nil || !strings.HasPrefix(string(text), "/isolane-kube\x00node\x00") {
			continue
		}
		mounts, rerr := os.ReadFile(filepath.Join(filepath.Dir(file), "mounts"))
		if rerr != nil {
			return rerr
		}
		found = true
		for target := range of(mounts) {
			if !node[target] {
				return fmt.Errorf("%s: not on the node", target)
			}
		}
	}
	if !found {
		return errors.New("no process of the node part")
	}
	return nil
}

// rollOut rolls out an image with other programs, and takes it back, beside a pod with a lane whose container is
// started again with each.
func (c *cluster) rollOut(t *testing.T, look func()) {
	t.Helper()
	next := image.Image{Name: "docker.io/library/isolane-kube:next", Entrypoint: []string{"/isolane-kube"}}
	dir, hook := t.TempDir(), []byte(nil)
	for _, name := range []string{"isolane-kube", "isolane-kube-hook"} {
		data, err := os.ReadFile(filepath.Join(c.programs, name))
		if hook = append(data, "next"...); err == nil {
			err = os.WriteFile(filepath.Join(dir, name), hook, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		next.Programs = append(next.Programs, filepath.Join(dir, name))
	}
	if err := c.Load(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	for i, command := range [][]string{{"set", "image", "daemonset/isolane-kube", "node=isolane-kube:next"},
		{"rollout", "undo", "daemonset/isolane-kube"}} {
		c.kubectl(t, "", append([]string{"-n", "isolane"}, command...)...)
		c.kubectl(t, "", "-n", "isolane", "rollout", "status", "daemonset/isolane-kube", "--timeout=50s")
		look()
		now, err := os.ReadFile(c.node.Path("/var/lib/kubelet/plugins/isolane.dev/hook"))
		if err != nil || bytes.Equal(now, hook) != (i == 0) {
			t.Errorf("%v: after %v the hook is the next one: %t", err, command, i > 0)
		}
		c.restart(t, "edge")
		look()
	}
}

// leave removes the node part as docs/kubernetes.md says, with the pod of deploy/kube/example.yaml in its
// lane.
func (c *cluster) leave(t *testing.T) {
	t.Helper()
	example, err := os.ReadFile(root + "/deploy/kube/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Its image is in a registry, and what it runs.
	pod := regexp.MustCompile(`(?m)^( *)image: .*\n *command: .*$`).ReplaceAllString(string(example),
		"${1}image: kubebed.test/spin:1\n${1}imagePullPolicy: Never\n${1}args: ['1']")
	c.kubectl(t, pod, "apply", "-f", "-")
	c.ready(t, "edge")
	c.apart(t, c.cpusOf(t, "edge"), "edge")
	files := func() (there []string) {
		for _, pattern := range []string{"/var/lib/kubelet/plugins/isolane.dev", "/run/cdi/*isolane*"} {
			found, _ := filepath.Glob(c.node.Path(pattern))
			there = append(there, found...)
		}
		return there
	}
	if has := files(); len(has) != 2 {
		t.Errorf("a lane in force: expected its file and the folder of the hook, found %q", has)
	}
	part := strings.TrimSpace(c.kubectl(t, "", "-n", "isolane", "get", "pods", "-l", "app=isolane-kube", "-o", "name"))
	leave := func() (string, error) {
		return c.tryKubectl(t, "", "-n", "isolane", "exec", part, "--", "/isolane-kube", "leave", "--cdi", "/run/cdi")
	}
	manifest := func(name string) string { return root + "/deploy/kube/" + name + ".yaml" }
	c.kubectl(t, "", "delete", "-f", manifest("deviceclass"))
	if said, err := leave(); err == nil || !strings.Contains(err.Error(), "expected none of pods in force: delete the pods that have them") || len(files()) != 2 {
		t.Errorf("leave beside a pod with a lane: %v: %s; left %q", err, said, files())
	} else {
		t.Logf("leave beside a pod with a lane: %v", err)
	}
	c.apart(t, c.cpusOf(t, "edge"), "edge")
	c.kubectl(t, pod, "delete", "--wait", "-f", "-")
	c.until(t, "the lane is released", c.noLanes)
	if said, err := leave(); err != nil || len(files()) > 0 {
		t.Errorf("leave: %v: %s; left %q", err, said, files())
	}
	c.kubectl(t, "", "delete", "--wait", "-f", manifest("daemonset"), "-f", manifest("rbac"))
	c.until(t, "nothing is offered", func() error {
		offered, err := c.tryKubectl(t, "", "get", "resourceslices", "-o", "name")
		if err == nil && offered != "" {
			err = errors.New(offered)
		}
		return err
	})
	if sockets, _ := filepath.Glob(c.node.Path("/var/lib/kubelet/plugins*/*isolane*")); len(sockets) > 0 {
		t.Errorf("left among the kubelet's plugins: %q", sockets)
	}
}
