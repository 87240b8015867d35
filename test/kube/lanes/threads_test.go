package lanes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/test/kube/bed"
)

// processes returns a container's processes, by their ids on the host: of POD/CONTAINER, or of a pod with one
// container.
func (c *cluster) processes(t *testing.T, container string) []int {
	t.Helper()
	pids := c.processesNow(container)
	if len(pids) == 0 {
		t.Fatalf("%s: no processes", container)
	}
	return pids
}

func (c *cluster) processesNow(container string) (pids []int) {
	dir, err := c.cgroupOf(container)
	if err != nil {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for _, text := range strings.Fields(string(data)) {
		if pid, perr := strconv.Atoi(text); err == nil && perr == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cgroupOf returns the cgroup of a container, in the hierarchy with cpusets.
func (c *cluster) cgroupOf(container string) (string, error) {
	pod, name, _ := strings.Cut(container, "/")
	of := ".status.containerStatuses[0]"
	if name != "" {
		of = fmt.Sprintf(`.status.containerStatuses[?(@.name=="%s")]`, name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ids, err := c.Kubectl(ctx, "", "get", "pod", pod, "-o", "jsonpath={.metadata.uid} {"+of+".containerID}")
	if err != nil {
		return "", err
	}
	uid, id, ok := strings.Cut(strings.TrimSpace(ids), " containerd://")
	if !ok {
		return "", errors.New("no container of " + container)
	}
	return c.node.ContainerCgroup(uid, id)
}

// apart looks for two seconds at each thread of the lane's container and of others: what it may use, and
// where it last ran. The lane's are on its CPUs, and no others are.
func (c *cluster) apart(t *testing.T, cpus, lane string, others ...string) {
	t.Helper()
	c.eachApart(t, map[string]string{lane: cpus}, others...)
}

// eachApart does the same with several lanes, by the names of their containers, and returns the CPUs on which
// each one's threads ran.
func (c *cluster) eachApart(t *testing.T, lanes map[string]string, others ...string) map[string]string {
	t.Helper()
	all, pids, own := map[int]bool{}, map[string][]int{}, map[string]map[int]bool{}
	for name, cpus := range lanes {
		own[name] = list(t, cpus)
		for id := range own[name] {
			if all[id] {
				t.Errorf("CPU %d is in two lanes: %v", id, lanes)
			}
			all[id] = true
		}
		pids[name] = c.processes(t, name)
	}
	for _, name := range others {
		pids[name] = c.processes(t, name)
	}
	looks, threads, first, seen := 0, 0, map[int]int{}, map[string]map[int]bool{}
	for end := time.Now().Add(2 * bed.Patient(time.Second)); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		looks++
		for name, of := range pids {
			if seen[name] == nil {
				seen[name] = map[int]bool{}
			}
			for _, th := range threadsOf(of...) {
				if threads++; first[th.tid] == 0 {
					first[th.tid] = th.ticks + 1
				}
				ran := th.ticks+1 > first[th.tid] // one that sleeps has the CPU of long ago
				if ran {
					seen[name][th.last] = true
				}
				if wrong(own[name], all, list(t, th.allowed)) || ran && wrong(own[name], all, map[int]bool{th.last: true}) {
					t.Errorf("%s: thread %d may use CPUs %s and ran on %d; lanes %v", name, th.tid, th.allowed, th.last, lanes)
					return nil
				}
			}
		}
	}
	if threads < looks*len(pids) {
		t.Errorf("%d threads in %d looks at %d containers", threads, looks, len(pids))
	}
	ran := map[string]string{}
	for name, cpus := range seen {
		ran[name] = fmt.Sprint(slices.Sorted(maps.Keys(cpus)))
	}
	t.Logf("%d looks at threads of %d containers; lanes %v; threads ran on %v", threads, len(pids), lanes, ran)
	return ran
}

// besideInPod looks at all threads of a pod that are not in the cgroup of its first container: of its sandbox
// and of ephemeral containers. None may use a CPU of the lane. groups is how many cgroups have any.
func (c *cluster) besideInPod(t *testing.T, pod, cpus string, groups int) {
	t.Helper()
	own, err := c.cgroupOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := filepath.Glob(filepath.Join(filepath.Dir(own), "*", "cgroup.procs"))
	seen, lane := 0, list(t, cpus)
	for _, file := range all {
		procs, err := os.ReadFile(file)
		if filepath.Dir(file) == own || err != nil || len(procs) == 0 {
			continue
		}
		seen++
		for _, text := range strings.Fields(string(procs)) {
			pid, _ := strconv.Atoi(text)
			for _, th := range threadsOf(pid) {
				if wrong(nil, lane, list(t, th.allowed)) {
					t.Errorf("%s: thread %d may use CPUs %s, the lane has %s", filepath.Dir(file), th.tid, th.allowed, cpus)
				}
			}
		}
	}
	if seen != groups {
		t.Errorf("%d cgroups beside the lane in its pod, expected %d: %v", seen, groups, all)
	}
}

// mayUse returns an error if a thread of a pod with one container, or of its sandbox, may not use some of these CPUs.
func (c *cluster) mayUse(t *testing.T, pod, cpus string) error {
	t.Helper()
	own, err := c.cgroupOf(pod)
	if err != nil {
		return err
	}
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(own), "*", "cgroup.procs"))
	if len(files) < 2 {
		return fmt.Errorf("%s: expected a container and the sandbox, found %v", pod, files)
	}
	for _, file := range files {
		procs, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, text := range strings.Fields(string(procs)) {
			pid, _ := strconv.Atoi(text)
			for _, th := range threadsOf(pid) {
				has := list(t, th.allowed)
				for id := range list(t, cpus) {
					if !has[id] {
						return fmt.Errorf("%s: thread %d has CPUs %s", filepath.Dir(file), th.tid, th.allowed)
					}
				}
			}
		}
	}
	return nil
}

// wrong reports whether a container has a CPU outside its lane or, if it has no lane, a CPU of a lane.
func wrong(own, all, has map[int]bool) bool {
	for id := range has {
		if own != nil && !own[id] || own == nil && all[id] {
			return true
		}
	}
	return len(has) == 0
}

// list parses a cpulist.
func list(t *testing.T, text string) map[int]bool {
	t.Helper()
	ids := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		from, to, is := strings.Cut(part, "-")
		if !is {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, lerr := strconv.Atoi(to)
		if err != nil || lerr != nil {
			t.Fatalf("%q: expected a list of CPUs", text)
		}
		for id := first; id <= last; id++ {
			ids[id] = true
		}
	}
	return ids
}

type thread struct {
	tid, ticks int // ticks: how long it has run
	last       int
	allowed    string
}

// threadsOf reads Cpus_allowed_list of each thread of processes, and the CPU on which it last ran (proc(5),
// stat 39).
func threadsOf(pids ...int) (all []thread) {
	var dirs []string
	for _, pid := range pids {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		dirs = append(dirs, tasks...)
	}
	for _, dir := range dirs {
		status, err := os.ReadFile(dir + "/status")
		stat, serr := os.ReadFile(dir + "/stat")
		if err != nil || serr != nil {
			continue // it has ended
		}
		m := regexp.MustCompile(`(?m)^Cpus_allowed_list:\s*(\S+)$`).FindSubmatch(status)
		_, after, _ := bytes.Cut(stat, []byte(") "))
		fields := strings.Fields(string(after))
		tid, _ := strconv.Atoi(filepath.Base(dir))
		if m != nil && len(fields) > 36 {
			user, _ := strconv.Atoi(fields[11])
			system, _ := strconv.Atoi(fields[12])
			last, _ := strconv.Atoi(fields[36])
			all = append(all, thread{tid, user + system, last, string(m[1])})
		}
	}
	return all
}
