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
	c.kilohertz = map[int]uint64{}
	for id := range c.times {
		text, ferr := fs.ReadFile(root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", id))
		if ferr != nil {
			continue // a virtual machine has none
		}
		c.kilohertz[id], _ = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	}
	return c, nil
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
		}
		for _, n := range cpu.InterruptSource {
			cpu.Interrupts += n
		}
		all = append(all, cpu)
	}
	return all
}
