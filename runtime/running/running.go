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
	"cmp"
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
	"isolane.dev/isolane/host"
)

// Thread is one thread of a running process, from /proc/PID/task/TID (proc_pid_stat(5),
// proc_pid_status(5)).
type Thread struct {
	TID, PID int
	NSTID    int        // its TID within its own PID namespace, where a container counts
	Start    uint64     // in clock ticks after boot, field 22 of its stat file
	Comm     string     // its name, at most 15 bytes
	Program  string     // of the process: the last part of its first argument
	CPUs     cpuset.Set // that it may use, also those that are offline

	kernel bool
	parent int // the process that made its process
}

// Tree returns the threads of a process and of its descendants, by process and thread. A descendant
// whose parent has ended belongs to another process by then, and is not found. The error is
// fs.ErrNotExist where there is no such process.
func Tree(root fs.FS, pid int) ([]Thread, error) {
	if pid <= 1 {
		return nil, fmt.Errorf("process %d: expected a process above 1, which is the whole machine's init", pid)
	}
	if _, err := fs.Stat(root, processDir(pid)); err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	entries, err := fs.ReadDir(root, "proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		data, err := fs.ReadFile(root, processDir(id)+"/stat")
		if err != nil {
			continue // it has ended
		}
		t, err := host.ParseStat(string(data))
		if err != nil {
			return nil, fmt.Errorf("/proc/%d/stat: %w", id, err)
		}
		children[t.Parent] = append(children[t.Parent], id)
	}
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		for _, child := range children[pids[i]] {
			if !slices.Contains(pids, child) { // an id may have been used again meanwhile
				pids = append(pids, child)
			}
		}
	}
	return threadsOf(root, pids)
}

// ErrEmpty says that a cgroup has no processes; after the first steps, that all have left it.
var ErrEmpty = errors.New("no processes in this cgroup or below it")

// Cgroup returns the threads of the processes in a cgroup and in those below it, by process and
// thread, without kernel threads, or ErrEmpty. dir is absolute.
func Cgroup(root fs.FS, dir string) ([]Thread, error) {
	groups, err := subtree(root, dir)
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
			// A process of one thread; in a threaded cgroup the one above lists them too.
			file, into = path.Join(g, "cgroup.threads"), &keepers
		}
		var data []byte
		switch data, err = fs.ReadFile(root, file[1:]); {
		case errors.Is(err, fs.ErrNotExist) && g != dir, errors.Is(err, unix.ENODEV),
			errors.Is(err, unix.EOPNOTSUPP):
			// Removed meanwhile; or threaded, and the one above lists the processes.
			continue
		case err != nil:
			return nil, err
		}
		for _, f := range strings.Fields(string(data)) {
			pid, perr := strconv.Atoi(f)
			if perr != nil || pid < 1 {
				return nil, fmt.Errorf("%s: %q: expected a process of this PID namespace: run Isolane in the host's",
					file, f)
			}
			*into = append(*into, pid)
		}
	}
	threads, err := threadsOf(root, pids)
	threads = slices.DeleteFunc(threads, func(t Thread) bool {
		return t.kernel ||
			slices.Contains(keepers, t.PID)
	})
	if err == nil && len(threads) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, ErrEmpty)
	}
	return threads, err
}

// threaded says whether a cgroup is a part of a domain above it, which lists its processes
// (Documentation/admin-guide/cgroup-v2.rst, Threads).
func threaded(root fs.FS, dir string) bool {
	kind, err := fs.ReadFile(root, path.Join(dir, "cgroup.type")[1:])
	return err == nil && strings.TrimSpace(string(kind)) == "threaded"
}

// subtree returns a cgroup and those below it, each after its parent.
func subtree(root fs.FS, dir string) ([]string, error) {
	var dirs []string
	err := fs.WalkDir(root, dir[1:], func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && "/"+name != dir: // removed meanwhile
			return nil
		case err == nil && d.IsDir():
			dirs = append(dirs, "/"+name)
		}
		return err
	})
	return dirs, err
}

func threadsOf(root fs.FS, pids []int) ([]Thread, error) {
	slices.Sort(pids)
	var threads []Thread
	for _, pid := range slices.Compact(pids) {
		dir := processDir(pid)
		entries, err := fs.ReadDir(root, dir+"/task")
		if err != nil {
			continue // it has ended
		}
		program := ""
		if line, err := fs.ReadFile(root, dir+"/cmdline"); err == nil {
			first, _, _ := bytes.Cut(line, []byte{0})
			program = path.Base(string(first))
		}
		for _, e := range entries {
			t, err := readThread(root, dir+"/task/"+e.Name())
			if gone(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			t.PID, t.Program = pid, program
			threads = append(threads, t)
		}
	}
	slices.SortFunc(threads, func(a, b Thread) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID),
			cmp.Compare(a.TID, b.TID))
	})
	return threads, nil
}

// gone says whether a task ended while it was read.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

func readThread(root fs.FS, dir string) (Thread, error) {
	data, err := fs.ReadFile(root, dir+"/stat")
	if err != nil {
		return Thread{}, err
	}
	stat, err := host.ParseStat(string(data))
	t := Thread{TID: stat.ID, Comm: stat.Comm, Start: stat.Start, parent: stat.Parent, kernel: stat.Kernel}
	if err != nil {
		return t, fmt.Errorf("/%s/stat: %w", dir, err)
	}
	if data, err = fs.ReadFile(root, dir+"/status"); err != nil {
		return t, err
	}
	if err = t.parseStatus(string(data)); err != nil {
		return t, fmt.Errorf("/%s/status: %w", dir, err)
	}
	return t, nil
}

// parseStatus reads Cpus_allowed_list and the last number of NSpid, which kernels without PID
// namespaces do not have.
func (t *Thread) parseStatus(status string) (err error) {
	t.NSTID = t.TID
	found := false
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "NSpid":
			if ids := strings.Fields(value); len(ids) > 0 {
				if t.NSTID, err = strconv.Atoi(ids[len(ids)-1]); err != nil {
					return fmt.Errorf("NSpid: %w", err)
				}
			}
		case "Cpus_allowed_list":
			if t.CPUs, err = cpuset.Parse(value); err != nil {
				return err
			}
			found = true
		}
	}
	if !found {
		return errors.New("expected a line Cpus_allowed_list")
	}
	return nil
}

func processDir(pid int) string { return "proc/" + strconv.Itoa(pid) }
