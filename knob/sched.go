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
	return []journal.Step{optional(fileStep("/"+watchdogMask, now.Difference(p.CPUs()).String()))}, nil
}

func watchdogFiles() []string { return []string{"/" + watchdogMask} }

// rtRuntime is how long real-time tasks may run on a CPU in each second, in µs; -1 is always.
const rtRuntime = "proc/sys/kernel/sched_rt_runtime_us"

// realTime removes the limit by which the kernel pauses real-time tasks for 50 ms in each second
// (Documentation/scheduler/sched-rt-group.rst). Without the limit a task that never sleeps keeps the kernel's
// own threads off its CPU, and the host may hang. So realTime does that only if those have nothing to do
// there: the lane's CPUs have no ticks and no RCU callbacks, and the boot CPU is not among them. Kernels
// since 6.12 pause only if an ordinary task waits (the fair server), and a lane has none.
func realTime(v View, p plan.Placement) ([]journal.Step, error) {
	var cpus cpuset.Set
	for _, l := range p.Lanes {
		if l.Spec.Scheduling.Policy.IsRealTime() {
			cpus = cpus.Union(l.CPUs)
		}
	}
	if cpus.IsEmpty() || v.Host.Kernel.AtLeast(6, 12) || !isQuiet(v.Host, cpus) {
		return nil, nil
	}
	if _, err := fs.Stat(v.Root, rtRuntime); err != nil {
		return nil, nil
	}
	return []journal.Step{optional(fileStep("/"+rtRuntime, "-1"))}, nil
}

func realTimeFiles() []string { return []string{"/" + rtRuntime} }

// isQuiet reports whether the kernel has no work of its own on CPUs that a task never leaves.
func isQuiet(h host.Host, cpus cpuset.Set) bool {
	tickless := h.Kernel.NohzFull
	return tickless != nil && cpus.IsSubsetOf(*tickless) && !cpus.Contains(h.CPUs[0].ID)
}

func watchdogDefaults(u *Unrecorded) error {
	u.resetSysctl(watchdogMask, "", u.possibleCPUs().Difference(u.ticklessCPUs()).String())
	return nil
}

func realTimeDefaults(u *Unrecorded) error {
	u.resetSysctl(rtRuntime, "-1", "950000")
	return nil
}
