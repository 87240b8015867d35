package witness

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/results"
)

// userHZ is the unit of times in /proc: fixed to 100 for all programs (proc_pid_stat(5)).
const userHZ = 100

const tick = results.Nanoseconds(1e9 / userHZ)

// taskStat is what is read of /proc/PID/stat or /proc/PID/task/TID/stat.
type taskStat struct {
	comm    string
	state   byte
	parent  int
	cpuTime results.Nanoseconds // user and system, with ended children
	lastCPU int
}

// parseTaskStat reads fields 2, 3, 4, 14-17 and 39 of proc_pid_stat(5). The name may hold spaces
// and parentheses.
func parseTaskStat(text string) (taskStat, error) {
	from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return taskStat{}, errors.New("expected a name in parentheses")
	}
	f := strings.Fields(text[to+1:])
	if len(f) < 37 {
		return taskStat{}, fmt.Errorf("expected at least 39 fields, found %d after the name", len(f))
	}
	s := taskStat{comm: text[from+1 : to], state: f[0][0]}
	var err error
	if s.parent, err = strconv.Atoi(f[1]); err != nil {
		return s, err
	}
	for _, field := range f[11:15] {
		ticks, err := strconv.ParseInt(field, 10, 48)
		if err != nil {
			return s, err
		}
		s.cpuTime += results.Nanoseconds(ticks) * tick
	}
	if s.lastCPU, err = strconv.Atoi(f[36]); err != nil || s.lastCPU < 0 || s.lastCPU > cpuset.Max {
		return s, fmt.Errorf("field 39: expected a CPU, found %q", f[36])
	}
	return s, nil
}

// parseSwitches reads the context switches of /proc/PID/task/TID/status.
func parseSwitches(text string) (voluntary, involuntary uint64) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		if err != nil {
			continue
		}
		switch key {
		case "voluntary_ctxt_switches":
			voluntary = n
		case "nonvoluntary_ctxt_switches":
			involuntary = n
		}
	}
	return voluntary, involuntary
}

// counts are numbers by source and CPU, as in /proc/interrupts and /proc/softirqs.
type counts map[string]map[int]uint64

// parseCounts reads a table whose head names the CPUs. Rows may have fewer columns than the head,
// and text behind them, which becomes part of the name where the row's label is only a number.
func parseCounts(text string) counts {
	lines := strings.Split(text, "\n")
	var cpus []int
	for _, f := range strings.Fields(lines[0]) {
		id, err := strconv.Atoi(strings.TrimPrefix(f, "CPU"))
		if err != nil || !strings.HasPrefix(f, "CPU") || id < 0 || id > cpuset.Max {
			return nil
		}
		cpus = append(cpus, id)
	}
	all := counts{}
	for _, line := range lines[1:] {
		label, rest, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		row := map[int]uint64{}
		used := 0
		for i, f := range fields {
			n, err := strconv.ParseUint(f, 10, 64)
			if err != nil || i >= len(cpus) {
				break
			}
			row[cpus[i]] = n
			used++
		}
		name := strings.TrimSpace(label)
		if _, err := strconv.Atoi(name); err == nil && used < len(fields) {
			name += " " + fields[len(fields)-1]
		}
		all[name] = row
	}
	return all
}

// since subtracts an earlier reading; sources that did not fire are left out.
func (c counts) since(before counts) counts {
	delta := counts{}
	for name, row := range c {
		for cpu, n := range row {
			if was := before[name][cpu]; n > was {
				if delta[name] == nil {
					delta[name] = map[int]uint64{}
				}
				delta[name][cpu] = n - was
			}
		}
	}
	return delta
}

// on returns the counts of one CPU.
func (c counts) on(cpu int) map[string]uint64 {
	found := map[string]uint64{}
	for name, row := range c {
		if row[cpu] > 0 {
			found[name] = row[cpu]
		}
	}
	return found
}

type cpuTimes struct{ idle, steal results.Nanoseconds }

// parseStat reads idle (with iowait) and steal time by CPU from /proc/stat (proc_stat(5)).
func parseStat(text string) map[int]cpuTimes {
	all := map[int]cpuTimes{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		id, err := strconv.Atoi(f[0][3:])
		if err != nil {
			continue
		}
		var t cpuTimes
		for i, into := range map[int]*results.Nanoseconds{4: &t.idle, 5: &t.idle, 8: &t.steal} {
			if n, err := strconv.ParseInt(f[i], 10, 48); err == nil {
				*into += results.Nanoseconds(n) * tick
			}
		}
		all[id] = t
	}
	return all
}

// tids returns the threads of a process; none when it has ended.
func tids(pid int) []int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	var ids []int
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func readTask(path string) (taskStat, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return taskStat{}, err
	}
	return parseTaskStat(string(data))
}

// tree returns the processes that descend from root, with root.
func tree(root int) map[int]taskStat {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := map[int]taskStat{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := readTask(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
			all[pid] = s
		}
	}
	in := map[int]taskStat{}
	if s, ok := all[root]; ok {
		in[root] = s
	}
	for grown := true; grown; {
		grown = false
		for pid, s := range all {
			if _, known := in[pid]; known {
				continue
			}
			if _, child := in[s.parent]; child {
				in[pid] = s
				grown = true
			}
		}
	}
	return in
}

func readText(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}
