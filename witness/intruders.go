package witness

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/results"
)

// maxIntruders bounds the list of intruders.
const maxIntruders = 20

// intruders are the stays on the lane's CPUs that are not the application's, the costliest first.
func intruders(lane cpuset.Set, stays []stay, application func(stay) bool) []results.Intruder {
	var all []results.Intruder
	for _, st := range stays {
		if !lane.Contains(st.cpu) || application(st) {
			continue
		}
		all = append(all, results.Intruder{CPU: st.cpu, TID: st.id, Comm: st.comm, Kernel: st.kernel,
			Runs: st.runs, Ran: st.ran, Worst: st.longest, Remedy: remedy(st)})
	}
	slices.SortFunc(all, func(a, b results.Intruder) int {
		return cmp.Or(cmp.Compare(b.Ran, a.Ran), cmp.Compare(b.Runs, a.Runs),
			cmp.Compare(a.TID, b.TID), cmp.Compare(a.CPU, b.CPU))
	})
	return bound(all)
}

// bound keeps the costliest and adds the others up in two rows, without a thread id, so that the
// sums stay whole: many short programs are as bad as a long one.
func bound(all []results.Intruder) []results.Intruder {
	if len(all) <= maxIntruders {
		return all
	}
	kept, rest := all[:maxIntruders-2:maxIntruders-2], all[maxIntruders-2:]
	for _, kernel := range []bool{false, true} {
		what := "other tasks"
		if kernel {
			what = "other kernel threads"
		}
		n := 0
		var sum results.Intruder
		for _, i := range rest {
			if i.Kernel != kernel {
				continue
			}
			if n++; n == 1 {
				sum = results.Intruder{CPU: i.CPU, Kernel: kernel, Remedy: i.Remedy} // those of the costliest
			}
			sum.Runs += i.Runs
			sum.Ran += i.Ran
			sum.Worst = max(sum.Worst, i.Worst)
		}
		if n > 0 {
			sum.Comm = fmt.Sprintf("%d %s", n, what)
			kept = append(kept, sum)
		}
	}
	return kept
}

type remedyTable []struct{ kind, prefix, remedy string }

// remedies are what to do about a source of some kind, by the begin of its name; the first match holds.
func remedies() remedyTable {
	const (
		bound  = "bound to its CPU: move what wakes it, "
		timers = "set where its timers are armed: keep that work off the CPU"
		tick   = "boot with nohz_full for this CPU, and keep a single task on it"
	)
	return remedyTable{
		{Task, "", "keep it off with the housekeeping cpuset"},
		{KernelThread, "kworker/u", "unbound: take the CPU out of /sys/devices/virtual/workqueue/cpumask"},
		{KernelThread, "kworker/R", "rescuer of a work queue: it runs when memory is short"},
		{KernelThread, "kworker/", bound + "the interrupt, driver or timer that queues work on this CPU"},
		{KernelThread, "ksoftirqd/", bound + "the interrupts, timers and packet steering (RPS) that raise softirqs there"},
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
		{Interrupt, "", "move it by its smp_affinity_list in /proc/irq; where that refuses, the driver decides: fewer queues, or isolcpus=managed_irq"},
		{Softirq, "TIMER", timers},
		{Softirq, "HRTIMER", timers},
		{Softirq, "NET_", "move the network device's interrupts, and take the CPU out of its rps_cpus and xps_cpus"},
		{Softirq, "BLOCK", "move the disk's interrupts, or set rq_affinity of its queue"},
		{Softirq, "SCHED", "balancing between CPUs: put the CPU into an isolated partition, or boot with isolcpus=domain"},
		{Softirq, "RCU", "boot with rcu_nocbs for this CPU"},
		{Softirq, "", "move the interrupt whose driver raises it"},
		{IPI, "reschedule", "a task is woken there: keep others than the lane's off the CPU"},
		{IPI, "call function", "another CPU asks for it: to balance, where as many SCHED softirqs come; else TLB shootdowns of memory shared with the lane, changed kernel code, tools that look at every CPU"},
		{IPI, "irq work", "perf events, tracing and printk: end what uses them"},
		{IPI, "", "another CPU sends it: find out who with the tracepoint ipi_send_cpu"},
		{Tick, "", tick},
		{Steal, "", "the hypervisor runs others: pin the virtual CPU to a physical one of its own"},
	}
}

func remedy(st stay) string { return remedies().find(taskKind(st.kernel), st.comm, st.process.id) }

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

func taskKind(kernel bool) string {
	if kernel {
		return KernelThread
	}
	return Task
}

// census is what every task of the machine had run at one moment: without a tracer the intruders
// come from two of them.
type census map[task]tally

type tally struct {
	process task
	stat    taskStat
	ran     results.Nanoseconds
	runs    uint64
	allowed cpuset.Set
}

// takeCensus reads all threads of the machine.
func takeCensus(root fs.FS) census {
	all := census{}
	for _, pid := range ids(root, "proc") {
		process, err := readTask(root, processDir(pid))
		if err != nil {
			continue // it has ended
		}
		for _, tid := range ids(root, processDir(pid)+"/task") {
			if t, err := readTally(root, threadDir(pid, tid)); err == nil {
				t.process = process.task
				all[t.stat.task] = t
			}
		}
	}
	return all
}

func readTally(root fs.FS, dir string) (t tally, err error) {
	if t.stat, err = readTask(root, dir); err != nil {
		return t, err
	}
	text, err := fs.ReadFile(root, dir+"/schedstat")
	if err != nil {
		return t, err
	}
	if t.ran, t.runs, err = parseSchedstat(string(text)); err != nil {
		return t, err
	}
	t.allowed, err = readAs(root, dir+"/status", parseAllowed)
	return t, err
}

// parseAllowed reads the CPUs that a task may use from /proc/PID/status.
func parseAllowed(text string) (cpuset.Set, error) {
	for line := range strings.Lines(text) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return cpuset.Parse(list)
		}
	}
	return cpuset.Set{}, errors.New("expected Cpus_allowed_list")
}

// since returns the tasks that ran since an earlier census and were last on one of the lane's CPUs.
// How long they were there is known only of those that may be nowhere else; it is 0 of the others.
func (c census) since(before census, lane cpuset.Set) []stay {
	var stays []stay
	for id, now := range c {
		was := before[id]
		if now.runs == was.runs && now.ran == was.ran || !lane.Contains(now.stat.lastCPU) {
			continue
		}
		st := stay{task: id, cpu: now.stat.lastCPU, process: now.process, parent: now.stat.parent,
			kernel: now.stat.kernel, comm: now.stat.comm}
		if now.allowed == cpuset.Of(now.stat.lastCPU) {
			st.runs, st.ran = now.runs-was.runs, now.ran-was.ran
		}
		stays = append(stays, st)
	}
	return stays
}
