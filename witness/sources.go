package witness

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/results"
)

// softirqs returns the names in /proc/softirqs, by vector (include/linux/interrupt.h).
func softirqs() []string {
	return []string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}
}

// ipis returns the interprocessor interrupts by the numbers of bpf/trace.c, with the labels of
// /proc/interrupts (arch/x86/kernel/irq.c), where one label stands for both kinds of calls.
func ipis() []struct{ name, label string } {
	return []struct{ name, label string }{
		{"reschedule", "RES"}, {"call function", "CAL"}, {"call function single", ""},
		{"irq work", "IWI"}, {"x86 platform", "PLT"}, {"call function, TLB shootdown", "TLB"},
	}
}

const localTimer, localTimerLabel = "local timer", "LOC"

// interruptSource says what a row of /proc/interrupts is, by the label that parseCounts returns.
func interruptSource(label string) Source {
	number, name, _ := strings.Cut(label, " ")
	if irq, err := strconv.Atoi(number); err == nil {
		return Source{Kind: results.Interrupt, Name: name, IRQ: &irq}
	}
	if label == localTimerLabel {
		return Source{Kind: results.Tick, Name: localTimer}
	}
	for _, i := range ipis() {
		if i.label == label {
			return Source{Kind: results.IPI, Name: i.name}
		}
	}
	if strings.HasPrefix(label, "IPI") { // arch/arm64/kernel/smp.c
		return Source{Kind: results.IPI, Name: label}
	}
	return Source{Kind: results.Interrupt, Name: label}
}

// tickDependency says why a tick cannot stop, by TICK_DEP_BIT_* of include/linux/tick.h.
func tickDependency(mask uint64) string {
	var found []string
	for bit, name := range []string{"POSIX CPU timers", "perf events", "more than one task to run",
		"an unstable clock", "RCU", "expedited RCU"} {
		if mask&(1<<bit) != 0 {
			found = append(found, name)
		}
	}
	return strings.Join(found, ", ")
}

// hierarchy returns where the cgroups with the cpuset controller are, and whether they are of v1.
func hierarchy(root fs.FS) (dir string, v1 bool, err error) {
	mounted, err := cgroup.Mounted(root)
	dir, v2 := mounted.Cpuset()
	if err == nil && dir == "" {
		err = errors.New("/proc/self/mounts: expected cgroup v2, or v1 with the cpuset controller")
	}
	return dir, !v2, err
}

// ownThreads returns a function that reports whether a task is in an own cgroup, or below one, and on a CPU
// where it belongs.
func (t *Trace) ownThreads() func(tid, cpu int) bool {
	of := map[int]int{} // by thread ID: the cgroup
	for group, dir := range t.own.Cgroups {
		tids, _ := cgroup.Threads(t.root, dir)
		for _, tid := range tids {
			of[tid] = group
		}
	}
	return func(tid, cpu int) bool {
		group, own := of[tid]
		return own && t.own.belongs(group, cpu)
	}
}
