package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
)

// TaskTarget names a task for a step of kind task, so that another task that got the
// same number later is not taken for it. Start is field 22 of /proc/PID/stat.
func TaskTarget(tid int, start uint64) string { return fmt.Sprintf("%d:%d", tid, start) }

// StartTime reads when a task started, in clock ticks after boot: field 22 of /proc/PID/stat
// (proc_pid_stat(5)).
func StartTime(tid int) (uint64, error) {
	path := fmt.Sprintf("/proc/%d/stat", tid)
	data, err := os.ReadFile(path)
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return 0, err
	}
	_, rest, ok := bytes.Cut(data[max(0, bytes.LastIndexByte(data, ')')):], []byte(" "))
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 20 {
		return 0, fmt.Errorf("%s: expected at least 22 fields", path)
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
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

func (task) Read(_ context.Context, s Step) (string, error) {
	tid, err := find(s.Target)
	if err != nil {
		return "", err
	}
	var mask [1024 / 8 * 8]byte // 8192 CPUs
	n, err := schedGetaffinity(tid, mask[:])
	if err != nil {
		return "", err
	}
	var cpus []int
	for c := range n * 8 {
		if mask[c/8]&(1<<(c%8)) != 0 {
			cpus = append(cpus, c)
		}
	}
	return cpuset.Of(cpus...).String(), nil
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
	return setAffinity(tid, set)
}

func setAffinity(tid int, set cpuset.Set) error {
	var mask [1024 / 8 * 8]byte
	for c := range set.All() {
		mask[c/8] |= 1 << (c % 8)
	}
	return schedSetaffinity(tid, mask[:])
}

// processes are those in a cgroup that was made for them: "running" or "". They are started by a
// runtime and recorded by Adopt; undo kills them all, also the children of one that died.
type processes struct{}

// Running is the value of a processes step while there are any.
const Running = "running"

func (processes) Read(_ context.Context, s Step) (string, error) {
	pids, err := members(s.Target)
	if err != nil || len(pids) == 0 {
		return "", err
	}
	return Running, nil
}

func (p processes) Write(ctx context.Context, s Step, value string) error {
	if value != "" {
		return errors.New("processes are started by their runtime, not by the journal")
	}
	errAlive := errors.New("processes still there after SIGKILL")
	return retry(ctx, 5*time.Second, errAlive, func() error {
		pids, err := members(s.Target)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		return errAlive
	})
}

// tasks is where the processes of a cgroup are: Target is the cgroup that they are to leave,
// After the one that takes them. Kernel threads stay: their affinity is theirs (kind task).
type tasks struct{}

func (tasks) Read(_ context.Context, s Step) (string, error) {
	pids, err := members(s.After)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(pids) == 0 {
		return s.Target, nil
	}
	return s.After, err
}

// Write moves the processes. New ones may be born meanwhile, so it looks again until none is left.
func (tasks) Write(_ context.Context, s Step, to string) error {
	from := s.Target
	if to == s.Target {
		from = s.After
	}
	for range 20 {
		pids, err := members(from)
		if err != nil {
			return err
		}
		moved := 0
		for _, pid := range pids {
			if to == s.After && kernelThread(pid) {
				continue
			}
			err := file{}.Write(context.Background(), Step{Target: filepath.Join(to, "cgroup.procs")}, strconv.Itoa(pid))
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("process %d: %w", pid, err)
			}
			moved++
		}
		if moved == 0 {
			return nil
		}
	}
	return fmt.Errorf("%s: processes are born there faster than they can be moved to %s", from, to)
}

func members(cgroup string) ([]int, error) {
	data, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("%s/cgroup.procs: %q is not a process id", cgroup, f)
		}
		pids = append(pids, pid)
	}
	return pids, nil
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
