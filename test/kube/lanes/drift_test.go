package lanes_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// What others change of the settings of lanes is put back, and an event of the pod, or of the node for a lane of
// the host, says what it was. An agent of the host beside the node part does the same.
func TestDrift(t *testing.T) {
	c := share(t)
	c.run(t)
	const calm = `--rest=50ms", "1` // the node needs its other CPU
	c.spin(t, "early", "requests: {cpu: 10m}", calm)
	irq := interrupt(t)
	c.lane(t, "edge", "", calm)
	c.readyWithin(t, "edge", 3*time.Minute)
	cpus := c.cpusOf(t, "edge")
	edge, err := c.cgroupOf("edge")
	if err != nil {
		t.Fatal(err)
	}
	wide := fmt.Sprintf("0-%d", runtime.NumCPU()-1)

	own, other, was := filepath.Join(edge, "cpuset.cpus"), wide, cpus
	if partitions() { // without one the container has all CPUs; cpuset.cpus has no effect in one
		own, other, was = filepath.Join(edge, "cpuset.cpus.partition"), "member", "isolated"
	}
	c.changed(t, map[string]string{irq: wide, own: other})
	c.says(t, "edge", "LaneChanged", irq+": expected ", own+": expected "+was+", found "+other)
	c.apart(t, cpus, "edge", "early")

	// The cpusets of others, of which one began after the lane.
	if !partitions() {
		c.kubectl(t, c.podOf("late", "", "requests: {cpu: 10m}", calm), "apply", "-f", "-")
		c.readyWithin(t, "late", 3*time.Minute)
		for _, name := range []string{"early", "late"} {
			group, gerr := c.cgroupOf(name)
			if gerr != nil {
				t.Fatal(gerr)
			}
			c.changed(t, map[string]string{filepath.Join(filepath.Dir(group), "cpuset.cpus"): wide}, filepath.Join(group, "cpuset.cpus"))
		}
		c.apart(t, cpus, "edge", "early", "late")
	}
	c.kubectl(t, "", "delete", "pod", "early", "late", "--wait", "--ignore-not-found")
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)

	file := filepath.Join(t.TempDir(), "own.yaml")
	err = os.WriteFile(file, []byte("apiVersion: isolane.dev/v1alpha1\nkind: Lane\nmetadata: {name: own}\nspec: {cpus: {count: 1}}\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if out, aerr := exec.Command(c.programs+"/isolane", "apply", "-f", file).CombinedOutput(); aerr != nil {
		t.Fatalf("%v: %s", aerr, out)
	}
	agent := exec.Command(c.programs+"/isolane", "agent", "--interval=1s", "--socket="+filepath.Join(t.TempDir(), "socket"))
	agent.Env = append(os.Environ(), "ISOLANE_HISTORY="+t.TempDir())
	if err = agent.Start(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c.changed(t, map[string]string{irq: wide})
	}
	err = errors.Join(agent.Process.Signal(os.Interrupt), agent.Wait())
	if err != nil {
		t.Error("isolane agent: ", err)
	}
	c.changed(t, map[string]string{irq: wide})
	c.until(t, "an event of the node", func() error {
		text, err := c.tryKubectl(t, "", "get", "events", "--field-selector=reason=LaneChanged,involvedObject.kind=Node", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(text, "lane own: "+irq+": expected ") {
			err = errors.New(text)
		}
		return err
	})
	if out, rerr := exec.Command(c.programs+"/isolane", "release", "own").CombinedOutput(); rerr != nil {
		t.Errorf("%v: %s", rerr, out)
	}
}

// interrupt returns the file with the CPUs of an interrupt that may be moved.
func interrupt(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("/proc/irq/*/smp_affinity_list")
	for _, file := range files {
		if now, rerr := os.ReadFile(file); rerr == nil && strings.Contains(string(now), "-") && os.WriteFile(file, now, 0) == nil {
			return file
		}
	}
	t.Skip("skipped: needs an interrupt with several CPUs: ", err)
	return ""
}

// changed writes these values, and those of the files after them too, and waits until all have what they had
// before.
func (c *cluster) changed(t *testing.T, values map[string]string, after ...string) {
	t.Helper()
	before := map[string]string{}
	write := func(file, value string) {
		now, err := os.ReadFile(file)
		if before[file] = string(now); err == nil {
			err = os.WriteFile(file, []byte(value), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for file, value := range values {
		write(file, value)
		for _, file := range after {
			write(file, value)
		}
	}
	c.until(t, "what was changed is as before", func() (left error) {
		for file, was := range before {
			if now, err := os.ReadFile(file); err != nil || string(now) != was {
				left = errors.Join(left, fmt.Errorf("%s: %w %q, before %q", file, err, now, was))
			}
		}
		return left
	})
}
