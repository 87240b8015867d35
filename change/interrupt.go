package change

import (
	"os"
	"path"
	"strconv"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
)

// RecallInterruptThreads is for when partitions have ended by themselves, with the cgroups of containers, and
// the interrupts have their CPUs back; see recallInterruptThreads. It does nothing on a host without
// cgroup v2, which has no partitions.
func RecallInterruptThreads() {
	mounts, err := cgroup.Mounted(host.Live())
	if _, v2 := mounts.Cpuset(); err == nil && v2 {
		kernel{"/"}.recallInterruptThreads()
	}
}

// recallInterruptThreads brings threads of interrupts back to the CPUs where these fire. When a partition
// comes or goes the kernel gives all kernel threads of the root cgroup the CPUs that no partition has, also
// those that follow an interrupt (update_tasks_cpumask in kernel/cgroup/cpuset.c). They follow it again when
// it is set, also to what it has (irq_thread_check_affinity in kernel/irq/manage.c). But if it was moved
// twice and has not fired since, the kernel sets it, and so its thread, only when it fires
// (irqd_is_setaffinity_pending there). Then the thread is set. An interrupt that the kernel lets nobody set
// keeps such a thread.
func (k kernel) recallInterruptThreads() {
	root := os.DirFS(k.root)
	pids, _ := task.Processes(root) // without them nothing is to be done
	set := map[int]bool{}
	for _, pid := range pids {
		t, err := task.ReadStat(root, task.Dir(pid))
		irq, is := task.Interrupt(t.Comm)
		if err != nil || !is || !t.Kernel {
			continue
		}
		dir := path.Join("/proc/irq", strconv.Itoa(irq))
		astray := func() (fires cpuset.Set, is bool) {
			fires, err := cpuset.Read(root, path.Join(dir, "effective_affinity_list")[1:])
			allowed, aerr := task.ReadAllowed(root, task.Dir(pid))
			return fires, err == nil && aerr == nil && !fires.IsEmpty() && allowed != fires
		}
		if _, is = astray(); !is {
			continue
		}
		file := path.Join(dir, "smp_affinity_list")
		if may, rerr := k.read(file); rerr == nil && !set[irq] {
			set[irq] = k.write(file, may) == nil
		}
		fires, still := astray()
		if still && set[irq] && k.isLive() && !t.Fixed {
			_ = task.SetAffinity(pid, fires) // or it has ended
		}
	}
}
