package lanes_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/test/kube/bed"
)

const restrictedPod = `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %[1]s}
spec:
  spec:
    devices:
      requests: [{name: lane, firstAvailable: [
        {name: large, deviceClassName: lane.isolane.dev, capacity: {requests: {cpus: "1000"}}},
        {name: small, deviceClassName: lane.isolane.dev, capacity: {requests: {cpus: "1"}}}]}]
      config:
        - {requests: [lane/large], opaque: {driver: isolane.dev, parameters: {apiVersion: isolane.dev/v1alpha1, kind: Lane, spec: {}}}}
        - {requests: [lane/small], opaque: {driver: isolane.dev, parameters: {apiVersion: isolane.dev/v1alpha1, kind: Lane, spec: {roles: {worker: 1}}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  hostUsers: %[2]t
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, runAsUser: 65534, seccompProfile: {type: RuntimeDefault}}
  resourceClaims: [{name: lane, resourceClaimTemplateName: %[1]s}]
  containers:
    - name: main
      image: "kubebed.test/spin:1"
      imagePullPolicy: Never
      args: ["2"]
      resources: {requests: {cpu: "1"}, claims: [{name: lane, request: lane}]}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`

// A pod as the restricted Pod Security Standard wants it has its lane, and its container does not begin outside
// of it, also with users of its own. Its claim takes the first of several requests that a node has, and its
// container names the request.
func TestRestricted(t *testing.T) {
	c := share(t)
	c.run(t)
	users := c.ownUsers(t)
	c.kubectl(t, "", "label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted")
	defer c.kubectl(t, "", "label", "namespace", "default", "pod-security.kubernetes.io/enforce-")
	for name, hostUsers := range map[string]bool{"hosts-users": true, "own-users": false} {
		if !hostUsers && users != nil {
			t.Log("no pod with users of its own runs here: ", users)
			continue
		}
		c.kubectl(t, fmt.Sprintf(restrictedPod, name, hostUsers), "apply", "-f", "-")
		c.ready(t, name)
		cpus := c.cpusOf(t, name)
		c.apart(t, cpus, name)
		for _, pid := range c.processes(t, name) {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil || !strings.Contains(string(status), "CapEff:\t0000000000000000") || strings.Contains(string(status), "Uid:\t0\t") {
				t.Errorf("%v: process %d: %s", err, pid, status)
			}
		}
		if log := c.kubectl(t, "", "logs", name); !strings.Contains(log, "ISOLANE_CPUS_WORKER="+cpus+"\n") {
			t.Errorf("expected the role of the subrequest's parameters in %s", log)
		}
		c.kill(t)
		kill(t, c.processes(t, name))
		c.says(t, name, "expected those of lane")
		c.run(t)
		c.ready(t, name)
		c.apart(t, cpus, name)
		c.delete(t, name)
		c.until(t, "the lane is released", c.noLanes)
	}
}

// ownUsers returns why the node runs no pods with users of their own, without a lane; nil if it does.
func (c *cluster) ownUsers(t *testing.T) error {
	t.Helper()
	c.kubectl(t, c.podOf("users", "hostUsers: false", "", "1"), "apply", "-f", "-")
	_, err := c.tryKubectl(t, "", "wait", "--for=condition=Ready", "pod/users", fmt.Sprintf("--timeout=%.0fs", bed.Patient(15*time.Second).Seconds()))
	if err != nil {
		why, derr := c.tryKubectl(t, "", "get", "events", "--field-selector=involvedObject.name=users,type=Warning", "-o", "jsonpath={.items[-1].message}")
		err = errors.Join(err, derr, errors.New(why))
	}
	c.kubectl(t, "", "delete", "pod", "users", "--wait")
	return err
}

// While the node part does nothing for longer than the container runtime waits, no program of a lane's container
// begins outside of the lane, nor when it goes on.
func TestSlow(t *testing.T) {
	c := share(t)
	c.run(t)
	c.lane(t, "edge", "", "2")
	c.readyWithin(t, "edge", 3*time.Minute)
	cpus := c.cpusOf(t, "edge")
	group, err := c.cgroupOf("edge")
	if err != nil {
		t.Fatal(err)
	}
	for _, away := range []time.Duration{15 * time.Second, 3 * time.Second} { // several starts; less than one
		if err := c.part.Process.Signal(unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		kill(t, c.processes(t, "edge"))
		neverOutside(t, filepath.Dir(group), cpus, away)
		if away > 10*time.Second {
			c.says(t, "edge", "expected those of lane")
		}
		if err := c.part.Process.Signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		neverOutside(t, filepath.Dir(group), cpus, 5*time.Second)
		c.readyWithin(t, "edge", 3*time.Minute)
		c.apart(t, cpus, "edge")
	}
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
}

// neverOutside looks for a while at the processes in the cgroups of a pod: none runs its program and may use another CPU.
// Before, they are of the container runtime, or the hook.
func neverOutside(t *testing.T, pod, cpus string, length time.Duration) {
	t.Helper()
	looks, programs := 0, 0
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		looks++
		for _, pid := range processesOf(pod) {
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if err != nil || strings.TrimSpace(string(comm)) != "spin" {
				continue
			}
			programs++
			for _, th := range threadsOf(pid) {
				if wrong(list(t, cpus), nil, list(t, th.allowed)) {
					t.Fatalf("thread %d in %s may use CPUs %s, the lane has %s", th.tid, pod, th.allowed, cpus)
				}
			}
		}
	}
	t.Logf("%d looks, %d at a program", looks, programs)
}

// processesOf returns the processes in the cgroups just below a directory.
func processesOf(dir string) (pids []int) {
	files, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
	for _, file := range files {
		text, _ := os.ReadFile(file) // nothing if it has gone
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
