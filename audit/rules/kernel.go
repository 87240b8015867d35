package rules

import (
	"fmt"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/settings"
)

const sysctlKernel = "Documentation/admin-guide/sysctl/kernel.rst"

// kernelRules check what the kernel itself does on lane CPUs.
func kernelRules() []rule {
	return []rule{{
		id: "preempt", title: "the kernel is not PREEMPT_RT",
		classes: severities(audit.None, audit.Warn, audit.None),
		impact:  "a system call or softirq of others delays a woken thread: 50 µs, at worst milliseconds",
		boot:    "a kernel with PREEMPT_RT for real-time threads; preempt=full helps on a dynamic kernel",
		source:  "Documentation/core-api/real-time/theory.rst", check: preempt,
	}, {
		id: "workqueues", title: "unbound work queues may run on lane CPUs",
		impact: "kworker threads run there for 5 to 100 µs at any time",
		fix:    "echo {housekeeping-mask} > /sys/devices/virtual/workqueue/cpumask (and those of single queues)",
		boot:   "workqueue.unbound_cpus={housekeeping}; isolcpus=domain and nohz_full= exclude lane CPUs too",
		source: "Documentation/core-api/workqueue.rst", check: workqueues,
	}, {
		id: "nmi-watchdog", title: "the hard lockup detector watches lane CPUs",
		classes: severities(audit.Info, audit.Warn, audit.None),
		impact:  "a non-maskable interrupt every few seconds, 1 to 5 µs, and one hardware counter",
		fix:     "echo 0 > /proc/sys/kernel/nmi_watchdog, or {housekeeping} in /proc/sys/kernel/watchdog_cpumask",
		boot:    "nmi_watchdog=0", source: "Documentation/admin-guide/lockup-watchdogs.rst",
		check: watchdog("nmi_watchdog"),
	}, {
		id: "soft-watchdog", title: "the soft lockup detector runs on lane CPUs",
		classes: severities(audit.Info, audit.Warn, audit.None),
		impact:  "a timer every four seconds that stops the lane's thread for 2 to 10 µs",
		fix:     "{housekeeping} in /proc/sys/kernel/watchdog_cpumask, or echo 0 > /proc/sys/kernel/soft_watchdog",
		boot:    "nosoftlockup", source: "Documentation/admin-guide/lockup-watchdogs.rst",
		check: watchdog("soft_watchdog"),
	}, {
		id: "hung-task", title: "the hung task scanner wakes often",
		classes: severities(audit.None, audit.Info, audit.None),
		impact:  "khungtaskd walks all tasks every two minutes, on whichever CPU it may use",
		fix:     "echo 600 > /proc/sys/kernel/hung_task_timeout_secs, or 0",
		source:  sysctlKernel + ", hung_task_timeout_secs", check: unless("/proc/sys/kernel/hung_task_timeout_secs",
			func(n int64) bool { return n == 0 || n >= 600 }),
	}, {
		id: "timer-migration", title: "timer_migration does not fit the way these CPUs are isolated",
		classes: severities(audit.Info, audit.Info, audit.None), needsLanes: true,
		impact: "timers of others may be armed on a lane CPU, some µs each",
		source: sysctlKernel + ", timer_migration; Documentation/timers/no_hz.rst", check: timerMigration,
	}}
}

// realTimeRules check what delays a real-time thread.
func realTimeRules() []rule {
	return []rule{{
		id: "rt-throttling", title: "real-time threads are throttled",
		classes: severities(audit.Info, audit.Fault, audit.None),
		impact:  "a FIFO thread that does not sleep is stopped for the rest of each period, 50 ms of each second",
		fix: "echo -1 > /proc/sys/kernel/sched_rt_runtime_us, with stalld for starved threads; not needed by " +
			"threads that sleep in time",
		source: "Documentation/scheduler/sched-rt-group.rst", check: throttling,
	}, {
		id: "rt-unthrottled", title: "nothing stops a runaway real-time thread",
		classes: severities(audit.Info, audit.Info, audit.None),
		impact:  "a FIFO loop starves the kernel threads of its CPU, and the host may hang",
		fix:     "run stalld or a deadline server, or write 950000 where no lane needs -1",
		source:  "Documentation/scheduler/sched-rt-group.rst", check: unthrottled,
	}, {
		id: "fair-server", title: "the deadline server of ordinary tasks may preempt a real-time thread",
		classes: severities(audit.None, audit.Warn, audit.None), needsLanes: true,
		impact: "up to 50 ms in each second, only while an ordinary task waits for that CPU",
		fix:    "keep ordinary tasks off the lane; else echo 0 > /sys/kernel/debug/sched/fair_server/cpuN/runtime",
		source: "Documentation/scheduler/sched-deadline.rst", check: fairServer,
	}, {
		id: "rcu-expedited", title: "RCU interrupts all CPUs to end its grace periods sooner",
		classes: severities(audit.Warn, audit.Warn, audit.None),
		impact:  "an interrupt between CPUs of 1 to 5 µs whenever somebody waits for a grace period",
		fix:     "echo 1 > /sys/kernel/rcu_normal",
		boot:    "rcupdate.rcu_normal_after_boot=1 (PREEMPT_RT has it as default)",
		source:  parameters + ", rcupdate.rcu_normal_after_boot", check: rcuExpedited,
	}, {
		id: "rcu-priority", title: "RCU's threads are below the lane's real-time threads",
		classes: severities(audit.None, audit.Info, audit.None),
		impact:  "with FIFO threads that do not sleep, callbacks starve and memory is not freed",
		boot:    "rcutree.kthread_prio=11, or higher than the lane's threads",
		source:  parameters + ", rcutree.kthread_prio", check: rcuPriority,
	}}
}

func preempt(s *subject) []hit {
	if s.Kernel.Realtime == nil {
		return s.noHit(false, "/proc/sys/kernel/version")
	}
	if *s.Kernel.Realtime {
		return nil
	}
	h := hit{inForce: "kernel " + s.Kernel.Release + ", preemption not known"}
	if p := s.Kernel.Preempt; p != nil {
		h.inForce = fmt.Sprintf("kernel %s, preemption %s", s.Kernel.Release, *p)
		if *p == "none" || *p == "voluntary" {
			h.classes = new(severities(audit.None, audit.Fault, audit.None))
		}
	}
	return []hit{h}
}

// workqueues compares masks: a queue's own mask is what was requested. In force is its intersection with the
// mask of all unbound queues or, if that is empty, the latter mask (kernel/workqueue.c,
// wqattrs_actualize_cpumask).
func workqueues(s *subject) []hit {
	const dir = "/sys/devices/virtual/workqueue/"
	all, known := s.Mask(dir + "cpumask")
	return s.overlaps(append(s.Matching(dir+"cpumask"), s.Optional(dir+"*/cpumask")...),
		func(file string) (cpuset.Set, bool) {
			own, ok := s.Mask(file)
			if known {
				if own = own.Intersection(all); own.IsEmpty() {
					own = all
				}
			}
			return own, ok
		})
}

// watchdog returns the check of a lockup detector. A detector runs on nohz_full CPUs only if somebody puts
// them into its mask.
func watchdog(detector string) func(*subject) []hit {
	return func(s *subject) []hit {
		on, ok := s.Number("/proc/sys/kernel/" + detector)
		if !ok || on == 0 {
			return nil
		}
		return s.overlaps([]string{"/proc/sys/kernel/watchdog_cpumask"}, s.List)
	}
}

// timerMigration depends on when lanes are isolated. If at boot (tuned), timers of others never get there,
// and 0 keeps the timers that a lane arms on its own CPU. If lanes come and go (Kubernetes operators), timers
// of earlier tasks must leave their CPUs, which needs 1.
func timerMigration(s *subject) []hit {
	const file = "/proc/sys/kernel/timer_migration"
	n, ok := s.Number(file)
	h := hit{cpus: s.lane}
	switch static := s.lane.IsSubsetOf(orEmpty(s.Kernel.NohzFull)); {
	case ok && n == 1 && static:
		h.inForce = file + " is 1, and the lanes are tickless since boot"
		h.fix = "0 is right for lanes that are isolated at boot (tuned's choice): timers stay where they are " +
			"armed. 1 is right if lanes also come and go"
	case ok && n == 0 && !static:
		h.inForce = file + " is 0, and the lanes are not isolated at boot"
		h.fix = "echo 1 > " + file + ": right for lanes that come and go (the choice of Kubernetes operators): " +
			"the timers of whoever ran there leave. 0 is right only with static isolation"
	default:
		return nil
	}
	return []hit{h}
}

// throttling applies before Linux 6.12. Since then the fair server reserves time for ordinary tasks, and
// these two numbers only limit what groups may ask for.
func throttling(s *subject) []hit {
	runtime, ok := s.Number("/proc/sys/kernel/sched_rt_runtime_us")
	period, also := s.Number("/proc/sys/kernel/sched_rt_period_us")
	if !ok || !also || runtime < 0 || runtime >= period || s.Kernel.AtLeast(6, 12) {
		return nil
	}
	return []hit{{cpus: s.lane, inForce: fmt.Sprintf("sched_rt_runtime_us is %d of %d", runtime, period)}}
}

func unthrottled(s *subject) []hit {
	runtime, ok := s.Number("/proc/sys/kernel/sched_rt_runtime_us")
	watched := s.Runs("stalld")
	if !ok || runtime >= 0 || watched || s.Kernel.AtLeast(6, 12) {
		return nil
	}
	return []hit{{inForce: "sched_rt_runtime_us is -1"}}
}

func fairServer(s *subject) []hit {
	if !s.Kernel.AtLeast(6, 12) {
		return s.noHit(s.Kernel.Release != "", "/proc/sys/kernel/osrelease")
	}
	var on []int
	for _, p := range s.Matching("/sys/kernel/debug/sched/fair_server/cpu*/runtime") {
		if id := settings.CPUOf(p, "cpu"); s.lane.Contains(id) && s.Files[p] != "0" {
			on = append(on, id)
		}
	}
	return onCPUs(cpuset.Of(on...), "", "fair_server runs on CPUs %s", cpuset.Of(on...))
}

// rcuExpedited: expedited grace periods do not interrupt nohz_full CPUs in user mode.
func rcuExpedited(s *subject) []hit {
	normal, ok := s.Number("/sys/kernel/rcu_normal")
	if !ok || normal == 1 || s.lane.IsSubsetOf(orEmpty(s.Kernel.NohzFull)) {
		return nil
	}
	return []hit{{cpus: s.lane, requested: s.requested("rcupdate.rcu_normal_after_boot"),
		inForce: "/sys/kernel/rcu_normal is 0"}}
}

func rcuPriority(s *subject) []hit {
	if !isTrue(s.Kernel.Realtime) {
		return s.noHit(s.Kernel.Realtime != nil, "/proc/sys/kernel/version")
	}
	return unless("/sys/module/rcutree/parameters/kthread_prio", atLeast(11))(s)
}
