package witness

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/results"
)

// domainsEvery is how many readings pass until /proc/schedstat is read again: it is large on large machines.
const domainsEvery = 10

// balance knows with which CPUs the scheduler balances each CPU, and what else decides whether it does.
type balance struct {
	looked   int                // how often look was called
	domains  map[int]cpuset.Set // nil: unknown
	online   cpuset.Set
	tickless cpuset.Set // nohz_full
	v1       bool       // cpusets are of cgroup v1
}

func newBalance(root fs.FS) (b balance) {
	b.tickless, _ = cpuset.Read(root, "sys/devices/system/cpu/nohz_full") // none without CONFIG_NO_HZ_FULL
	return b
}

// look reads again now and then, if the sources need it at all.
func (b *balance) look(root fs.FS, all []Source) {
	if !slices.ContainsFunc(all, func(s Source) bool { return s.Kind == results.Softirq && s.Name == sched }) {
		return
	}
	if b.looked%domainsEvery == 0 {
		b.domains, _ = readAs(root, "proc/schedstat", parseDomains) // none without CONFIG_SCHEDSTATS
		b.online, _ = host.Online(root)
		_, b.v1, _ = hierarchy(root)
	}
	b.looked++
}

// remedy says what to do about the softirq SCHED on a watched CPU. In it the kernel balances for the CPU
// itself, or while that idles, for all others (kernel/sched/fair.c, "NOHZ idle load balancing").
func (b *balance) remedy(cpu int, watched cpuset.Set) string {
	with, known := b.domains[cpu]
	among := known && with.IsSubsetOf(watched) && !b.online.IsSubsetOf(watched)
	const helps = "idle, it balances for other CPUs, since it was idle when it was isolated: "
	switch {
	case known && with.IsEmpty() && b.v1:
		return helps + "boot with nohz_full for it"
	case known && with.IsEmpty():
		return helps + "release the lane and apply it again, or boot with nohz_full for it"
	case among && b.tickless.Contains(cpu):
		return "its lane's CPUs are balanced: spec.cpus.balance false ends that"
	case among:
		return "its lane's CPUs are balanced, and while idle it does so for others: " +
			"boot with nohz_full for it, or spec.cpus.balance false"
	}
	return remedies().find(results.Softirq, sched, 0)
}

const sched = "SCHED"

// tick says the same about the local timer's interrupt; "" if nothing is special about the CPU.
func (b *balance) tick(cpu int) string {
	if !b.tickless.Contains(cpu) {
		return ""
	}
	return "the CPU is in nohz_full: what fires are timers, also those of the lane's own programs; " +
		"keep a single task on it"
}

// parseDomains returns, for each CPU of /proc/schedstat (Documentation/scheduler/sched-stats.rst), the CPUs
// of its widest scheduling domain; none for an isolated CPU.
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
