package witness

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/results"
)

// ticks count time in units of 1/USER_HZ, which is 1/100 s for all programs (proc_pid_stat(5)).
type ticks uint64

const tick = results.Nanoseconds(1e9 / 100)

// duration is at most what fits, 292 years.
func (t ticks) duration() results.Nanoseconds {
	return results.Nanoseconds(min(t, ticks(math.MaxInt64/tick))) * tick
}

// since is the time from an earlier reading, 0 where the count ran backwards.
func (t ticks) since(before ticks) results.Nanoseconds {
	if t < before {
		return 0
	}
	return (t - before).duration()
}

// task identifies a thread or process. Ids are used again, with the start time they are unique.
type task struct {
	id    int
	start ticks // since boot
}

func taskOf(s host.TaskStat) task { return task{s.ID, ticks(s.Start)} }

// numbers parses unsigned numbers and keeps the first error.
type numbers struct{ err error }

func (n *numbers) parse(text string, bits int) uint64 {
	v, err := strconv.ParseUint(text, 10, bits)
	if n.err == nil {
		n.err = err
	}
	return v
}

func (n *numbers) int(text string) int { return int(n.parse(text, 31)) }

// switches are context switches of a thread.
type switches struct{ voluntary, involuntary uint64 }

// taskStatus is what is read of /proc/PID/task/TID/status (proc_pid_status(5)).
type taskStatus struct {
	switches
	allowed cpuset.Set // the CPUs that it may use
}

func parseStatus(text string) (s taskStatus, err error) {
	n, found := numbers{}, 0
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "Cpus_allowed_list":
			s.allowed, err = cpuset.Parse(value)
			found++
		case "voluntary_ctxt_switches":
			s.voluntary = n.parse(value, 64)
			found++
		case "nonvoluntary_ctxt_switches":
			s.involuntary = n.parse(value, 64)
			found++
		}
	}
	if found != 3 {
		err = errors.New("expected Cpus_allowed_list, voluntary_ctxt_switches and nonvoluntary_ctxt_switches")
	}
	return s, errors.Join(err, n.err)
}

// parseSchedstat reads for how long and how often a thread was on a CPU, from
// /proc/PID/task/TID/schedstat (Documentation/scheduler/sched-stats.rst).
func parseSchedstat(text string) (ran results.Nanoseconds, runs uint64, err error) {
	f := strings.Fields(text)
	if len(f) < 3 {
		return 0, 0, fmt.Errorf("expected 3 fields, found %d", len(f))
	}
	n := numbers{}
	ran, runs = results.Nanoseconds(n.parse(f[0], 63)), n.parse(f[2], 64)
	return ran, runs, n.err
}

// ids returns the entries of a directory whose names are numbers: processes in proc, threads in
// proc/PID/task. None when the directory is gone.
func ids(root fs.FS, dir string) []int {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil && id > 0 {
			found = append(found, id)
		}
	}
	return found
}

func processDir(pid int) string { return "proc/" + strconv.Itoa(pid) }

func threadDir(pid, tid int) string { return fmt.Sprintf("proc/%d/task/%d", pid, tid) }

// readTask reads the stat file of a process or thread; the error says that it is gone, too.
func readTask(root fs.FS, dir string) (host.TaskStat, error) {
	return readAs(root, dir+"/stat", parseTaskStat)
}

func parseTaskStat(text string) (host.TaskStat, error) {
	t, err := host.ParseStat(text)
	if err == nil && (t.Processor < 0 || t.Processor > cpuset.Max) {
		err = fmt.Errorf("field 39: expected a CPU, found %d", t.Processor)
	}
	return t, err
}

// readAs reads and parses one file; the error names it.
func readAs[T any](root fs.FS, path string, parse func(string) (T, error)) (T, error) {
	text, err := fs.ReadFile(root, path)
	if err != nil {
		var none T
		return none, err
	}
	v, err := parse(string(text))
	if err != nil {
		return v, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}
