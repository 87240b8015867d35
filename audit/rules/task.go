package rules

import (
	"fmt"
	"path"
	"strings"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/settings"
)

// taskRules check who else may run on lane CPUs. A task that may run on lane CPUs and nowhere else is
// taken for the lane's own.
func taskRules() []rule {
	return []rule{{
		id: "stray-ran", title: "tasks that are not pinned ran last on lane CPUs",
		classes: severities(audit.Fault, audit.Fault, audit.Warn), needsLanes: true,
		impact: "a time slice of up to milliseconds, and the lane's caches",
		fix:    "move them: a cpuset without the lane's CPUs, or taskset -apc {housekeeping} PID",
		boot:   "systemd.cpu_affinity={housekeeping} for what starts later", source: isolationGuide,
		check: notPinned(true),
	}, {
		id: "stray-allowed", title: "tasks that are not pinned may run on lane CPUs", needsLanes: true,
		impact: "nothing while the scheduler leaves the lane out of its domains; a time slice otherwise",
		fix:    "move them: a cpuset without the lane's CPUs, or taskset -apc {housekeeping} PID",
		boot:   "systemd.cpu_affinity={housekeeping} for what starts later", source: isolationGuide,
		check: notPinned(false),
	}, {
		id: "kernel-threads", title: "kernel threads that could be elsewhere may run on lane CPUs",
		needsLanes: true,
		impact:     "5 to 100 µs each time one is woken there",
		fix:        "taskset -pc {housekeeping} PID; threads of one CPU only cannot be moved and are not listed",
		boot:       "nohz_full= keeps new ones away", source: perCPU, check: onLane(isMovable),
	}, {
		id: "rcu-threads", title: "threads that run RCU callbacks may run on lane CPUs", needsLanes: true,
		impact: "10 µs to milliseconds after others free memory: rcu_nocbs was meant to prevent that",
		fix:    "taskset -pc {housekeeping} PID of all rcuo* and rcuog* threads", source: perCPU + ", rcuo",
		check: onLane(isRCU),
	}, {
		id: "quota", title: "a CPU quota throttles a lane",
		classes:    severities(audit.Fault, audit.Fault, audit.Fault),
		needsLanes: true,
		impact:     "the whole group stops for the rest of each period: up to 100 ms",
		fix:        "echo max > cpu.max (v1: echo -1 > cpu.cfs_quota_us) there; no CPU limit in a pinned pod",
		source:     "Documentation/scheduler/sched-bwc.rst", check: quotas,
	}}
}

func isRCU(t settings.Task) bool { return t.Kernel && strings.HasPrefix(t.Name, "rcuo") }

// isMovable reports whether a kernel thread could run elsewhere. Unbound kworkers follow the mask of their
// queue, and interrupt threads that of their interrupt.
func isMovable(t settings.Task) bool {
	return t.Kernel && t.Allowed.Len() > 1 && !isRCU(t) &&
		!strings.HasPrefix(t.Name, "kworker/") && !strings.HasPrefix(t.Name, "irq/")
}

// isOwn reports whether a task is taken for one of the lane's.
func (s *subject) isOwn(t settings.Task) bool {
	return !t.Kernel && !t.Allowed.IsEmpty() && t.Allowed.IsSubsetOf(s.lane)
}

// notPinned finds others' tasks that last ran on a lane CPU, or those that did not.
func notPinned(ran bool) func(*subject) []hit {
	return func(s *subject) []hit {
		return s.tasksOnLane(func(t settings.Task) bool {
			return !t.Kernel && !s.isOwn(t) && s.lane.Contains(t.Processor) == ran
		})
	}
}

// onLane returns the check for tasks of a kind, whether or not there are lanes.
func onLane(is func(settings.Task) bool) func(*subject) []hit {
	return func(s *subject) []hit { return s.tasksOnLane(is) }
}

// tasksOnLane returns one hit with the tasks that may run on lane CPUs and that `is` accepts.
func (s *subject) tasksOnLane(is func(settings.Task) bool) []hit {
	var h hit
	for _, t := range s.AllTasks() {
		if on := t.Allowed.Intersection(s.lane); !on.IsEmpty() && is(t) {
			h.add(on, "%d %s: CPUs %s, last on %d, %s", t.ID, t.Name, t.Allowed, t.Processor, class(t))
		}
	}
	return h.counted("%d of %d threads", len(s.Tasks))
}

func class(t settings.Task) string {
	if t.Priority > 0 {
		return fmt.Sprintf("%s %d", t.Policy, t.Priority)
	}
	return string(t.Policy)
}

// quotas checks the cgroups whose CPUs are all lane CPUs, and those above them.
func quotas(s *subject) []hit {
	const root = "/sys/fs/cgroup"
	var h hit
	for _, v := range []struct{ quotas, quota, none, cpusets, cpus string }{
		{root, "cpu.max", "max", root, "cpuset.cpus.effective"},
		{root + "/cpu", "cpu.cfs_quota_us", "-", root + "/cpuset", "cpuset.effective_cpus"},
	} {
		for _, p := range s.Cgroups(v.quotas, v.quota) {
			if strings.HasPrefix(s.Files[p], v.none) {
				continue
			}
			cpus := s.throttled(v.cpusets, strings.TrimPrefix(path.Dir(p), v.quotas), v.cpus)
			if !cpus.IsEmpty() {
				h.add(cpus, "%s: %s (CPUs %s)", p, s.Files[p], cpus)
			}
		}
	}
	s.lacksCgroups()
	return h.counted("%d cgroups on lane CPUs have a quota")
}

// lacksCgroups records that nothing is known about the machine's cgroups.
func (s *subject) lacksCgroups() {
	if s.Kernel.Cgroup.Version == "" {
		s.Lacks("/proc/self/mounts")
		return
	}
	s.lacksAll("/sys/fs/cgroup/")
}

// throttled returns the CPUs of lanes' cgroups to which the quota of a group applies: the group's own CPUs,
// which are those of its nearest ancestor with a cpuset, and the CPUs of the groups below it.
func (s *subject) throttled(root, group, file string) cpuset.Set {
	own := func(group string) cpuset.Set {
		cpus, err := cpuset.Parse(s.Files[root+group+"/"+file])
		if err != nil || !cpus.IsSubsetOf(s.lane) {
			return cpuset.Set{}
		}
		return cpus
	}
	above := group
	for _, has := s.Files[root+above+"/"+file]; !has && len(above) > 1; _, has = s.Files[root+above+"/"+file] {
		above = path.Dir(above)
	}
	all := own(above)
	for _, p := range s.Cgroups(root, file) {
		if below := strings.TrimPrefix(path.Dir(p), root); strings.HasPrefix(below, group+"/") {
			all = all.Union(own(below))
		}
	}
	return all
}
