// Package task reads processes, their threads and the kernel's threads from /proc (proc(5)), and sets the
// CPUs on which they may run.
//
//	for _, tid := range task.Threads(root, pid) {
//		stat, err := task.ReadStat(root, task.ThreadDir(pid, tid))
//		…
//	}
//
// A task may end at any moment. Then errors match fs.ErrNotExist.
package task

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
)

// Dir returns the directory of a process, or of any thread, below the root of a machine.
func Dir(id int) string { return "proc/" + strconv.Itoa(id) }

// ThreadDir returns the directory of a thread below that of its process.
func ThreadDir(pid, tid int) string { return Dir(pid) + "/task/" + strconv.Itoa(tid) }

// Processes returns the ids of all processes, in ascending order.
func Processes(root fs.FS) ([]int, error) { return ids(root, "proc") }

// Threads returns the ids of a process's threads, in ascending order; none if it has ended.
func Threads(root fs.FS, pid int) []int {
	tids, _ := ids(root, Dir(pid)+"/task")
	return tids
}

func ids(root fs.FS, dir string) ([]int, error) {
	entries, err := fs.ReadDir(root, dir)
	var found []int
	for _, e := range entries {
		if id, perr := strconv.ParseUint(e.Name(), 10, 31); perr == nil && id > 0 {
			found = append(found, int(id))
		}
	}
	slices.Sort(found)
	return found, err
}

// Ended returns fs.ErrNotExist if err says that a task has ended (ESRCH), else err.
func Ended(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return fs.ErrNotExist
	}
	return err
}

// ReadStat reads the stat file in the directory of a task.
func ReadStat(root fs.FS, dir string) (Stat, error) {
	text, err := fs.ReadFile(root, dir+"/stat")
	if err != nil {
		return Stat{}, Ended(err)
	}
	s, err := ParseStat(string(text))
	if err != nil {
		err = fmt.Errorf("/%s/stat: %w", dir, err)
	}
	return s, err
}

// VirtualCPU returns the number of the virtual CPU that a thread runs, or false if it runs none. It goes by
// the name that the program gives the thread: QEMU with -name debug-threads=on (accel/*-accel-ops.c; with
// tcg,thread=single one thread runs all of them), Firecracker and Cloud Hypervisor.
func VirtualCPU(name string) (number int, is bool) {
	if name == "ALL CPUs/TCG" {
		return 0, true
	}
	for _, prefix := range []string{"CPU ", "fc_vcpu ", "vcpu"} {
		if rest, found := strings.CutPrefix(name, prefix); found {
			text, _, _ := strings.Cut(rest, "/") // CPU 0/KVM
			n, err := strconv.ParseUint(text, 10, 31)
			return int(n), err == nil
		}
	}
	return 0, false
}

// Interrupt returns the number of the interrupt that a kernel thread with this name handles, or false if it
// handles none: irq/44-eth0.
func Interrupt(name string) (number int, is bool) {
	text, is := strings.CutPrefix(name, "irq/")
	text, _, _ = strings.Cut(text, "-")
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), is && err == nil
}

// StartTime returns when a task started, in clock ticks after boot. Id and start time together are unique.
func StartTime(root fs.FS, id int) (uint64, error) {
	s, err := ReadThread(root, id)
	return s.Start, err
}

// ReadThread reads the stat file of a thread, or of the first thread of a process. CPUTicks are of this
// thread alone. /proc/TID instead adds up the times of all threads of the process, which takes longer the
// more there are (do_task_stat in fs/proc/array.c).
func ReadThread(root fs.FS, tid int) (Stat, error) {
	s, err := ReadStat(root, ThreadDir(tid, tid))
	if errors.Is(err, fs.ErrNotExist) { // a recording may have processes only
		return ReadStat(root, Dir(tid))
	}
	return s, err
}

// Status is the text of /proc/PID/status or /proc/PID/task/TID/status (proc_pid_status(5)).
type Status string

// ReadStatus reads the status file in the directory of a task.
func ReadStatus(root fs.FS, dir string) (Status, error) {
	text, err := fs.ReadFile(root, dir+"/status")
	return Status(text), Ended(err)
}

// Value returns the text after a key, without white space around it, or false if there is no such line.
func (s Status) Value(key string) (string, bool) {
	for line := range strings.Lines(string(s)) {
		if rest, ok := strings.CutPrefix(line, key); ok && strings.HasPrefix(rest, ":") {
			return strings.TrimSpace(rest[1:]), true
		}
	}
	return "", false
}

// Number is like Value, for an unsigned number.
func (s Status) Number(key string) (uint64, error) {
	value, ok := s.Value(key)
	n, err := strconv.ParseUint(value, 10, 64)
	if !ok || err != nil {
		err = fmt.Errorf("%s: expected a number, found %.40q", key, value)
	}
	return n, err
}

// Allowed returns the CPUs that the task may use, including offline ones.
func (s Status) Allowed() (cpuset.Set, error) {
	list, ok := s.Value("Cpus_allowed_list")
	if !ok {
		return cpuset.Set{}, errors.New("expected a line Cpus_allowed_list")
	}
	return cpuset.Parse(list)
}

// ReadAllowed returns the CPUs that the task with this directory may use.
func ReadAllowed(root fs.FS, dir string) (cpuset.Set, error) {
	s, err := ReadStatus(root, dir)
	if err != nil {
		return cpuset.Set{}, err
	}
	cpus, err := s.Allowed()
	if err != nil {
		err = fmt.Errorf("/%s/status: %w", dir, err)
	}
	return cpus, err
}

// RunTime reads how long and how often a thread has been on a CPU, from schedstat in its directory
// (Documentation/scheduler/sched-stats.rst).
func RunTime(root fs.FS, dir string) (ran time.Duration, runs uint64, err error) {
	text, err := fs.ReadFile(root, dir+"/schedstat")
	if err != nil {
		return 0, 0, Ended(err)
	}
	f := strings.Fields(string(text))
	if len(f) < 3 {
		return 0, 0, fmt.Errorf("/%s/schedstat: expected 3 fields, found %d", dir, len(f))
	}
	ns, err := strconv.ParseUint(f[0], 10, 63)
	runs, rerr := strconv.ParseUint(f[2], 10, 64)
	if err = errors.Join(err, rerr); err != nil {
		err = fmt.Errorf("/%s/schedstat: %w", dir, err)
	}
	return time.Duration(ns), runs, err
}
