package witness

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/results"
)

// counts are numbers by source and CPU, as in /proc/interrupts and /proc/softirqs.
type counts map[string]map[int]uint64

// parseCounts reads a table whose head names the CPUs. A row counts only where it has a number for
// each of them: shorter ones, such as ERR and MIS, are totals of the machine. A row whose label is
// only a number takes the text at its end as part of its name: "31 virtio0-req.0".
func parseCounts(text string) (counts, error) {
	lines := strings.Split(text, "\n")
	var cpus []int
	for _, f := range strings.Fields(lines[0]) {
		id, err := strconv.Atoi(strings.TrimPrefix(f, "CPU"))
		if err != nil || !strings.HasPrefix(f, "CPU") || id < 0 || id > cpuset.Max {
			return nil, fmt.Errorf("expected a head of CPUs, found %q", f)
		}
		cpus = append(cpus, id)
	}
	if len(cpus) == 0 {
		return nil, errors.New("expected a head of CPUs, found nothing")
	}
	all := counts{}
	for _, line := range lines[1:] {
		label, rest, ok := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if !ok || len(fields) < len(cpus) {
			continue
		}
		n := numbers{}
		row := map[int]uint64{}
		for i, cpu := range cpus {
			row[cpu] = n.parse(fields[i], 64)
		}
		label = strings.TrimSpace(label)
		if n.err != nil || total(label) {
			continue
		}
		if _, err := strconv.Atoi(label); err == nil {
			label = strings.TrimSpace(label + " " + source(fields[len(cpus):]))
		}
		all[label] = row
	}
	return all, nil
}

// total says whether a row is of the whole machine, which on one CPU only its label tells.
func total(label string) bool { return label == "ERR" || label == "MIS" || label == "Err" }

// source is who handles an interrupt, from the text behind its counts: the controller, its
// interrupt number and trigger ("IO-APIC 4-edge", "GICv3 27 Level"), and then the names of the
// actions. Without a trigger it is the last word.
func source(words []string) string {
	for i, w := range words {
		w = w[strings.LastIndexByte(w, '-')+1:]
		if i+1 < len(words) && (w == "edge" || w == "level" || w == "fasteoi" || w == "Edge" || w == "Level") {
			return strings.Join(words[i+1:], " ")
		}
	}
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

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

func onlineCPUs(root fs.FS) (cpuset.Set, error) {
	return readAs(root, "sys/devices/system/cpu/online", cpuset.Parse)
}

type cpuTimes struct{ idle, steal ticks }

// parseCPUTimes reads idle (with iowait) and steal time by CPU from /proc/stat (proc_stat(5)).
func parseCPUTimes(text string) (map[int]cpuTimes, error) {
	all := map[int]cpuTimes{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		if len(f) < 9 {
			return nil, fmt.Errorf("%s: expected at least 8 times, found %d", f[0], len(f)-1)
		}
		n := numbers{}
		id := n.int(f[0][len("cpu"):])
		idle, iowait, steal := ticks(n.parse(f[4], 61)), ticks(n.parse(f[5], 61)), ticks(n.parse(f[8], 61))
		if n.err != nil {
			return nil, fmt.Errorf("%s: %w", f[0], n.err)
		}
		all[id] = cpuTimes{idle: idle + iowait, steal: steal}
	}
	if len(all) == 0 {
		return nil, errors.New("expected lines cpu0, cpu1 and so on, found none")
	}
	return all, nil
}

// counters are what the kernel counts by CPU, at one moment.
type counters struct {
	interrupts, softirqs counts
	times                map[int]cpuTimes
}

func readCounters(root fs.FS) (c counters, err error) {
	if c.interrupts, err = readAs(root, "proc/interrupts", parseCounts); err != nil {
		return c, err
	}
	if c.softirqs, err = readAs(root, "proc/softirqs", parseCounts); err != nil {
		return c, err
	}
	c.times, err = readAs(root, "proc/stat", parseCPUTimes)
	return c, err
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
			Steal:           c.times[id].steal.since(before.times[id].steal),
			Idle:            c.times[id].idle.since(before.times[id].idle),
		}
		for _, n := range cpu.InterruptSource {
			cpu.Interrupts += n
		}
		all = append(all, cpu)
	}
	return all
}
