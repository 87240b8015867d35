// Package running finds the threads of workloads that run already, started by whomever, and says
// which steps bring them into a lane.
//
//	group, err := running.Resolve(h, root, "docker/4f1c")
//	threads, err := running.Cgroup(root, group)
//	steps, warnings, err := running.Steps(h, root, lane, threads, group)
//
// It changes nothing. What is born between the look and the steps is missed: a caller looks again
// until no step is left or the cgroup is empty, because a child is born where its parent is.
package running

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
)

// Thread is one thread of a running process, from /proc/PID/task/TID (proc_pid_stat(5), proc_pid_status(5)).
type Thread struct {
	TID, PID int
	NSTID    int        // its TID within its own PID namespace, as in a container
	Start    uint64     // in clock ticks after boot, field 22 of its stat file
	Comm     string     // its name, at most 15 bytes
	Program  string     // of the process: the last part of its first argument
	CPUs     cpuset.Set // that it may use, offline ones included

	kernel bool
	dead   bool // a zombie: nobody has waited for it
	parent int  // the parent of its process
}

// Tree returns the threads of a process and of its descendants, by process and thread. It misses a descendant
// whose parent has ended, which then belongs to another process. If there is no such process it fails with
// fs.ErrNotExist.
func Tree(root fs.FS, pid int) ([]Thread, error) {
	if pid <= 1 {
		return nil, fmt.Errorf("process %d: expected a process above 1, which is the whole machine's init", pid)
	}
	if _, err := fs.Stat(root, task.Dir(pid)); err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	all, err := task.Processes(root)
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, id := range all {
		t, err := task.ReadStat(root, task.Dir(id))
		if errors.Is(err, fs.ErrNotExist) || t.Dead() && len(task.Threads(root, id)) == 1 {
			continue // it has ended
		}
		if err != nil {
			return nil, err
		}
		children[t.Parent] = append(children[t.Parent], id)
	}
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		for _, child := range children[pids[i]] {
			if !slices.Contains(pids, child) { // an ID may have been reused meanwhile
				pids = append(pids, child)
			}
		}
	}
	return threadsOf(root, pids)
}

// ErrEmpty says that a cgroup has no processes: after the first steps, that all have left it.
var ErrEmpty = errors.New("no processes in this cgroup or below it")

// Cgroup returns the threads of the processes in a cgroup and below it, by process and thread, without kernel
// threads. It fails with ErrEmpty if there are none. dir is absolute.
func Cgroup(root fs.FS, dir string) ([]Thread, error) {
	groups, err := cgroup.Tree(root, dir)
	if err != nil {
		return nil, err
	}
	if threaded(root, dir) {
		return nil, fmt.Errorf("cgroup %s: expected one of processes, found a threaded one: give the nearest "+
			"above it that is none", dir)
	}
	var pids, keepers []int
	for _, g := range groups {
		file, into := path.Join(g, "cgroup.procs"), &pids
		if g != dir && change.IsKeeperGroup(g) {
			// A keeper has one thread; in a threaded cgroup the one above lists it too.
			file, into = path.Join(g, "cgroup.threads"), &keepers
		}
		var data []byte
		switch data, err = fs.ReadFile(root, file[1:]); {
		case errors.Is(err, fs.ErrNotExist) && g != dir, errors.Is(err, unix.ENODEV),
			errors.Is(err, unix.EOPNOTSUPP):
			// Removed meanwhile; or threaded, and then the one above lists the processes.
			continue
		case err != nil:
			return nil, err
		}
		found, perr := cgroup.IDs(string(data))
		if perr != nil || slices.Contains(found, 0) {
			return nil, fmt.Errorf("%s: %.40q: expected processes of this PID namespace: run Isolane in the host's",
				file, data)
		}
		*into = append(*into, found...)
	}
	threads, err := threadsOf(root, pids)
	threads = slices.DeleteFunc(threads, func(t Thread) bool {
		return t.kernel || slices.Contains(keepers, t.PID)
	})
	if err == nil && len(threads) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, ErrEmpty)
	}
	return threads, err
}

// threaded reports whether a cgroup belongs to a threaded domain above it, which lists its processes
// (Documentation/admin-guide/cgroup-v2.rst, Threads).
func threaded(root fs.FS, dir string) bool {
	kind, err := fs.ReadFile(root, path.Join(dir, "cgroup.type")[1:])
	return err == nil && strings.TrimSpace(string(kind)) == "threaded"
}

func threadsOf(root fs.FS, pids []int) ([]Thread, error) {
	slices.Sort(pids)
	var threads []Thread
	for _, pid := range slices.Compact(pids) {
		program := ""
		if line, err := fs.ReadFile(root, task.Dir(pid)+"/cmdline"); err == nil {
			first, _, _ := bytes.Cut(line, []byte{0})
			program = path.Base(string(first))
		}
		for _, tid := range task.Threads(root, pid) {
			t, err := readThread(root, task.ThreadDir(pid, tid))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			t.PID, t.Program = pid, program
			threads = append(threads, t)
		}
	}
	return threads, nil
}

func readThread(root fs.FS, dir string) (t Thread, err error) {
	stat, err := task.ReadStat(root, dir)
	if err != nil {
		return t, err
	}
	status, err := task.ReadStatus(root, dir)
	if err != nil {
		return t, err
	}
	t = Thread{TID: stat.ID, NSTID: stat.ID, Comm: stat.Comm, Start: stat.Start, parent: stat.Parent,
		kernel: stat.Kernel, dead: stat.Dead()}
	t.CPUs, err = status.Allowed()
	ids, _ := status.Value("NSpid") // a kernel without PID namespaces has none
	if all := strings.Fields(ids); len(all) > 0 && err == nil {
		t.NSTID, err = strconv.Atoi(all[len(all)-1])
	}
	if err != nil {
		err = fmt.Errorf("/%s/status: %w", dir, err)
	}
	return t, err
}
