package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// TaskTarget names a task for a step of kind task, so that another task that got the
// same number later is not taken for it. Start is field 22 of /proc/PID/stat.
func TaskTarget(tid int, start uint64) string { return fmt.Sprintf("%d:%d", tid, start) }

// StartTime reads when a task started, in clock ticks after boot: field 22 of /proc/PID/stat
// (proc_pid_stat(5)).
func StartTime(tid int) (uint64, error) {
	s, err := statOf(tid)
	return s.Start, err
}

// find returns the id of the task that target names, or fs.ErrNotExist when it has ended.
func find(target string) (int, error) {
	id, start, _ := strings.Cut(target, ":")
	tid, err := strconv.Atoi(id)
	if err != nil {
		return 0, fmt.Errorf("%q: expected tid:start", target)
	}
	now, err := StartTime(tid)
	if err != nil {
		return 0, err
	}
	if strconv.FormatUint(now, 10) != start {
		return 0, fs.ErrNotExist
	}
	return tid, nil
}

// task is the CPU affinity of one task, as a cpulist.
type task struct{}

func (task) Check(s Step) error {
	_, err := cpuset.Parse(s.After)
	_, berr := cpuset.Parse(s.Before)
	return errors.Join(checkTask(s.Target), err, berr)
}

func checkTask(target string) error {
	id, start, ok := strings.Cut(target, ":")
	_, err := strconv.ParseUint(id, 10, 31)
	_, serr := strconv.ParseUint(start, 10, 64)
	if err = errors.Join(err, serr); err != nil || !ok {
		return fmt.Errorf("%q: expected tid:start", target)
	}
	return nil
}

func (task) Read(_ context.Context, s Step) (string, error) {
	tid, err := find(s.Target)
	if err != nil {
		return "", err
	}
	may, err := Affinity(tid)
	return may.String(), err
}

// Affinity returns the CPUs that a thread may use (sched_getaffinity(2)), of 8192 at most.
func Affinity(tid int) (cpuset.Set, error) {
	var mask [1024 / 8 * 8]byte
	n, err := schedGetaffinity(tid, mask[:])
	if err != nil {
		return cpuset.Set{}, err
	}
	var cpus []int
	for c := range n * 8 {
		if mask[c/8]&(1<<(c%8)) != 0 {
			cpus = append(cpus, c)
		}
	}
	return cpuset.Of(cpus...), nil
}

// Restores lets a task have its own CPUs back that has been given all: so does the kernel with its threads when a
// cpuset changes.
func (task) Restores(s Step, now string) bool {
	before, err := cpuset.Parse(s.Before)
	wide, werr := cpuset.Parse(now)
	return errors.Join(err, werr) == nil && before.IsSubsetOf(wide)
}

func (task) Write(_ context.Context, s Step, value string) error {
	tid, err := find(s.Target)
	if err != nil {
		return err
	}
	set, err := cpuset.Parse(value)
	if err != nil {
		return err
	}
	return SetAffinity(tid, set)
}

// SetAffinity lets a thread use only these CPUs (sched_setaffinity(2)), of any number.
func SetAffinity(tid int, set cpuset.Set) error {
	var mask [1024 / 8 * 8]byte
	for c := range set.All() {
		mask[c/8] |= 1 << (c % 8)
	}
	return schedSetaffinity(tid, mask[:])
}

// ResetAffinity lets a thread use every CPU of its cpuset, also those that this gets later.
func ResetAffinity(tid int) error {
	return SetAffinity(tid, cpuset.MustParse(fmt.Sprintf("0-%d", cpuset.Max)))
}

// kernelThread says whether a process has no memory of its own: /proc/PID/exe of a kernel thread
// cannot be read, and its command line is empty.
func kernelThread(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(line) > 0 {
		return false
	}
	_, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err != nil
}
