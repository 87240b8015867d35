package witness

import (
	"fmt"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// How often /proc/schedstat is read, which is large on large machines: once in so many readings.
const domainsEvery = 10

// balancing says what to do about the softirq SCHED on a CPU, in which the kernel balances: for the CPU itself,
// or where it is idle for all others (kernel/sched/fair.c, "NOHZ idle load balancing").
func (t *Trace) balancing(cpu int) string {
	with, known := t.domains[cpu]
	online, err := onlineCPUs(t.root)
	tickless, _ := readAs(t.root, "sys/devices/system/cpu/nohz_full", cpuset.Parse) // none: no such kernel
	_, v1, _ := hierarchy(t.root)
	switch {
	case known && with.IsEmpty() && v1:
		return "idle, it balances for other CPUs, since it was idle when it was isolated: boot with nohz_full for it"
	case known && with.IsEmpty():
		return "idle, it balances for other CPUs, since it was idle when it was isolated: release the lane and apply it again, or boot with nohz_full for it"
	case known && err == nil && with.IsSubsetOf(t.cpus) && !online.IsSubsetOf(t.cpus) && tickless.Contains(cpu):
		return "its lane's CPUs are balanced: spec.cpus.balance false ends that"
	case known && err == nil && with.IsSubsetOf(t.cpus) && !online.IsSubsetOf(t.cpus):
		return "its lane's CPUs are balanced, and while idle it does so for others: boot with nohz_full for it, or spec.cpus.balance false"
	}
	return remedies().find(Softirq, sched, 0)
}

// lookAtDomains reads who is balanced with whom, now and then, if that is asked at all.
func (t *Trace) lookAtDomains(all []Source) {
	asked := false
	for _, s := range all {
		asked = asked || s.Kind == Softirq && s.Name == sched
	}
	if !asked {
		return
	}
	if t.looked%domainsEvery == 0 {
		t.domains, _ = readAs(t.root, "proc/schedstat", parseDomains) // without CONFIG_SCHEDSTATS nothing is known
	}
	t.looked++
}

const sched = "SCHED"

// parseDomains returns for each CPU of /proc/schedstat (Documentation/scheduler/sched-stats.rst) those that the
// scheduler balances it with, of its widest domain: of an isolated one none.
func parseDomains(text string) (map[int]cpuset.Set, error) {
	all := map[int]cpuset.Set{}
	cpu := -1
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		if number, ok := strings.CutPrefix(f[0], "cpu"); ok {
			id, err := strconv.Atoi(number)
			if err != nil || id < 0 {
				return nil, fmt.Errorf("expected cpuN, found %q", f[0])
			}
			cpu, all[id] = id, cpuset.Set{}
		}
		if !strings.HasPrefix(f[0], "domain") || cpu < 0 {
			continue
		}
		mask, err := cpuset.ParseMask(f[1])
		if err != nil && len(f) > 2 { // version 17 puts the domain's name first
			mask, err = cpuset.ParseMask(f[2])
		}
		if err != nil {
			return nil, err
		}
		all[cpu] = all[cpu].Union(mask)
	}
	return all, nil
}
