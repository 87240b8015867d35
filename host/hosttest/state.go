package hosttest

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
)

// State is what lanes, proofs and tests change on a host and must restore: values, by the name of a file or a
// task. It does not have kernel threads that started after this process.
type State map[string]string

// stateFiles are patterns of files whose contents belong to the state.
func stateFiles() []string {
	return []string{"/proc/irq/*/smp_affinity_list", "/proc/irq/default_smp_affinity",
		"/sys/devices/virtual/workqueue/cpumask", "/sys/devices/virtual/workqueue/*/cpumask",
		"/sys/devices/virtual/net/*/queues/*/?ps_cpus", "/proc/sys/kernel/watchdog_cpumask",
		"/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us",
		"/sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
		"/sys/devices/system/cpu/cpufreq/policy*/scaling_governor", "/proc/sys/kernel/sched_rt_runtime_us",
		"/sys/fs/cgroup/cpuset/cpuset.sched_load_balance",
		"/proc/sys/vm/nr_hugepages", "/sys/devices/system/node/node*/hugepages/*/nr_hugepages",
		"/proc/sys/net/core/busy_poll", "/proc/sys/net/core/busy_read"}
}

// stateNames are patterns of files whose existence belongs to the state.
func stateNames() []string { return []string{"/run/netns/*", "/sys/class/net/*", "/run/isolane/*"} }

// ReadState reads the state of this host.
func ReadState() (State, error) {
	s := State{}
	for _, pattern := range stateFiles() {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			s.file(file)
		}
	}
	for _, pattern := range stateNames() {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			s[file] = "present"
		}
	}
	if err := s.cgroups("/sys/fs/cgroup"); err != nil {
		return nil, err
	}
	s.markAsMade(host.Live())
	return s, s.tasks()
}

// asMade ends the CPUs of an interrupt if they are those that the kernel gives a new one (irq_setup_affinity
// in kernel/irq/manage.c). Such an interrupt is no change if it was not there: a driver has loaded.
const asMade = " (as made)"

func (s State) markAsMade(root fs.FS) {
	all, err := cpuset.ParseMask(s["/proc/irq/default_smp_affinity"])
	for name, list := range s {
		dir, is := strings.CutSuffix(name, "/smp_affinity_list")
		has, perr := cpuset.Parse(list)
		if !is || err != nil || perr != nil {
			continue
		}
		node, _ := fs.ReadFile(root, dir[1:]+"/node") // none without NUMA
		near, nerr := cpuset.Read(root, "sys/devices/system/node/node"+strings.TrimSpace(string(node))+"/cpulist")
		if has == all || nerr == nil && has == all.Intersection(near) {
			s[name] += asMade
		}
	}
}

// file adds the content of a file if it can be read. Some have none, and some vanish while they are read.
func (s State) file(name string) {
	if data, err := os.ReadFile(name); err == nil {
		s[name] = strings.TrimSpace(string(data))
	}
}

// cgroups adds the CPUs and partitions of all cgroups that have their own, and of Isolane's cgroups all
// cpuset files.
func (s State) cgroups(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		switch ours := strings.HasPrefix(filepath.Base(filepath.Dir(path)), "isolane"); {
		case err != nil: // cgroups come and go
			return nil
		case d.IsDir() && strings.HasPrefix(name, "isolane"):
			s[path] = "present"
		case ours && strings.HasPrefix(name, "cpuset."), name == "cpuset.cpus", name == "cpuset.cpus.partition":
			s.file(path)
			if !ours && (s[path] == "" || s[path] == "member") { // the defaults, also of a new cgroup
				delete(s, path)
			}
		}
		return nil
	})
}

// kernelThread begins the names of kernel threads in a State.
const kernelThread = "kernel thread "

// rescuer reports whether a kernel thread helps a work queue when no other worker comes. Whoever has helped
// keeps the CPUs that the work had or, with newer kernels, those that unbound work had then
// (worker_attach_to_pool and unbind_worker in kernel/workqueue.c), and nobody else may change them. Before
// Linux 6.9 it has the name of its queue.
func rescuer(t task.Stat) bool {
	return t.Worker && (!strings.HasPrefix(t.Comm, "kworker/") || strings.HasPrefix(t.Comm, "kworker/R"))
}

// tasks adds the CPUs of kernel threads, and the processes of Isolane and of programs that its tests start.
func (s State) tasks() error {
	root := host.Live()
	self, err := task.ReadStat(root, task.Dir(os.Getpid()))
	if err != nil {
		return err
	}
	pids, err := task.Processes(root)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		t, err := task.ReadStat(root, task.Dir(pid))
		if err != nil || t.Dead() || t.Kernel && t.Start > self.Start {
			continue
		}
		name := t.Comm
		if i := strings.IndexAny(name, "-+"); i > 0 && strings.HasPrefix(name, "kworker/") {
			name = name[:i] // the rest is what the worker does at the moment
		}
		switch {
		case rescuer(t):
		case t.Kernel:
			if cpus, err := task.ReadAllowed(root, task.Dir(pid)); err == nil {
				s[fmt.Sprintf("%s%d %s", kernelThread, t.ID, name)] = threadCPUs(root, name, cpus)
			}
		case slices.Contains([]string{"isolane", "iperf3", "floor", "nginx", "varnishd", "cache-main", "wrk",
			"cyclictest", "rtla", "dnsmasq"}, t.Comm),
			strings.HasPrefix(t.Comm, "stress-ng"), strings.HasPrefix(t.Comm, "timerlatu/"):
			s[fmt.Sprintf("process %d %s", t.ID, t.Comm)] = "present"
		}
	}
	return nil
}

// threadCPUs returns the CPUs of a kernel thread, as text. The thread of an interrupt follows it to the one
// CPU that the kernel chooses among those allowed (irq_thread_check_affinity in kernel/irq/manage.c). An
// interrupt that was kept off a CPU does not return there by itself, so threadCPUs names no CPU for such
// threads. Before Linux 6.10 the thread moves when it is next woken, and may still be on another allowed CPU.
func threadCPUs(root fs.FS, name string, cpus cpuset.Set) string {
	number, _, _ := strings.Cut(strings.TrimPrefix(name, "irq/"), "-")
	files := []string{"effective_affinity_list"}
	if release, err := fs.ReadFile(root, "proc/sys/kernel/osrelease"); err == nil &&
		(host.Kernel{Release: strings.TrimSpace(string(release))}).Before(6, 10) {
		files = append(files, "smp_affinity_list")
	}
	for _, file := range files {
		text, err := fs.ReadFile(root, "proc/irq/"+number+"/"+file)
		may, perr := cpuset.Parse(strings.TrimSpace(string(text)))
		if err == nil && perr == nil && cpus.Len() == 1 && cpus.IsSubsetOf(may) {
			return "those of its interrupt"
		}
	}
	return cpus.String()
}

// WithoutWorkers removes the kernel's worker threads, which come and go.
func (s State) WithoutWorkers() State {
	maps.DeleteFunc(s, func(name, _ string) bool {
		return strings.HasPrefix(name, kernelThread) && strings.Contains(name, " kworker/")
	})
	return s
}

// Changes returns what differs from an earlier state, one line each, sorted. A kernel thread counts only if
// it is in both.
func (s State) Changes(before State) []string {
	var changes []string
	for name, was := range before {
		is, ok := s[name]
		switch {
		case is == was || !ok && strings.HasPrefix(name, kernelThread):
		case !ok:
			changes = append(changes, fmt.Sprintf("%s: was %q, is gone", name, was))
		default:
			changes = append(changes, fmt.Sprintf("%s: was %q, is %q", name, was, is))
		}
	}
	for name, is := range s {
		_, ok := before[name]
		if !ok && !strings.HasPrefix(name, kernelThread) && !strings.HasSuffix(is, asMade) {
			changes = append(changes, fmt.Sprintf("%s: was not there, is %q", name, is))
		}
	}
	slices.Sort(changes)
	return changes
}
