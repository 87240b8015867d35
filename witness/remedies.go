package witness

import (
	"os"
	"strings"

	"isolane.dev/isolane/results"
)

type remedyTable []struct{ kind, prefix, remedy string }

// remedies says what to do about a source of some kind, by the prefix of its name. The first match counts.
func remedies() remedyTable {
	const (
		bound  = "bound to its CPU: move what wakes it, "
		timers = "it runs timers that were armed on this CPU: keep the work that arms them off it"
		tick   = "boot with nohz_full for this CPU, where the kernel has CONFIG_NO_HZ_FULL, and keep a single " +
			"task on it: what is left are timers, also those of the lane's own programs"
	)
	return remedyTable{
		{results.Task, "", "keep it off with the housekeeping cpuset"},
		{results.KernelThread, "kworker/u", "unbound: take the CPU out of /sys/devices/virtual/workqueue/cpumask"},
		{results.KernelThread, "kworker/R", "rescuer of a work queue: it runs when memory is short"},
		{results.KernelThread, "kworker/", bound + "the interrupt, driver or timer that queues work on this CPU"},
		{results.KernelThread, "ksoftirqd/",
			bound + "the interrupts, timers and packet steering (RPS) that raise softirqs there"},
		{results.KernelThread, "ktimers/", bound + "the timers armed there"},
		{results.KernelThread, "migration/", bound + "changes of affinity and balancing between CPUs"},
		{results.KernelThread, "irq/", "an interrupt's thread: move the interrupt by its " +
			"smp_affinity_list in /proc/irq"},
		{results.KernelThread, "rcuc/", bound + "or boot with rcu_nocbs for this CPU"},
		{results.KernelThread, "rcuo", "move it with taskset: RCU callbacks run on any CPU"},
		{results.KernelThread, "rcu_", "move it with taskset"},
		{results.KernelThread, "cpuhp/", bound + "changes of the CPUs online"},
		{results.KernelThread, "idle_inject/", bound + "the thermal limit that injects idle time"},
		{results.KernelThread, "watchdog/", bound + "or take the CPU out of kernel.watchdog_cpumask"},
		{results.KernelThread, "", "move it with taskset, or boot with isolcpus where it refuses"},
		{results.Interrupt, "", "move it by its smp_affinity_list in /proc/irq; where that refuses, the " +
			"driver decides: fewer queues, or isolcpus=managed_irq"},
		{results.Softirq, "TIMER", timers},
		{results.Softirq, "HRTIMER", timers},
		{results.Softirq, "NET_",
			"move the network device's interrupts, and take the CPU out of its rps_cpus and xps_cpus"},
		{results.Softirq, "BLOCK", "move the disk's interrupts, or set rq_affinity of its queue"},
		{results.Softirq, "SCHED", "balancing between CPUs: " +
			"put the CPU into an isolated partition, or boot with isolcpus=domain"},
		{results.Softirq, "RCU", "boot with rcu_nocbs for this CPU"},
		{results.Softirq, "", "move the interrupt whose driver raises it"},
		{results.IPI, "reschedule", "a task is woken there: keep others than the lane's off the CPU"},
		{results.IPI, "call function", "another CPU asks for it: to balance, where as many SCHED softirqs come; " +
			"else TLB shootdowns of memory shared with the lane, changed kernel code, tools that look at every CPU"},
		{results.IPI, "irq work", "perf events, tracing and printk: end what uses them"},
		{results.IPI, "", "another CPU sends it: find out who with the tracepoint ipi_send_cpu"},
		{results.Tick, "", tick},
		{results.Steal, "", "the hypervisor runs others: pin the virtual CPU to a physical one of its own"},
	}
}

func (t remedyTable) find(kind, name string, pid int) string {
	if kind == results.Task && pid == os.Getpid() {
		return "isolane itself: it belongs on the housekeeping CPUs"
	}
	for _, r := range t {
		if r.kind == kind && strings.HasPrefix(name, r.prefix) {
			return r.remedy
		}
	}
	return ""
}
