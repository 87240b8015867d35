package lanes_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A resize of a pod changes its memory and leaves the lane alone. A limit that would throttle the lane is
// refused.
func TestResize(t *testing.T) {
	c := share(t)
	c.run(t)
	c.spin(t, "noisy", "", "2")
	c.apply(t, "edge", "{}", `claims: [{name: lane}], requests: {cpu: "1", memory: 64Mi}, limits: {memory: 64Mi}`, "2")
	c.ready(t, "edge")
	cpus := c.cpusOf(t, "edge")
	c.memory(t, 64<<20)
	first := c.processes(t, "edge")

	c.resize(t, "edge", `requests: {cpu: "1", memory: 96Mi}, limits: {memory: 96Mi}`)
	c.memory(t, 96<<20)
	c.apart(t, cpus, "edge", "noisy")
	c.resize(t, "edge", `requests: {cpu: 1200m, memory: 96Mi}, limits: {memory: 96Mi}`)
	c.until(t, "the resize is done", func() error {
		has := c.kubectl(t, "", "get", "pod", "edge", "-o", "jsonpath={.status.containerStatuses[0].resources.requests.cpu}")
		if has != "1200m" {
			return errors.New(has)
		}
		return nil
	})
	c.apart(t, cpus, "edge", "noisy")

	c.resize(t, "edge", `requests: {cpu: 400m, memory: 96Mi}, limits: {cpu: 500m, memory: 96Mi}`)
	c.says(t, "edge", "resources.limits.cpu: expected none, or 1 or more: 0.5 would throttle the lane")
	c.apart(t, cpus, "edge", "noisy")
	c.unlimited(t, "edge")
	if now := c.processes(t, "edge"); fmt.Sprint(now) != fmt.Sprint(first) {
		t.Errorf("the container's processes were %v, and are %v", first, now)
	}
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
}

func (c *cluster) resize(t *testing.T, pod, resources string) {
	t.Helper()
	c.kubectl(t, "", "patch", "pod", pod, "--subresource=resize", "--patch",
		"spec: {containers: [{name: main, resources: {"+resources+"}}]}")
}

// group returns the cgroup of a container in the hierarchy with a controller.
func (c *cluster) group(t *testing.T, controller, container string) string {
	t.Helper()
	in, err := c.cgroupOf(container)
	top, terr := c.node.CgroupDir("cpuset")
	other, oerr := c.node.CgroupDir(controller)
	if err = errors.Join(err, terr, oerr); err != nil {
		t.Fatal(err)
	}
	return other + strings.TrimPrefix(in, top)
}

// memory waits until the container has this limit.
func (c *cluster) memory(t *testing.T, want int) {
	t.Helper()
	c.until(t, "the limit of memory", func() error {
		dir := c.group(t, "memory", "edge")
		for _, file := range []string{"memory.limit_in_bytes", "memory.max"} {
			if has, err := os.ReadFile(filepath.Join(dir, file)); err == nil && strings.TrimSpace(string(has)) == fmt.Sprint(want) {
				return nil
			} else if err == nil {
				return fmt.Errorf("%s: %s", file, has)
			}
		}
		return errors.New(dir + ": no limit")
	})
}

// A lane's container with a limit of just its CPUs, as a Guaranteed pod has, is not throttled: neither it nor
// its pod has a quota, also after a resize, a restart, and when somebody else sets one.
func TestGuaranteed(t *testing.T) {
	c := share(t)
	c.run(t)
	c.apply(t, "edge", "{}", `claims: [{name: lane}], requests: {cpu: "1", memory: 64Mi}, limits: {cpu: "1", memory: 64Mi}`, "2")
	c.ready(t, "edge")
	if class := c.kubectl(t, "", "get", "pod", "edge", "-o", "jsonpath={.status.qosClass}"); class != "Guaranteed" {
		t.Errorf("the pod is %s", class)
	}
	cpus := c.cpusOf(t, "edge")
	c.apart(t, cpus, "edge")
	c.unlimited(t, "edge")
	for i, to := range []string{"cpu: 1, memory: 96Mi", "cpu: 1200m, memory: 96Mi"} {
		c.resize(t, "edge", fmt.Sprintf("requests: {%[1]s}, limits: {%[1]s}", to))
		c.until(t, "the resize is done", func() error {
			has := c.kubectl(t, "", "get", "pod", "edge", "-o", "jsonpath=cpu: {.status.containerStatuses[0].resources.limits.cpu}, "+
				"memory: {.status.containerStatuses[0].resources.limits.memory}")
			if has != to {
				return errors.New(has)
			}
			return nil
		})
		c.unlimited(t, "edge")
		if n := strings.Count(c.said(), "lifted CPU quotas"); n <= i { // else there was nothing to see
			t.Errorf("resized to %s: no quota was set", to)
		}
	}
	c.apart(t, cpus, "edge")
	pod := filepath.Dir(c.group(t, "cpu", "edge"))
	for _, quota := range []string{"cpu.max", "cpu.cfs_quota_us"} {
		if f, err := os.OpenFile(filepath.Join(pod, quota), os.O_WRONLY, 0); err == nil {
			if _, err = f.WriteString("150000"); errors.Join(err, f.Close()) != nil {
				t.Error(err)
			}
		}
	}
	c.until(t, "the quota of somebody else is lifted", func() error { return c.limited(t, "edge") })
	c.restart(t, "edge")
	c.apart(t, cpus, "edge")
	c.unlimited(t, "edge")
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
}

// unlimited checks that a pod's container has no CPU quota, and the pod has none.
func (c *cluster) unlimited(t *testing.T, pod string) {
	t.Helper()
	if err := c.limited(t, pod); err != nil {
		t.Error(err)
	}
}

// limited returns an error if a pod's container or the pod has a CPU quota.
func (c *cluster) limited(t *testing.T, pod string) (limited error) {
	t.Helper()
	group := c.group(t, "cpu", pod)
	for _, dir := range []string{group, filepath.Dir(group)} {
		quota, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
		if err != nil {
			quota, err = os.ReadFile(filepath.Join(dir, "cpu.cfs_quota_us"))
		}
		stat, _ := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		t.Logf("%s: quota %s; %s", dir, strings.TrimSpace(string(quota)), strings.Join(strings.Fields(string(stat)), " "))
		if err == nil && !strings.HasPrefix(string(quota), "-1") && !strings.HasPrefix(string(quota), "max") {
			err = fmt.Errorf("%s: quota %q, expected none", dir, quota)
		}
		limited = errors.Join(limited, err)
	}
	return limited
}
