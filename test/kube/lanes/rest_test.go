package lanes_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// TestAtRest measures what the node part costs while nothing happens, before lanes and with up to eight. None
// of its threads may run on a lane's CPU. $ISOLANE_KUBE_REST sets how long it is observed.
func TestAtRest(t *testing.T) {
	rest, err := time.ParseDuration(cmp.Or(os.Getenv("ISOLANE_KUBE_REST"), "2s"))
	if err != nil {
		t.Fatal(err)
	}
	c := share(t)
	c.run(t)
	c.atRest(t, rest)
	owned, lanes := map[int]bool{}, min(8, runtime.NumCPU()-1)
	for i := range lanes {
		name, began := fmt.Sprint("edge", i), time.Now()
		c.lane(t, name, "", "1")
		c.readyWithin(t, name, 2*time.Minute)
		t.Logf("%s: applied to Ready in %.1f s", name, time.Since(began).Seconds())
		maps.Copy(owned, list(t, c.cpusOf(t, name)))
	}
	if len(owned) != lanes {
		t.Errorf("%d lanes have CPUs %v", lanes, owned)
	}
	c.atRest(t, rest)
	for _, th := range threadsOf(c.part.Process.Pid) {
		if wrong(nil, owned, list(t, th.allowed)) {
			t.Errorf("the node part's thread %d may use CPUs %s, lanes have %v", th.tid, th.allowed, owned)
		}
	}
	c.kubectl(t, "", "delete", "pod", "--all", "--wait", "--timeout=50s")
	c.until(t, "the lanes are released", c.noLanes)
}

// atRest logs how much CPU time the node part takes, after what began before has calmed down.
func (c *cluster) atRest(t *testing.T, rest time.Duration) {
	t.Helper()
	time.Sleep(rest / 2)
	began, before := time.Now(), c.used(t)
	time.Sleep(rest)
	used, took := c.used(t)-before, time.Since(began)
	t.Logf("at rest: %v of CPU time in %.0f s: %.3f%%", used, took.Seconds(), 100*used.Seconds()/took.Seconds())
}

// used returns the CPU time of all threads of the node part (Documentation/scheduler/sched-stats.rst,
// schedstat).
func (c *cluster) used(t *testing.T) (sum time.Duration) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", c.part.Process.Pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("the node part has no threads: %v", err)
	}
	for _, file := range tasks {
		text, err := os.ReadFile(file)
		var used time.Duration
		if _, serr := fmt.Sscan(string(text), &used); err == nil && serr == nil { // else it has ended
			sum += used
		}
	}
	return sum
}
