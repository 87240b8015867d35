package lanes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLane checks where every thread of a lane's container runs, and that no other pod's thread runs there:
// with cgroup v1 by the node part, since Linux 6.7 by the kernel.
func TestLane(t *testing.T) {
	c := share(t)
	c.run(t)
	c.spin(t, "noisy", "", "4")
	began := time.Now()
	c.lane(t, "edge", "", "3")
	c.ready(t, "edge")
	t.Logf("lane's pod: applied to Ready in %.1f s, with the answer", time.Since(began).Seconds())
	cpus := c.cpusOf(t, "edge")
	// Its own manifest says otherwise of its CPUs, and from now on each pod's names this lane by an annotation.
	for _, pid := range c.processes(t, "edge") {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if text := string(env); err != nil || strings.Contains(text, "forged") || !strings.Contains(text, "ISOLANE_CPUS="+cpus+"\x00") {
			t.Errorf("process %d: %v: environment %q", pid, err, text)
		}
	}
	c.victim = "kube-" + c.kubectl(t, "", "get", "resourceclaims", "-o", "jsonpath={.items[0].metadata.uid}") + "-0"
	if out, err := exec.Command(c.programs+"/isolane", "status", "-o", "json").CombinedOutput(); err != nil || !strings.Contains(string(out), c.victim) {
		t.Errorf("%v: expected lane %s in %s", err, c.victim, out)
	}
	// In the cgroup of the lane's own class of service, which has the lane's CPUs with cgroup v1.
	c.spin(t, "beside", "requests: {cpu: 10m}", "2")
	log := c.kubectl(t, "", "logs", "edge")
	t.Logf("kubectl logs edge:\n%s", log)
	if !strings.Contains(log, "ISOLANE_CPUS="+cpus+"\n") ||
		!strings.Contains(log, "ISOLANE_CPUS_WORKER="+cpus+"\n") || strings.Contains(log, "ISOLANE_HUGEPAGES") {
		t.Errorf("the environment of the lane's container:\n%s", log)
	}
	c.apart(t, cpus, "edge", "noisy", "beside")
	for _, pid := range c.processes(t, "beside") {
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err != nil || strings.Contains(string(env), "ISOLANE_LANE=") {
			t.Errorf("process %d of a pod that names the lane of another: %v: %q", pid, err, env)
		}
	}
	claim := c.kubectl(t, "", "describe", "resourceclaim")
	t.Logf("kubectl get pods:\n%s\nkubectl describe resourceclaim:\n%s", c.kubectl(t, "", "get", "pods"), claim)
	if !strings.Contains(claim, "CPUs "+cpus+", memory of NUMA node 0") {
		t.Errorf("kubectl describe resourceclaim:\n%s", claim)
	}
	c.says(t, "edge", "Placed", "isolane-kube", ": CPUs "+cpus+", memory of NUMA node 0, ")

	t.Run("restarted container", func(t *testing.T) {
		c.restart(t, "edge")
		c.apart(t, cpus, "edge", "noisy", "beside")
	})
	t.Run("sandbox and ephemeral container", func(t *testing.T) {
		c.kubectl(t, "", "debug", "edge", "--image=kubebed.test/spin:1", "--image-pull-policy=Never", "--profile=general", "--target=main",
			"--container=debugger", "--", "/spin", "2")
		c.until(t, "the debugger runs", func() error {
			state := c.kubectl(t, "", "get", "pod", "edge", "-o", "jsonpath={.status.ephemeralContainerStatuses[0].state}")
			if !strings.Contains(state, "running") {
				return errors.New(state)
			}
			return nil
		})
		c.besideInPod(t, "edge", cpus, 2)
	})
	t.Run("kubectl exec", func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Kubectl(ctx, "", "exec", "edge", "--", "/spin", "2") // ended
		}()
		var said []byte
		c.until(t, "watch names it", func() (err error) {
			said, err = exec.CommandContext(ctx, c.programs+"/isolane", "watch", "--for", "3s").CombinedOutput()
			if err == nil && !strings.Contains(string(said), "it came into the lane's container from outside") {
				err = errors.New(string(said))
			}
			return err
		})
		end()
		<-done
		t.Logf("isolane watch:\n%s", said)
		c.restart(t, "edge") // what kubectl exec began runs on
	})
	t.Run("killed node part", func(t *testing.T) {
		c.kill(t)
		c.apart(t, cpus, "edge", "noisy", "beside")
		c.run(t)
		c.apart(t, cpus, "edge", "noisy", "beside")
	})
	t.Run("restarted kubelet", func(t *testing.T) {
		if err := c.node.Signal("kubelet", syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := c.node.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.spin(t, "after", "", "1")
		c.apart(t, cpus, "edge", "noisy", "beside", "after")
	})
	t.Run("restarted container runtime", func(t *testing.T) {
		if err := c.node.Signal("containerd", syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		c.until(t, "the node part is back", func() error {
			_, err := c.tryKubectl(t, "", "get", "--raw", "/healthz")
			return err
		})
		c.spin(t, "later", "requests: {cpu: 10m}", "2")
		c.apart(t, cpus, "edge", "noisy", "beside", "later")
	})
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
	// The others have its CPUs again: one that was there before the lane, and those that came beside it.
	for _, pod := range []string{"noisy", "beside", "after", "later"} {
		c.until(t, pod+" has the lane's CPUs", func() error { return c.mayUse(t, pod, cpus) })
	}
	c.lane(t, "again", "", "1")
	c.ready(t, "again")
	if now := c.cpusOf(t, "again"); now != cpus {
		t.Errorf("CPUs %s, the lane before had %s", now, cpus)
	}
	c.kubectl(t, "", "delete", "pod", "--all", "--wait")
	c.until(t, "the lane is released", c.noLanes)
}

// What does not fit is refused before it is bound, with the reason in the events of the pod.
func TestRefused(t *testing.T) {
	c := share(t)
	c.run(t)
	c.lane(t, "efficient", `{cpus: {kind: efficiency}}`, "1")
	c.says(t, "efficient", "reason=Refused", "spec.cpus.kind: efficiency; cheapest change: spec.preferred: {kind: 1}")
	c.delete(t, "efficient")
	c.apply(t, "little", "{}", `claims: [{name: lane}], requests: {cpu: 500m}`, "1")
	c.says(t, "little", "resources.requests.cpu: expected 1 or more, the CPUs that the lane owns")
	c.delete(t, "little")
	if groups, err := filepath.Glob("/sys/fs/cgroup/cpu*/cpu.rt_runtime_us"); err == nil && len(groups) > 0 {
		c.lane(t, "real-time", `{scheduling: {policy: fifo, priority: 50}}`, "1")
		c.says(t, "real-time", "spec.scheduling.policy: expected none, found fifo")
		c.delete(t, "real-time")
	}
	c.lane(t, "misspelt", `{cpus: {smtt: isolate}}`, "1")
	c.says(t, "misspelt", "spec.cpus.smtt: unknown field, did you mean smt?")
	c.delete(t, "misspelt")
	if err := c.noLanes(); err != nil {
		t.Error(err)
	}
	c.lane(t, "fits", "{}", "1")
	c.ready(t, "fits")
	c.delete(t, "fits")
	c.until(t, "the lane is released", c.noLanes)
}

// Without answers the kubelet reports what does not fit, and a pod that fits begins at once.
func TestUnanswered(t *testing.T) {
	c := share(t)
	c.run(t, "--answer=false")
	began := time.Now()
	c.lane(t, "edge", "", "2")
	c.ready(t, "edge")
	t.Logf("lane's pod: applied to Ready in %.1f s, without an answer", time.Since(began).Seconds())
	c.apart(t, c.cpusOf(t, "edge"), "edge")
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
	c.lane(t, "efficient", `{cpus: {kind: efficiency}}`, "1")
	c.says(t, "efficient", "FailedPrepareDynamicResources", "spec.cpus.kind: efficiency; cheapest change: spec.preferred: {kind: 1}")
	c.delete(t, "efficient")
}

// A container whose node part is away does not begin outside its lane.
func TestAway(t *testing.T) {
	c := share(t)
	c.run(t)
	c.lane(t, "edge", "", "1")
	c.ready(t, "edge")
	c.kill(t)
	kill(t, c.processes(t, "edge"))
	c.says(t, "edge", "expected those of lane")
	c.run(t)
	c.ready(t, "edge")
	c.apart(t, c.cpusOf(t, "edge"), "edge")
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
}

// The node part is killed at each step of a pod's life, and nothing is lost or left.
func TestKilled(t *testing.T) {
	c := share(t)
	c.run(t)
	for _, after := range []time.Duration{100, 4000, 5200, 5500, 5800, 6200} {
		t.Logf("killed %d ms after the pod was applied, and %d ms after it was deleted", after, after/10)
		c.lane(t, "edge", "", "2")
		time.Sleep(after * time.Millisecond)
		c.kill(t)
		c.run(t)
		c.readyWithin(t, "edge", 3*time.Minute) // the kubelet may ask again several times
		c.apart(t, c.cpusOf(t, "edge"), "edge")
		deleted := make(chan struct{})
		go func() {
			defer close(deleted)
			c.delete(t, "edge")
		}()
		time.Sleep(after * time.Millisecond / 10)
		c.kill(t)
		c.run(t)
		<-deleted
		c.until(t, "the lane is released", c.noLanes)
	}
}
