package witness

import (
	"cmp"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/results"
)

// counts are numbers by source and CPU, as in /proc/interrupts and /proc/softirqs.
type counts map[string]map[int]uint64

// parseCounts reads a table whose head names the CPUs. A row counts only where it has a number for
// each of them: shorter ones, such as ERR and MIS, are totals of the machine. A row whose label is
// only a number takes the text at its end as part of its name: "31 virtio0-req.0".
func parseCounts(text string) (counts, error) {
	head, rows, _ := strings.Cut(text, "\n")
	table, err := host.ParseCountHead(head)
	if err != nil {
		return nil, err
	}
	all := counts{}
	for line := range strings.SplitSeq(rows, "\n") {
		row, ok := table.Row(line)
		if !ok || len(row.Counts) < len(table.CPUs) || total(row.Label) {
			continue
		}
		if _, err := strconv.Atoi(row.Label); err == nil {
			chip, actions := row.Source()
			row.Label = strings.TrimSpace(row.Label + " " + cmp.Or(actions, chip))
		}
		on := map[int]uint64{}
		for column, cpu := range table.CPUs {
			on[cpu] = row.Counts[column]
		}
		all[row.Label] = on
	}
	return all, nil
}

// total says whether a row is of the whole machine, which on one CPU only its label tells.
func total(label string) bool { return label == "ERR" || label == "MIS" || label == "Err" }

// since subtracts an earlier reading and returns, for one CPU, the sources that fired.
func (c counts) since(before counts, cpu int) map[string]uint64 {
	fired := map[string]uint64{}
	for name, row := range c {
		if now, was := row[cpu], before[name][cpu]; now > was {
			fired[name] = now - was
		}
	}
	return fired
}

// counters are what the kernel counts by CPU, at one moment.
type counters struct {
	interrupts, softirqs counts
	times                map[int]host.CPUTime
	kilohertz            map[int]uint64 // as cpufreq says; none where it does not
	exits                map[int]uint64 // from idle states
	exit                 map[int]uint64 // their latencies together, µs
	throttled            map[int]uint64
}

func readCounters(root fs.FS) (c counters, err error) {
	if c.interrupts, err = readAs(root, "proc/interrupts", parseCounts); err != nil {
		return c, err
	}
	if c.softirqs, err = readAs(root, "proc/softirqs", parseCounts); err != nil {
		return c, err
	}
	if c.times, err = host.CPUTimes(root); err != nil {
		return c, err
	}
	c.kilohertz, c.throttled = map[int]uint64{}, map[int]uint64{}
	c.exits, c.exit = map[int]uint64{}, map[int]uint64{}
	for id := range c.times {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", id)
		c.kilohertz[id] = number(root, dir+"cpufreq/scaling_cur_freq")
		c.throttled[id] = number(root, dir+"thermal_throttle/core_throttle_count") +
			number(root, dir+"thermal_throttle/package_throttle_count")
		states, _ := fs.Glob(root, dir+"cpuidle/state[0-9]*") // the pattern is well formed
		for _, state := range states {
			usage := number(root, state+"/usage")
			c.exits[id] += usage
			c.exit[id] += usage * number(root, state+"/latency")
		}
	}
	return c, nil
}

// number reads one, 0 where there is none: a virtual machine has few of these files.
func number(root fs.FS, path string) uint64 {
	text, _ := fs.ReadFile(root, path)
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// more is by how much a count has grown, 0 where it ran backwards, as when its driver was changed.
func more(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// since subtracts an earlier reading. The kernel lets idle time and iowait run backwards at times
// (proc_stat(5)): that is 0 here.
func (c counters) since(before counters, on cpuset.Set, switches map[int]uint64) []results.CPU {
	var all []results.CPU
	for id := range on.All() {
		cpu := results.CPU{
			ID:              id,
			InterruptSource: c.interrupts.since(before.interrupts, id),
			Softirqs:        c.softirqs.since(before.softirqs, id),
			ContextSwitches: switches[id],
			Steal:           ticks(c.times[id].Steal).since(ticks(before.times[id].Steal)),
			Idle:            ticks(c.times[id].Idle).since(ticks(before.times[id].Idle)),
			Frequency:       c.kilohertz[id],
			IdleExits:       more(c.exits[id], before.exits[id]),
			IdleExit:        results.Nanoseconds(1000 * more(c.exit[id], before.exit[id])),
			Throttled:       more(c.throttled[id], before.throttled[id]),
		}
		for _, n := range cpu.InterruptSource {
			cpu.Interrupts += n
		}
		all = append(all, cpu)
	}
	return all
}
