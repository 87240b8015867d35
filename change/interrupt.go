package change

import (
	"os"
	"path"
	"strconv"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
)

// recallInterruptThreads brings threads of interrupts back to the CPUs where these fire. When a partition
// comes or goes the kernel gives all kernel threads of the root cgroup the CPUs that no partition has, also
// those that follow an interrupt (update_tasks_cpumask in kernel/cgroup/cpuset.c). They follow it again when
// it is set, also to what it has (irq_thread_check_affinity in kernel/irq/manage.c). An interrupt that the
// kernel lets nobody set keeps such a thread.
func (k kernel) recallInterruptThreads() {
	root := os.DirFS(k.root)
	pids, _ := task.Processes(root) // without them nothing is to be done
	set := map[int]bool{}
	for _, pid := range pids {
		t, err := task.ReadStat(root, task.Dir(pid))
		irq, is := task.Interrupt(t.Comm)
		if err != nil || !is || !t.Kernel || set[irq] {
			continue
		}
		dir := path.Join("/proc/irq", strconv.Itoa(irq))
		fires, err := cpuset.Read(root, path.Join(dir, "effective_affinity_list")[1:])
		allowed, aerr := task.ReadAllowed(root, task.Dir(pid))
		if err != nil || aerr != nil || fires.IsEmpty() || allowed == fires {
			continue
		}
		set[irq] = true
		file := path.Join(dir, "smp_affinity_list")
		if may, rerr := k.read(file); rerr == nil {
			_ = k.write(file, may)
		}
	}
}
