package witness

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/host"
)

// softirqs are the names that /proc/softirqs has, by vector (include/linux/interrupt.h).
func softirqs() []string {
	return []string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}
}

// ipis are the interprocessor interrupts, by the numbers that bpf/trace.c gives them, with the labels
// of /proc/interrupts (arch/x86/kernel/irq.c), where one stands for both calls.
func ipis() []struct{ name, label string } {
	return []struct{ name, label string }{
		{"reschedule", "RES"}, {"call function", "CAL"}, {"call function single", ""},
		{"irq work", "IWI"}, {"x86 platform", "PLT"}, {"call function, TLB shootdown", "TLB"},
	}
}

const localTimer, localTimerLabel = "local timer", "LOC"

// interruptSource says what a row of /proc/interrupts is, from what parseCounts makes of its label.
func interruptSource(label string) Source {
	number, name, _ := strings.Cut(label, " ")
	if irq, err := strconv.Atoi(number); err == nil {
		return Source{Kind: Interrupt, Name: name, IRQ: &irq}
	}
	if label == localTimerLabel {
		return Source{Kind: Tick, Name: localTimer}
	}
	for _, i := range ipis() {
		if i.label == label {
			return Source{Kind: IPI, Name: i.name}
		}
	}
	if strings.HasPrefix(label, "IPI") { // arch/arm64/kernel/smp.c
		return Source{Kind: IPI, Name: label}
	}
	return Source{Kind: Interrupt, Name: label}
}

// tickDependency names why a tick cannot stop, TICK_DEP_BIT_* of include/linux/tick.h.
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

// hierarchy returns where the cgroups of the cpuset controller are, and whether it is one of v1.
func hierarchy(root fs.FS) (mount string, v1 bool, err error) {
	c := host.Cgroups(root)
	switch {
	case c.CpusetV1 != nil:
		return *c.CpusetV1, true, nil
	case c.Unified != nil:
		return *c.Unified, false, nil
	}
	return "", false, errors.New("/proc/self/mounts: expected cgroup v2, or v1 with the cpuset controller")
}

// ownThreads returns the thread ids of all tasks in the own cgroups and those below.
func (t *Trace) ownThreads() map[int]bool {
	own := map[int]bool{}
	for _, dir := range t.own.Cgroups {
		_ = fs.WalkDir(t.root, strings.TrimPrefix(dir, "/"), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // a cgroup that has gone has no threads
			}
			if base := path.Base(name); d.IsDir() || base != "cgroup.threads" && base != "tasks" {
				return nil
			}
			text, err := fs.ReadFile(t.root, name)
			for id := range strings.FieldsSeq(string(text)) {
				if tid, wrong := strconv.Atoi(id); err == nil && wrong == nil {
					own[tid] = true
				}
			}
			return nil
		})
	}
	return own
}

// cgroupOf returns the path of a thread's cgroup, "" where it has ended.
func cgroupOf(root fs.FS, tid int) string {
	p, _ := readAs(root, processDir(tid)+"/cgroup", parseCgroup)
	return p
}

// parseCgroup reads /proc/PID/cgroup (cgroups(7)): the path in the v1 hierarchy of the cpuset
// controller, or else that of v2.
func parseCgroup(text string) (string, error) {
	var unified string
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			return "", fmt.Errorf("expected ID:CONTROLLERS:PATH, found %q", line)
		}
		if slices.Contains(strings.Split(f[1], ","), "cpuset") {
			return f[2], nil
		}
		if f[0] == "0" {
			unified = f[2]
		}
	}
	return unified, nil
}
