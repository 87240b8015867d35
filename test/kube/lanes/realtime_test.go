package lanes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each thread of a lane's container has the real-time policy of the lane, without any right of the container's own,
// and again after a restart.
func TestRealTime(t *testing.T) {
	if shares, _ := filepath.Glob("/sys/fs/cgroup/cpu*/cpu.rt_runtime_us"); len(shares) > 0 {
		t.Skip("skipped: needs a kernel that does not grant real-time to each cgroup separately")
	}
	needCPUs(t, 3)
	c := share(t)
	c.run(t)
	c.spin(t, "noisy", "", "4")
	p := pod{name: "edge", claims: map[string]string{"lane": request(`{cpus: "2"}`, "{scheduling: {policy: fifo, priority: 50}}")},
		all: []container{{name: "main", claim: "lane", cpus: "2", args: `"2"`}}}
	c.applyPod(t, p)
	c.ready(t, "edge")
	cpus := c.cpusOf(t, "edge")
	look := func(when string) {
		t.Helper()
		c.apart(t, cpus, "edge", "noisy")
		threads := 0
		for _, pid := range c.processes(t, "edge") {
			stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
			for _, file := range stats {
				text, err := os.ReadFile(file)
				_, after, _ := strings.Cut(string(text), ") ")
				fields := strings.Fields(after)
				if err != nil || len(fields) < 39 {
					continue // it has ended
				}
				threads++
				if priority, policy := fields[37], fields[38]; priority != "50" || policy != "1" { // proc(5), stat 40 and 41: SCHED_FIFO
					t.Errorf("%s: %s: policy %s, priority %s", when, file, policy, priority)
				}
			}
		}
		t.Logf("%s: %d threads are SCHED_FIFO", when, threads)
		if threads < 3 {
			t.Errorf("%s: %d threads, expected two busy ones and others", when, threads)
		}
	}
	look("in force")
	c.restart(t, "edge")
	look("after a restart of the container")
	c.deletePod(t, p)
	c.until(t, "the lane is released", c.noLanes)
}
