package change

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

// Affinity returns the CPUs that a thread may use (sched_getaffinity(2)).
func Affinity(tid int) (cpuset.Set, error) {
	mask := unix.NewCPUSet(cpuset.Max + 1)
	if err := unix.SchedGetaffinityDynamic(tid, mask); err != nil {
		return cpuset.Set{}, err
	}
	var cpus []int
	for i, word := range mask {
		for rest := uint64(word); rest != 0; rest &= rest - 1 {
			cpus = append(cpus, i*64+bits.TrailingZeros64(rest))
		}
	}
	return cpuset.Of(cpus...), nil
}

// SetAffinity lets a thread use only these CPUs (sched_setaffinity(2)).
func SetAffinity(tid int, set cpuset.Set) error {
	mask := unix.NewCPUSet(cpuset.Max + 1)
	for c := range set.All() {
		mask.Set(c)
	}
	return unix.SchedSetaffinityDynamic(tid, mask)
}

// ResetAffinity lets a thread use every CPU of its cpuset, also those that this gets later.
func ResetAffinity(tid int) error {
	mask := unix.NewCPUSet(cpuset.Max + 1)
	mask.Fill()
	return unix.SchedSetaffinityDynamic(tid, mask)
}

// StartTime reads when a task started, in clock ticks after boot: field 22 of /proc/PID/stat
// (proc_pid_stat(5)).
func StartTime(tid int) (uint64, error) {
	s, err := statOf(tid)
	return s.Start, err
}

// statOf reads what /proc/PID/stat says of a task; fs.ErrNotExist when it has ended.
func statOf(tid int) (host.TaskStat, error) {
	path := fmt.Sprintf("/proc/%d/stat", tid)
	data, err := os.ReadFile(path)
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return host.TaskStat{}, err
	}
	s, err := host.ParseStat(string(data))
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return s, err
}

// ended makes the end of a task fs.ErrNotExist.
func ended(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return fs.ErrNotExist
	}
	return err
}

// threads are those of a process; none when it has ended.
func threads(pid int) []int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	var tids []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
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
