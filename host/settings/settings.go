// Package settings reads what only an audit needs of a machine: many files with its settings, and its tasks.
// It notes what a caller then asks for and does not find.
package settings

import (
	"io/fs"
	"path"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/sched"
)

// Settings are the settings of a machine at one moment, and its tasks.
type Settings struct {
	Files map[string]string // content by path, "/proc/sys/vm/swappiness": "60", without white space around it
	Tasks []Task            // by id; nil: the source does not say
	// Missing is the first thing that was asked for and is not there. The caller resets it to "".
	Missing string
}

// Task is a thread (proc_pid_status(5), proc_pid_stat(5)).
type Task struct {
	ID        int
	Process   int    // the id of its first thread
	Name      string // comm
	Kernel    bool   // a kernel thread
	Allowed   cpuset.Set
	Processor int // where it ran last
	Policy    sched.Policy
	Priority  int            // real-time priority; 0 with other policies
	Nodes     cpuset.Set     // the NUMA nodes that its memory may come from
	Locked    uint64         // bytes that cannot be paged out
	Swapped   uint64         // bytes that are paged out
	Pages     map[int]uint64 // bytes by NUMA node, only of pinned processes (proc_pid_numa_maps(5))
}

// cgroupDepth is how many levels of cgroups below a hierarchy's root are read:
// kubepods.slice/kubepods-pod….slice/cri-….scope has three.
const cgroupDepth = 4

const cpuDir = "sys/devices/system/cpu"

// patterns returns the patterns, as of path.Match, of the files that Read reads.
func patterns() []string {
	all := []string{
		"etc/default/irqbalance", "etc/sysconfig/irqbalance",
		"*/systemd/system/irqbalance.service.d/*.conf",
		"etc/tuned/active_profile", "etc/tuned/*-variables.conf",
		"proc/irq/default_smp_affinity", "proc/sys/kernel/*watchdog*", "proc/sys/kernel/hung_task_timeout_secs",
		"proc/sys/kernel/timer_migration", "proc/sys/kernel/sched_rt_*_us", "proc/sys/kernel/numa_balancing",
		"proc/sys/net/core/busy_*", "proc/sys/net/core/rps_default_mask", "proc/sys/vm/stat_interval",
		"proc/sys/vm/dirty_*", "proc/sys/vm/swappiness", "proc/sys/vm/zone_reclaim_mode",
		"proc/sys/vm/compaction_proactiveness", "proc/swaps",
		"sys/devices/virtual/workqueue/cpumask", "sys/devices/virtual/workqueue/*/cpumask",
		cpuDir + "/smt/*", cpuDir + "/intel_pstate/*", cpuDir + "/amd_pstate/status", cpuDir + "/cpufreq/boost",
		cpuDir + "/cpufreq/policy*/affected_cpus", cpuDir + "/cpufreq/policy*/scaling_governor",
		cpuDir + "/cpufreq/policy*/scaling_driver", cpuDir + "/cpufreq/policy*/scaling_m*_freq",
		cpuDir + "/cpufreq/policy*/energy_performance_preference",
		cpuDir + "/intel_uncore_frequency/*/m*_freq_khz",
		cpuDir + "/cpu[0-9]*/cpuidle/state*/name", cpuDir + "/cpu[0-9]*/cpuidle/state*/latency",
		cpuDir + "/cpu[0-9]*/cpuidle/state*/disable", cpuDir + "/cpu[0-9]*/power/pm_qos_resume_latency_us",
		"sys/devices/system/machinecheck/machinecheck*/ignore_ce",
		"sys/devices/system/machinecheck/machinecheck*/check_interval",
		"sys/devices/system/node/node*/hugepages/hugepages-*/surplus_hugepages",
		"sys/class/net/*/queues/*/*ps_cpus", "sys/class/net/*/threaded",
		"sys/class/net/*/ifindex", "sys/class/net/*/master/ifindex",
		"run/systemd/netif/links/*", "*/systemd/network/*.network", "*/systemd/network/*.network.d/*.conf",
		"usr/lib/systemd/network/*.network", "run/NetworkManager/devices/*",
		"sys/kernel/mm/transparent_hugepage/enabled", "sys/kernel/mm/transparent_hugepage/defrag",
		"sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "sys/kernel/mm/ksm/run", "sys/kernel/rcu_normal",
		"sys/kernel/debug/sched/fair_server/cpu*/runtime", "sys/module/kvm*/parameters/*",
		"sys/module/haltpoll/parameters/*", "sys/module/pcie_aspm/parameters/policy",
		"sys/module/rcutree/parameters/kthread_prio", "sys/kernel/iommu_groups/*/type",
		"sys/fs/cgroup/cpuset.cpus.isolated", "sys/fs/cgroup/cpuset/cpuset.sched_load_balance",
		"sys/fs/resctrl/cpus_list", "sys/fs/resctrl/*/cpus_list",
	}
	for depth := range cgroupDepth {
		group := strings.Repeat("/*", depth+1)
		for _, file := range []string{
			group + "/cpuset.cpus.partition", group + "/cpuset.cpus.effective", group + "/cpu.max",
			"/cpuset" + group + "/cpuset.sched_load_balance", "/cpuset" + group + "/cpuset.effective_cpus",
			"/cpu" + group + "/cpu.cfs_*_us"} {
			all = append(all, "sys/fs/cgroup"+file)
		}
	}
	return all
}

// Read reads the settings and tasks of the machine under root. It leaves out what is not there.
func Read(root fs.FS) Settings {
	s := Settings{Files: map[string]string{}}
	once := lists{root, map[string]listed{}}
	for _, pattern := range patterns() {
		paths := []string{pattern}
		if strings.ContainsAny(pattern, "*[") {
			paths, _ = fs.Glob(once, pattern) // the patterns are well formed
		}
		for _, file := range paths {
			if text, ok := host.Text(root, file); ok {
				s.Files["/"+file] = strings.TrimSpace(text)
			}
		}
	}
	s.Tasks = tasks(root)
	return s
}

// lists lists each directory of a machine only once, because patterns have many in common. If a pattern takes
// a file for a directory, the file is not opened.
type lists struct {
	fs.FS
	all map[string]listed
}

type listed struct {
	entries []fs.DirEntry
	err     error
}

// ReadDir implements fs.ReadDirFS.
func (l lists) ReadDir(name string) ([]fs.DirEntry, error) {
	is, known := l.all[name]
	if !known {
		is.entries, is.err = fs.ReadDir(l.FS, name)
		for _, e := range is.entries {
			if e.Type().IsRegular() {
				l.all[path.Join(name, e.Name())] = listed{err: fs.ErrInvalid}
			}
		}
		l.all[name] = is
	}
	return is.entries, is.err
}

// tasks reads all threads. It skips those that end meanwhile.
func tasks(root fs.FS) []Task {
	text := func(file string) string {
		content, _ := host.Text(root, file)
		return strings.TrimSpace(content)
	}
	var tasks []Task
	var everywhere cpuset.Set
	pids, _ := task.Processes(root)
	for _, pid := range pids {
		for _, tid := range task.Threads(root, pid) {
			dir := task.ThreadDir(pid, tid)
			t, ok := parseTask(task.Status(text(dir+"/status")), text(dir+"/stat"))
			if ok {
				t.ID, t.Process = tid, pid
				tasks = append(tasks, t)
				everywhere = everywhere.Union(t.Allowed)
			}
		}
	}
	for i, t := range tasks {
		if !t.Kernel && t.ID == t.Process && t.Allowed != everywhere {
			if maps, ok := host.Text(root, task.Dir(t.ID)+"/numa_maps"); ok && maps != "" {
				tasks[i].Pages = parsePages(maps)
			}
		}
	}
	return tasks
}

// parseTask parses the two files of a thread. It returns false for a dead thread or files that make no sense.
func parseTask(status task.Status, stat string) (Task, bool) {
	cpus, cerr := status.Allowed()
	mems, _ := status.Value("Mems_allowed_list")
	nodes, _ := cpuset.Parse(mems) // empty, which is not known, if the list is wrong
	name, _ := status.Value("Name")
	s, err := task.ParseStat(stat)
	t := Task{Name: name, Kernel: s.Kernel, Allowed: cpus, Processor: s.Processor, Policy: s.Policy,
		Priority: s.Priority, Nodes: nodes, Locked: kibi(status, "VmLck"), Swapped: kibi(status, "VmSwap")}
	return t, cerr == nil && err == nil && !s.Dead()
}

// kibi reads a value such as "123 kB" and returns bytes; 0 if it is something else.
func kibi(status task.Status, key string) uint64 {
	value, _ := status.Value(key)
	n, err := strconv.ParseUint(strings.TrimSuffix(value, " kB"), 10, 54)
	if err != nil {
		return 0
	}
	return n << 10
}

// parsePages adds up the lines of numa_maps: "7f… default anon=5 N0=3 N1=2 kernelpagesize_kB=4".
func parsePages(text string) map[int]uint64 {
	pages := map[int]uint64{}
	for line := range strings.Lines(text) {
		here, size := map[int]uint64{}, uint64(4)
		for _, field := range strings.Fields(line) {
			key, value, _ := strings.Cut(field, "=")
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				continue
			}
			if key == "kernelpagesize_kB" {
				size = n
			} else if node, isNode := strings.CutPrefix(key, "N"); isNode {
				if id, err := strconv.ParseUint(node, 10, 31); err == nil {
					here[int(id)] += n
				}
			}
		}
		for node, n := range here {
			pages[node] += n * size << 10
		}
	}
	return pages
}
