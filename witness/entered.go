package witness

import (
	"cmp"
	"io/fs"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
)

// entered are processes that entered a container in an own cgroup from outside, such as exec probes and
// kubectl exec. They are no work of the lane, but the kernel's program counts them as own tasks. So they are
// read from /proc, which misses those that come and go between two readings.
type entered struct {
	came    map[taskID]bool // processes, as when first seen
	ran     map[taskID]results.Nanoseconds
	sources map[threadOn]Source
}

// threadOn is a thread on a CPU. All that it ran is counted on the CPU on which it was last.
type threadOn struct {
	thread taskID
	cpu    int
}

const enteredRemedy = "it came into the lane's container from outside (kubectl exec, an exec probe): leave " +
	"it out, or ask by httpGet, tcpSocket or grpc"

// look adds what such processes ran since the last call.
func (e *entered) look(root fs.FS, groups []string, cpus cpuset.Set) {
	came, ran := map[taskID]bool{}, map[taskID]results.Nanoseconds{}
	if e.sources == nil {
		e.sources = map[threadOn]Source{}
	}
	for _, dir := range groups {
		e.enter(root, dir, came)
	}
	for p, outside := range came {
		if !outside {
			continue
		}
		for _, tid := range task.Threads(root, p.id) {
			t, err := readTally(root, task.ThreadDir(p.id, tid))
			if err != nil {
				continue // it has ended
			}
			id := taskOf(t.stat)
			ran[id] = t.ran
			at := threadOn{id, t.stat.Processor}
			if more := t.ran - min(t.ran, e.ran[id]); more > 0 && cpus.Contains(at.cpu) {
				more += value(e.sources[at].Total)
				e.sources[at] = Source{CPU: at.cpu, Kind: results.Task, Name: t.stat.Comm, PID: p.id, TID: tid,
					Total: &more, Cgroup: cgroup.PathOf(root, task.Dir(p.id)), Remedy: enteredRemedy}
			}
		}
	}
	e.came, e.ran = came, ran
}

// enter decides for each process of a cgroup whether it came from outside. It did if it is not the oldest,
// and its parent is outside of the cgroup and of its PID namespace, or itself came from outside.
func (e *entered) enter(root fs.FS, dir string, came map[taskID]bool) {
	pids, _ := cgroup.Processes(root, dir) // none if it cannot be read: the collector reports that
	var all []task.Stat
	inside := map[int]taskID{}
	for _, pid := range pids {
		if s, err := task.ReadStat(root, task.Dir(pid)); err == nil {
			all = append(all, s)
			inside[pid] = taskOf(s)
		}
	}
	slices.SortFunc(all, func(a, b task.Stat) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.ID, b.ID))
	})
	for i, s := range all {
		parent, own := inside[s.Parent]
		was, known := e.came[taskOf(s)]
		switch {
		case known:
			came[taskOf(s)] = was // its parent may have ended
		case own:
			came[taskOf(s)] = came[parent]
		default:
			came[taskOf(s)] = i > 0 && depth(root, s.ID) > depth(root, s.Parent)
		}
	}
}

// depth returns how many PID namespaces a process is in (proc_pid_status(5), NSpid); 0 if it has ended.
func depth(root fs.FS, pid int) int {
	status, err := task.ReadStatus(root, task.Dir(pid))
	if err != nil {
		return 0
	}
	ids, _ := status.Value("NSpid")
	return len(strings.Fields(ids))
}
