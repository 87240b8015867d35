package knob

import (
	"io/fs"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

const watchdogMask = "proc/sys/kernel/watchdog_cpumask"

// watchdogs keeps the lockup detector's timer and event off the lanes' CPUs
// (Documentation/admin-guide/lockup-watchdogs.rst).
func watchdogs(v View, p plan.Placement) ([]journal.Step, error) {
	text, err := fs.ReadFile(v.Root, watchdogMask)
	if err != nil {
		return nil, nil // a kernel without the detector
	}
	now, err := cpuset.Parse(trim(text))
	if err != nil || !now.Intersects(p.CPUs()) {
		return nil, err
	}
	return []journal.Step{optional(file("/"+watchdogMask, now.Difference(p.CPUs()).String()))}, nil
}

func watchdogFiles() []string { return []string{"/" + watchdogMask} }

// rtRuntime is how much of each second real-time tasks may have of a CPU, in µs; -1 is all.
const rtRuntime = "proc/sys/kernel/sched_rt_runtime_us"

// realTime lets the real-time tasks of a lane run without the pause of 50 ms in each second that the kernel
// makes for all others (Documentation/scheduler/sched-rt-group.rst). With -1 a task that never sleeps keeps
// its CPU from the kernel's own threads, and the host may hang. So that is only done where those have nothing
// to do there: the lane's CPUs are without ticks and RCU callbacks, and not the one that booted. Kernels
// since 6.12 make the pause only where an ordinary task waits (the fair server), which a lane has none of.
func realTime(v View, p plan.Placement) ([]journal.Step, error) {
	var cpus cpuset.Set
	for _, l := range p.Lanes {
		if l.Spec.Scheduling.Policy.IsRealTime() {
			cpus = cpus.Union(l.CPUs)
		}
	}
	if cpus.IsEmpty() || v.Host.Kernel.AtLeast(6, 12) || !quiet(v.Host, cpus) {
		return nil, nil
	}
	if _, err := fs.Stat(v.Root, rtRuntime); err != nil {
		return nil, nil
	}
	return []journal.Step{optional(file("/"+rtRuntime, "-1"))}, nil
}

func realTimeFiles() []string { return []string{"/" + rtRuntime} }

// quiet says whether the kernel has nothing of its own to do on CPUs that a task keeps for ever.
func quiet(h host.Host, cpus cpuset.Set) bool {
	tickless := h.Kernel.NohzFull
	return tickless != nil && cpus.IsSubsetOf(*tickless) && !cpus.Contains(h.CPUs[0].ID)
}

func watchdogDefaults(u *Unrecorded) error {
	u.resetSysctl(watchdogMask, "", u.possible().Difference(u.tickless()).String())
	return nil
}

func realTimeDefaults(u *Unrecorded) error {
	u.resetSysctl(rtRuntime, "-1", "950000")
	return nil
}
