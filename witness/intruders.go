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

// remedies are what to do about kernel threads, by the begin of their names; the first match holds.
func remedies() []struct{ prefix, remedy string } {
	const bound = "bound to its CPU: move what wakes it, "
	return []struct{ prefix, remedy string }{
		{"kworker/u", "unbound: take the CPU out of /sys/devices/virtual/workqueue/cpumask"},
		{"kworker/R", "rescuer of a work queue: it runs when memory is short"},
		{"kworker/", bound + "the interrupt, driver or timer that queues work on this CPU"},
		{"ksoftirqd/", bound + "the interrupts, timers and packet steering (RPS) that raise softirqs there"},
		{"ktimers/", bound + "the timers armed there"},
		{"migration/", bound + "changes of affinity and balancing between CPUs"},
		{"irq/", "an interrupt's thread: move the interrupt by its smp_affinity_list in /proc/irq"},
		{"rcuc/", bound + "or boot with rcu_nocbs for this CPU"},
		{"rcuo", "move it with taskset: RCU callbacks run on any CPU"},
		{"rcu_", "move it with taskset"},
		{"cpuhp/", bound + "changes of the CPUs online"},
		{"idle_inject/", bound + "the thermal limit that injects idle time"},
		{"watchdog/", bound + "or take the CPU out of kernel.watchdog_cpumask"},
	}
}

func remedy(st stay) string {
	switch {
	case st.process.id == os.Getpid():
		return "isolane itself: it belongs on the housekeeping CPUs"
	case !st.kernel:
		return "keep it off with the housekeeping cpuset"
	}
	for _, r := range remedies() {
		if strings.HasPrefix(st.comm, r.prefix) {
			return r.remedy
		}
	}
	return "move it with taskset, or boot with isolcpus where it refuses"
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
