package lanes_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"isolane.dev/isolane/test/kube"
	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/image"
)

// hub is a hub on this machine, which the node of a cluster has joined.
type hub struct {
	*cluster
	binary, dir string
	up          *exec.Cmd
}

// start starts a command of isolane-hub, whose output goes to a file.
func (h *hub) start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	out, err := os.OpenFile(filepath.Join(h.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(h.binary, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "ISOLANE_HISTORY="+filepath.Join(h.dir, "history"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.end(cmd, syscall.SIGTERM)
		if said, rerr := os.ReadFile(out.Name()); t.Failed() {
			t.Logf("%s: %v\n%s", name, rerr, said)
		}
	})
	return cmd
}

// end ends a command, if it has not ended.
func (h *hub) end(cmd *exec.Cmd, with syscall.Signal) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Signal(with)
		_ = cmd.Wait() // by the signal
	}
}

// startHub starts a hub, and joins the node.
func startHub(t *testing.T, c *cluster) *hub {
	t.Helper()
	h := &hub{cluster: c, dir: t.TempDir(), binary: filepath.Join(c.programs, "isolane-hub")}
	build := exec.Command("go", "build", "-trimpath", "-o", c.programs+"/", "./cmd/isolane-hub")
	build.Dir, build.Env = root+"/hub", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build isolane-hub: %v: %s", err, out)
	}
	programs, err := kube.Programs()
	if err != nil {
		t.Fatal(err)
	}
	h.up = h.start(t, "up", "up", "--dir", h.file("hub"), "--programs", programs, "--address", h.HostAddress(), "--port",
		fmt.Sprint(20000+3*rand.IntN(4000)))
	var join []string
	h.until(t, "the hub is ready", func() error {
		said, rerr := os.ReadFile(h.file("up.log"))
		for line := range strings.Lines(string(said)) {
			if strings.HasPrefix(line, "isolane agent join ") {
				join = strings.Fields(line)[2:]
				return nil
			}
		}
		return errors.Join(errors.New("no command to join"), rerr)
	})
	manifest := root + "/deploy/kube/hub-agent.yaml"
	err = h.Load(t.Context(), image.Image{Name: "docker.io/library/isolane-hub:latest", Programs: []string{h.binary},
		Entrypoint: []string{"/isolane-hub"}})
	if err != nil {
		t.Fatal(err)
	}
	h.kubectl(t, "", "apply", "-f", manifest)
	h.kubectl(t, "", "config", "set-context", "--current", "--namespace=isolane-hub") // that of the pods
	h.until(t, "the agent says that its node has not joined", func() error {
		said, lerr := h.tryKubectl(t, "", "logs", "daemonset/isolane-hub")
		if lerr == nil && !strings.Contains(said, "isolane-hub join") {
			lerr = errors.New(said)
		}
		return lerr
	})
	out, jerr := h.node.Command(t.Context(), h.binary, append(join, "--name", "node")...).CombinedOutput()
	if jerr != nil {
		t.Fatalf("join: %v: %s", jerr, out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			said, err := h.tryKubectl(t, "", "logs", "daemonset/isolane-hub")
			t.Logf("daemonset/isolane-hub: %v\n%s", err, said)
		}
	})
	// The kubelet would start it again, after longer and longer.
	h.kubectl(t, "", "delete", "pods", "-l", "app=isolane-hub", "--wait")
	h.ready(t, h.agent(t))
	return h
}

// agent returns the name of the agent's pod.
func (h *hub) agent(t *testing.T) (name string) {
	t.Helper()
	h.until(t, "the agent has a pod", func() error {
		said, err := h.tryKubectl(t, "", "get", "pods", "-l", "app=isolane-hub", "-o", "jsonpath={.items[*].metadata.name}")
		if name = strings.TrimSpace(said); err == nil && len(strings.Fields(name)) != 1 {
			err = fmt.Errorf("found %q", name)
		}
		return err
	})
	return name
}

func (h *hub) file(name string) string { return filepath.Join(h.dir, name) }

// ask runs kubectl at the hub.
func (h *hub) ask(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return h.kubectl(t, stdin, append(args, "--kubeconfig", filepath.Join(h.file("hub"), "admin.kubeconfig"))...)
}

const app = `apiVersion: isolane.dev/v1alpha1
kind: App
metadata: {name: %s}
spec: {lane: %s, image: "kubebed.test/%s:1", command: ["%d"], replicas: 1}
`

func (h *hub) apply(t *testing.T, name, lane, program string, threads int) {
	t.Helper()
	h.ask(t, fmt.Sprintf(app, name, lane, program, threads), "apply", "-f", "-")
}

// is waits until an App has this phase, with a message that says something.
func (h *hub) is(t *testing.T, name, phase, says string) {
	t.Helper()
	h.until(t, name+" is "+phase, func() error {
		found := h.ask(t, "", "get", "app", name, "-o", "jsonpath={.status.phase}: {.status.message}")
		if !strings.HasPrefix(found, phase+":") || !strings.Contains(found, says) {
			return fmt.Errorf("expected %q, found %s", says, found)
		}
		return nil
	})
}

// A cluster's node is a host of a hub, by the DaemonSet of deploy/kube/hub-agent.yaml: an App is a pod there with
// a claim, whose lane the node's planner has placed before the hub confirms it. It goes on without hub and agent, comes back when somebody deletes it,
// and ends with its App. What has no room is refused with the planner's reason, and leaves nothing.
func TestHub(t *testing.T) {
	c := start(t, bed.Options{})
	c.run(t)
	c.until(t, "the node says that it has the image", func() error {
		images, err := c.tryKubectl(t, "", "get", "node", c.node.Name, "-o", "jsonpath={.status.images[*].names}")
		if err == nil && !strings.Contains(images, "kubebed.test/spin:1") {
			err = errors.New(images)
		}
		return err
	})
	h := startHub(t, c)
	h.apply(t, "web", "{cpus: {count: 1}}", "spin", 3)
	h.is(t, "web", "Running", "")
	pod := "default.web." + c.node.Name
	c.ready(t, pod)
	cpus := strings.TrimSpace(h.ask(t, "", "get", "instance", "default.web", "-n", "host-node", "-o", "jsonpath={.status.cpus}"))
	c.apart(t, cpus, pod)
	h.ask(t, "", "delete", "app", "web", "--wait", "--timeout=100s")
	c.until(t, "nothing is left", func() error {
		left, err := c.tryKubectl(t, "", "get", "pods,resourceclaims", "-l", "app!=isolane-hub", "-o", "name")
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
	for name, of := range map[string][]string{ // what the host says, or its planner
		"absent":  {"{cpus: {count: 1}}", "absent", "spec.image: kubebed.test/absent:1 is not on node n0"},
		"network": {"{cpus: {count: 1}, network: {path: bridge, addresses: [192.0.2.9/24]}}", "spin", "parameters: spec.network: expected none: a pod's network is that of its cluster"},
	} {
		h.apply(t, name, of[0], of[1], 1)
		h.is(t, name, "Pending", "no host takes it: refused")
		why, err := exec.Command(h.binary, "why", "--dir", h.file("hub"), "default/"+name).CombinedOutput()
		if err != nil || !strings.Contains(string(why), of[2]) {
			t.Errorf("why: %s%v", why, err)
		}
		h.ask(t, "", "delete", "app", name, "--wait", "--timeout=100s")
	}
	h.apply(t, "web", "{cpus: {count: 1}}", "spin", 3)
	h.is(t, "web", "Running", "")
	c.ready(t, pod)

	h.end(h.up, syscall.SIGKILL)
	was := c.processes(t, pod)
	h.restart(t, h.agent(t)) // without a hub, by SIGKILL
	c.kubectl(t, "", "delete", "pod", pod)
	h.until(t, "another pod runs", func() error {
		if now := c.processesNow(pod); len(now) == 0 || now[0] == was[0] {
			return fmt.Errorf("processes %v", now)
		}
		return nil
	})
	c.ready(t, pod)

	h.up = h.start(t, "up", h.up.Args[1:]...)
	began := time.Now()
	h.until(t, "the hub answers", func() error {
		_, err := h.tryKubectl(t, "", "get", "apps", "--kubeconfig", filepath.Join(h.file("hub"), "admin.kubeconfig"))
		return err
	})
	t.Logf("the hub answered after %v", time.Since(began))
	h.ask(t, "", "delete", "app", "web", "--wait", "--timeout=100s")
	if left := c.kubectl(t, "", "get", "pods,resourceclaims", "-l", "app!=isolane-hub", "-o", "name"); left != "" {
		t.Errorf("left: %s", left)
	}
}
