package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// thread is a thread at a moment: proc_pid_stat(5), and /proc/PID/schedstat
// (Documentation/scheduler/sched-stats.rst).
type thread struct {
	pid, tid  int
	comm      string
	running   bool // or runnable
	cpu       int  // on which it runs, or last ran
	run, wait time.Duration
}

// gone reports whether what was read has ended.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// tree returns processes with all their descendants (proc_pid_children(5)).
func tree(pids ...int) ([]int, error) {
	all := slices.Clone(pids)
	for i := 0; i < len(all); i++ {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil && !gone(err) {
				return nil, err
			}
			for child := range strings.FieldsSeq(string(text)) {
				pid, err := strconv.Atoi(child)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", file, err)
				}
				all = append(all, pid)
			}
		}
	}
	return all, nil
}

// readStat returns the name of a task, and the fields after it; the first of them is the state.
func readStat(file string) (string, []string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", nil, err
	}
	from, to := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[to+1:]))
	if from < 0 || to < from || len(fields) < 37 {
		return "", nil, fmt.Errorf("%s: expected the fields of proc_pid_stat(5), found %q", file, data)
	}
	return string(data[from+1 : to]), fields, nil
}

// threads returns the threads of processes by TID.
func threads(pids []int) (map[int]thread, error) {
	found := map[int]thread{}
	for _, pid := range pids {
		dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			t, err := readThread(pid, dir)
			if gone(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			found[t.tid] = t
		}
	}
	return found, nil
}

func readThread(pid int, dir string) (thread, error) {
	t := thread{pid: pid}
	comm, fields, err := readStat(dir + "/stat")
	if err != nil {
		return t, err
	}
	times, err := os.ReadFile(dir + "/schedstat")
	if err != nil {
		return t, err
	}
	t.comm, t.running = comm, fields[0] == "R"
	var tidErr, cpuErr error
	t.tid, tidErr = strconv.Atoi(path.Base(dir))
	t.cpu, cpuErr = strconv.Atoi(fields[36])
	_, err = fmt.Sscan(string(times), &t.run, &t.wait)
	return t, errors.Join(tidErr, cpuErr, err)
}

// allowed returns the CPUs that a thread may use, as a list.
func allowed(t thread) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", t.pid, t.tid))
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(data), "Cpus_allowed_list:")
	list, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(list), nil
}
