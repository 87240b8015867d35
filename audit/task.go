package audit

import (
	"fmt"
	"path"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

// taskRules ask who else may run on lane CPUs. A task that may run on lane CPUs and nowhere else is
// taken for the lane's own.
func taskRules() []rule {
	return []rule{
		{
			id: "stray-ran", title: "tasks that are not pinned ran last on lane CPUs",
			classes: Severities{Fault, Fault, Warn}, needsLanes: true,
			cost:    "a time slice of up to milliseconds, and the lane's caches",
			runTime: "move them: a cpuset without the lane's CPUs, or taskset -apc {housekeeping} PID",
			boot:    "systemd.cpu_affinity={housekeeping} for what starts later",
			source:  isolationGuide, check: func(s *subject) []hit { return s.stray(true) },
		},
		{
			id: "stray-allowed", title: "tasks that are not pinned may run on lane CPUs",
			classes: Severities{Warn, Warn, Info}, needsLanes: true,
			cost:    "nothing while the scheduler leaves the lane out of its domains; a time slice otherwise",
			runTime: "move them: a cpuset without the lane's CPUs, or taskset -apc {housekeeping} PID",
			boot:    "systemd.cpu_affinity={housekeeping} for what starts later",
			source:  isolationGuide, check: func(s *subject) []hit { return s.stray(false) },
		},
		{
			id: "kernel-threads", title: "kernel threads that could be elsewhere may run on lane CPUs",
			classes: Severities{Warn, Warn, Info}, needsLanes: true,
			cost:    "5 to 100 µs each time one is woken there",
			runTime: "taskset -pc {housekeeping} PID; threads of one CPU only cannot be moved and are not listed",
			boot:    "isolcpus=domain or nohz_full= keep new ones away",
			source:  perCPU, check: func(s *subject) []hit { return s.tasksOnLane(isMovable) },
		},
		{
			id: "rcu-threads", title: "threads that run RCU callbacks may run on lane CPUs",
			classes: Severities{Warn, Warn, Info}, needsLanes: true,
			cost:    "10 µs to milliseconds after others free memory: what rcu_nocbs was to take away comes back",
			runTime: "taskset -pc {housekeeping} PID of all rcuo* and rcuog* threads",
			source:  perCPU + ", rcuo", check: func(s *subject) []hit { return s.tasksOnLane(isRCU) },
		},
		{
			id: "quota", title: "a CPU quota throttles a lane",
			classes: Severities{Fault, Fault, Fault}, needsLanes: true,
			cost:    "the whole group stands still for the rest of each period: up to 100 ms",
			runTime: "echo max > cpu.max (v1: echo -1 > cpu.cfs_quota_us) of that cgroup; in Kubernetes no CPU limit for pinned pods",
			source:  "Documentation/scheduler/sched-bwc.rst", check: quotas,
		},
	}
}

func isRCU(t host.Task) bool { return t.Kernel && strings.HasPrefix(t.Name, "rcuo") }

// isMovable says whether a kernel thread could run elsewhere. Unbound kworkers follow the mask of
// their queue, and interrupt threads that of their interrupt.
func isMovable(t host.Task) bool {
	return t.Kernel && t.Allowed.Len() > 1 && !isRCU(t) &&
		!strings.HasPrefix(t.Name, "kworker/") && !strings.HasPrefix(t.Name, "irq/")
}

// isOwn says whether a task is taken for one of the lane's.
func (s *subject) isOwn(t host.Task) bool {
	return !t.Kernel && !t.Allowed.IsEmpty() && t.Allowed.IsSubsetOf(s.lane)
}

func (s *subject) stray(ran bool) []hit {
	return s.tasksOnLane(func(t host.Task) bool {
		return !t.Kernel && !s.isOwn(t) && s.lane.Contains(t.Processor) == ran
	})
}

// tasksOnLane is one hit with the tasks that may run on lane CPUs and that is accepts.
func (s *subject) tasksOnLane(is func(host.Task) bool) []hit {
	if s.tasks == nil {
		s.lacks("/proc/*/task/*/status")
	}
	var h hit
	for _, t := range s.tasks {
		if on := t.Allowed.Intersection(s.lane); !on.IsEmpty() && is(t) {
			h.cpus = h.cpus.Union(on)
			h.evidence = append(h.evidence, fmt.Sprintf("%d %s: CPUs %s, last on %d, %s", t.ID, t.Name, t.Allowed, t.Processor, class(t)))
		}
	}
	if len(h.evidence) == 0 {
		return nil
	}
	h.inForce = fmt.Sprintf("%d of %d threads", len(h.evidence), len(s.tasks))
	return []hit{h}
}

func class(t host.Task) string {
	if t.Priority > 0 {
		return fmt.Sprintf("%s %d", t.Policy, t.Priority)
	}
	return t.Policy
}

// quotas looks at the cgroups all of whose CPUs are lane CPUs.
func quotas(s *subject) []hit {
	var h hit
	add := func(file, cpusFile string, throttles bool) {
		cpus, err := cpuset.Parse(s.files[cpusFile])
		if err == nil && throttles && !cpus.IsEmpty() && cpus.IsSubsetOf(s.lane) {
			h.cpus = h.cpus.Union(cpus)
			h.evidence = append(h.evidence, fmt.Sprintf("%s: %s (CPUs %s)", file, s.files[file], cpus))
		}
	}
	const root = "/sys/fs/cgroup"
	for depth := range 4 {
		below := strings.Repeat("/*", depth+1)
		for _, p := range s.optional(root + below + "/cpu.max") {
			add(p, path.Dir(p)+"/cpuset.cpus.effective", !strings.HasPrefix(s.files[p], "max"))
		}
		for _, p := range s.optional(root + "/cpu" + below + "/cpu.cfs_quota_us") {
			name := strings.TrimPrefix(path.Dir(p), root+"/cpu/")
			add(p, root+"/cpuset/"+name+"/cpuset.effective_cpus", !strings.HasPrefix(s.files[p], "-"))
		}
	}
	if s.Kernel.Cgroup.Version == "" {
		s.lacks("/proc/self/mounts")
	}
	if len(h.evidence) == 0 {
		return nil
	}
	h.inForce = fmt.Sprintf("%d cgroups on lane CPUs have a quota", len(h.evidence))
	return []hit{h}
}
