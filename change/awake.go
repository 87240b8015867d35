package change

import (
	"context"
	"os/exec"
	"path"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
)

// isolates reports whether a value may take CPUs out of the scheduler's domains: an isolated partition does,
// and a root one of a single CPU.
func (k kernel) isolates(name, value string) bool {
	return k.isLive() && path.Base(name) == "cpuset.cpus.partition" && (value == "isolated" || value == "root")
}

// keepBusy keeps the CPUs of a cgroup v2 busy until the caller calls stop.
//
// The kernel lists idle CPUs without a tick, to have them balance load for others. A CPU leaves the list with
// its next busy tick, but only if it is still in a scheduling domain (sched_balance_trigger in
// kernel/sched/fair.c). So a CPU that is idle while it becomes isolated would be interrupted for as long as
// its partition lasts.
//
// The partition matters more: if no process can be started there, it is made anyway. isolane watch shows what
// happens on its CPUs.
func (k kernel) keepBusy(ctx context.Context, group, value string) (stop func()) {
	var busy []*exec.Cmd
	runtime.LockOSThread() // the death signal comes when this thread ends
	stop = func() {
		for _, cmd := range busy {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // "killed"
		}
		runtime.UnlockOSThread()
	}
	cpus, err := k.readList(path.Join(group, "cpuset.cpus"))
	if err != nil || value == "root" && cpus.Len() > 1 { // these CPUs keep a domain of their own
		return stop
	}
	may, err := k.readList(path.Join(group, "cpuset.cpus.effective"))
	if err != nil {
		return stop
	}
	// A workload's own cgroup, whose parents do not have the CPUs: everybody may still use them.
	if !cpus.IsSubsetOf(may) {
		h, herr := cgroup.HierarchyOf(host.Live(), group)
		if herr != nil {
			return stop
		}
		group = h.Mount
	}
	dir, err := k.open(group, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return stop
	}
	defer dir.Close()
	var kept cpuset.Set
	for cpu := range cpus.All() {
		cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
		cmd.Dir, cmd.Env = "/", []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
			UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		if cmd.Start() != nil {
			break
		}
		busy = append(busy, cmd)
		if task.SetAffinity(cmd.Process.Pid, cpuset.Of(cpu)) == nil {
			kept = kept.Union(cpuset.Of(cpu))
		}
	}
	waitBusyTick(ctx, kept)
	return stop
}

func (k kernel) readList(name string) (cpuset.Set, error) {
	text, err := k.read(name)
	if err != nil {
		return cpuset.Set{}, err
	}
	return cpuset.Parse(text)
}

// waitBusyTick waits until each CPU has been busy at a tick.
func waitBusyTick(ctx context.Context, cpus cpuset.Set) {
	before, err := host.CPUTimes(host.Live())
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // many ticks
	defer cancel()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !cpus.IsEmpty() {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		now, err := host.CPUTimes(host.Live())
		if err != nil {
			return
		}
		for cpu := range cpus.All() {
			if now[cpu].Busy != before[cpu].Busy {
				cpus = cpus.Difference(cpuset.Of(cpu))
			}
		}
	}
}
