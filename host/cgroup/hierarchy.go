package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/mount"
	"isolane.dev/isolane/host/task"
)

// Hierarchy is a mounted tree of cgroups (cgroups(7)).
type Hierarchy struct {
	Mount string // the directory where it is mounted
	V2    bool

	root        string   // the cgroup that is mounted there: "/" except in a container
	controllers []string // of cgroup v1; or its name, "name=systemd"
}

// HierarchyOf finds the hierarchy of a directory in /proc/self/mountinfo.
func HierarchyOf(root fs.FS, dir string) (Hierarchy, error) {
	var found Hierarchy
	kind := ""
	err := mount.Info(root, func(p mount.Point) {
		// Of several mounts at the same place the last one hides the others.
		if IsBelow(dir, p.Dir) && len(p.Dir) >= len(found.Mount) {
			kind = p.Type
			found = Hierarchy{Mount: p.Dir, V2: kind == "cgroup2", root: p.Root, controllers: p.Options}
		}
	})
	if err == nil && kind != "cgroup" && kind != "cgroup2" {
		err = fmt.Errorf("/proc/self/mountinfo: %s is in no cgroup hierarchy: "+
			"expected a directory such as /sys/fs/cgroup/NAME", dir)
	}
	if err != nil {
		return Hierarchy{}, err
	}
	return found, nil
}

// IsBelow reports whether dir is top or below it.
func IsBelow(dir, top string) bool {
	return dir == top || strings.HasPrefix(dir, strings.TrimSuffix(top, "/")+"/")
}

// Of returns the directory of the cgroup that a task is in. proc is the directory of the task in /proc. If
// the task has ended, the error is fs.ErrNotExist.
func (h Hierarchy) Of(root fs.FS, proc string) (string, error) {
	all, err := entries(root, proc)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, h.has)
	if i < 0 {
		return "", fmt.Errorf("/%s/cgroup: expected a line of the hierarchy at %s", proc, h.Mount)
	}
	at := all[i].path
	if !IsBelow(at, h.root) || path.Clean(at) != at {
		return "", fmt.Errorf("/%s/cgroup: %s is not below %s, which is mounted at %s: "+
			"run Isolane in the host's namespaces", proc, at, h.root, h.Mount)
	}
	return path.Join(h.Mount, strings.TrimPrefix(at, h.root)), nil
}

// PathOf returns the path of a task's cgroup as /proc/PID/cgroup has it: in the v1 hierarchy of the cpuset
// controller, or in v2 if there is none. It returns "" if the task has ended.
func PathOf(root fs.FS, proc string) string {
	all, _ := entries(root, proc)
	for _, h := range []Hierarchy{{controllers: []string{"cpuset"}}, {V2: true}} {
		if i := slices.IndexFunc(all, h.has); i >= 0 {
			return all[i].path
		}
	}
	return ""
}

// entry is a line of /proc/PID/cgroup.
type entry struct {
	id, path    string
	controllers []string
}

func entries(root fs.FS, proc string) ([]entry, error) {
	data, err := fs.ReadFile(root, proc+"/cgroup")
	if err != nil {
		return nil, task.Ended(err)
	}
	var all []entry
	for line := range strings.Lines(string(data)) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 {
			all = append(all, entry{f[0], f[2], strings.Split(f[1], ",")})
		}
	}
	return all, nil
}

// has reports whether an entry is of this hierarchy: "0::" of v2, or of v1 an entry with one of the
// controllers that it was mounted with. A controller is in only one hierarchy.
func (h Hierarchy) has(e entry) bool {
	if h.V2 || e.controllers[0] == "" {
		return h.V2 && e.id == "0" && e.controllers[0] == ""
	}
	mounted := func(name string) bool { return slices.Contains(h.controllers, name) }
	return slices.ContainsFunc(e.controllers, mounted)
}

// CPUs returns the CPUs in force for the tasks of a cgroup. If it has no cpuset files, they are those of the
// nearest cgroup above that has.
func (h Hierarchy) CPUs(root fs.FS, dir string) (cpus cpuset.Set, err error) {
	for ; IsBelow(dir, h.Mount); dir = path.Dir(dir) {
		var unread *fs.PathError
		if cpus, err = CPUs(root, dir); !errors.As(err, &unread) {
			break
		}
	}
	return cpus, err
}

// CPUs returns the CPUs in force from a cgroup's own files, of v2 or v1 (cpuset(7)).
func CPUs(root fs.FS, dir string) (cpus cpuset.Set, err error) {
	for _, file := range []string{"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"} {
		var unread *fs.PathError
		if cpus, err = cpuset.Read(root, path.Join(dir, file)[1:]); !errors.As(err, &unread) {
			break
		}
	}
	return cpus, err
}
