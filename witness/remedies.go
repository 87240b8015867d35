package witness

import (
	"os"
	"strings"
)

type remedyTable []struct{ kind, prefix, remedy string }

// remedies are what to do about a source of some kind, by the begin of its name; the first match holds.
func remedies() remedyTable {
	const (
		bound  = "bound to its CPU: move what wakes it, "
		timers = "it runs timers that were armed on this CPU: keep the work that arms them off it"
		tick   = "boot with nohz_full for this CPU, and keep a single task on it"
	)
	return remedyTable{
		{Task, "", "keep it off with the housekeeping cpuset"},
		{KernelThread, "kworker/u", "unbound: take the CPU out of /sys/devices/virtual/workqueue/cpumask"},
		{KernelThread, "kworker/R", "rescuer of a work queue: it runs when memory is short"},
		{KernelThread, "kworker/", bound + "the interrupt, driver or timer that queues work on this CPU"},
		{KernelThread, "ksoftirqd/",
			bound + "the interrupts, timers and packet steering (RPS) that raise softirqs there"},
		{KernelThread, "ktimers/", bound + "the timers armed there"},
		{KernelThread, "migration/", bound + "changes of affinity and balancing between CPUs"},
		{KernelThread, "irq/", "an interrupt's thread: move the interrupt by its smp_affinity_list in /proc/irq"},
		{KernelThread, "rcuc/", bound + "or boot with rcu_nocbs for this CPU"},
		{KernelThread, "rcuo", "move it with taskset: RCU callbacks run on any CPU"},
		{KernelThread, "rcu_", "move it with taskset"},
		{KernelThread, "cpuhp/", bound + "changes of the CPUs online"},
		{KernelThread, "idle_inject/", bound + "the thermal limit that injects idle time"},
		{KernelThread, "watchdog/", bound + "or take the CPU out of kernel.watchdog_cpumask"},
		{KernelThread, "", "move it with taskset, or boot with isolcpus where it refuses"},
		{Interrupt, "", "move it by its smp_affinity_list in /proc/irq; where that refuses, the driver decides: " +
			"fewer queues, or isolcpus=managed_irq"},
		{Softirq, "TIMER", timers},
		{Softirq, "HRTIMER", timers},
		{Softirq, "NET_",
			"move the network device's interrupts, and take the CPU out of its rps_cpus and xps_cpus"},
		{Softirq, "BLOCK", "move the disk's interrupts, or set rq_affinity of its queue"},
		{Softirq, "SCHED", "balancing between CPUs: " +
			"put the CPU into an isolated partition, or boot with isolcpus=domain"},
		{Softirq, "RCU", "boot with rcu_nocbs for this CPU"},
		{Softirq, "", "move the interrupt whose driver raises it"},
		{IPI, "reschedule", "a task is woken there: keep others than the lane's off the CPU"},
		{IPI, "call function", "another CPU asks for it: to balance, where as many SCHED softirqs come; " +
			"else TLB shootdowns of memory shared with the lane, changed kernel code, tools that look at every CPU"},
		{IPI, "irq work", "perf events, tracing and printk: end what uses them"},
		{IPI, "", "another CPU sends it: find out who with the tracepoint ipi_send_cpu"},
		{Tick, "", tick},
		{Steal, "", "the hypervisor runs others: pin the virtual CPU to a physical one of its own"},
	}
}

func (t remedyTable) find(kind, name string, pid int) string {
	if kind == Task && pid == os.Getpid() {
		return "isolane itself: it belongs on the housekeeping CPUs"
	}
	for _, r := range t {
		if r.kind == kind && strings.HasPrefix(name, r.prefix) {
			return r.remedy
		}
	}
	return ""
}
