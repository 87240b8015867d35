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

// parseCounts reads a table whose header names the CPUs. It ignores rows with fewer numbers, such as ERR and
// MIS, which are totals of the machine. If the label of a row is only a number, the text at the row's end is
// added to its name: "31 virtio0-req.0".
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

// total reports whether a row is a total of the machine. With one CPU only its label shows that.
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
}

func readCounters(root fs.FS) (c counters, err error) {
	if c.interrupts, err = readAs(root, "proc/interrupts", parseCounts); err != nil {
		return c, err
	}
	if c.softirqs, err = readAs(root, "proc/softirqs", parseCounts); err != nil {
		return c, err
	}
	c.times, err = host.CPUTimes(root)
	return c, err
}

// since subtracts an earlier reading. Idle time and iowait sometimes run backwards (proc_stat(5)): then the
// result is 0.
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
		}
		for _, n := range cpu.InterruptSource {
			cpu.Interrupts += n
		}
		all = append(all, cpu)
	}
	return all
}

// power is a CPU's clock, how often and from how deep it has woken, and how often its heat has slowed it
// down. What the kernel does not report is 0: a virtual machine has few of these files.
type power struct {
	kilohertz uint64 // from cpufreq
	exits     uint64 // from idle states
	exit      uint64 // their total latency, µs
	throttled uint64
}

// readPower reads tens of files per CPU, so it is called only for the measured ones.
func readPower(root fs.FS, cpus cpuset.Set) map[int]power {
	all := map[int]power{}
	for id := range cpus.All() {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", id)
		p := power{kilohertz: number(root, dir+"cpufreq/scaling_cur_freq"),
			throttled: number(root, dir+"thermal_throttle/core_throttle_count") +
				number(root, dir+"thermal_throttle/package_throttle_count")}
		states, _ := fs.Glob(root, dir+"cpuidle/state[0-9]*") // the pattern is well formed
		for _, state := range states {
			usage := number(root, state+"/usage")
			p.exits += usage
			p.exit += usage * number(root, state+"/latency")
		}
		all[id] = p
	}
	return all
}

// number reads a number; 0 if there is none.
func number(root fs.FS, path string) uint64 {
	text, _ := fs.ReadFile(root, path)
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// addTo adds to a CPU what has changed since an earlier reading; 0 if a counter ran backwards.
func (p power) addTo(cpu *results.CPU, before power) {
	cpu.Frequency, cpu.IdleExits = p.kilohertz, p.exits-min(p.exits, before.exits)
	cpu.IdleExit = results.Nanoseconds(1000 * (p.exit - min(p.exit, before.exit)))
	cpu.Throttled = p.throttled - min(p.throttled, before.throttled)
}
