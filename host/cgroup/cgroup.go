// Package cgroup finds cgroups: where their hierarchies are mounted, which cgroup a task is in, and what a
// cgroup contains (cgroups(7), Documentation/admin-guide/cgroup-v2.rst). A cgroup is named by its directory,
// "/sys/fs/cgroup/a".
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/host/mount"
)

// Mounts says where the hierarchies are mounted.
type Mounts struct {
	Version            string   `json:"version"`            // v1, v2, hybrid or none; "": not known
	CpusetV1           *string  `json:"cpusetV1"`           // mount point of the v1 cpuset hierarchy
	MemoryV1           *string  `json:"memoryV1"`           // mount point of the v1 memory hierarchy
	CPUV1              *string  `json:"-"`                  // mount point of the v1 hierarchy with CPU quotas
	Unified            *string  `json:"unified"`            // mount point of cgroup v2
	UnifiedControllers []string `json:"unifiedControllers"` // of cgroup v2
}

// Mounted finds the hierarchies in /proc/self/mounts. With an error it returns what it could read.
func Mounted(root fs.FS) (Mounts, error) {
	m := Mounts{UnifiedControllers: []string{}}
	v1 := false
	err := mount.Table(root, func(p mount.Point) {
		switch {
		case p.Type == "cgroup2" && m.Unified == nil:
			m.Unified = &p.Dir
		case p.Type == "cgroup":
			v1 = true
			if m.CpusetV1 == nil && slices.Contains(p.Options, "cpuset") {
				m.CpusetV1 = &p.Dir
			}
			if m.MemoryV1 == nil && slices.Contains(p.Options, "memory") {
				m.MemoryV1 = &p.Dir
			}
			if m.CPUV1 == nil && slices.Contains(p.Options, "cpu") {
				m.CPUV1 = &p.Dir
			}
		}
	})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return m, nil
	case v1 && m.Unified != nil:
		m.Version = "hybrid"
	case v1:
		m.Version = "v1"
	case m.Unified != nil:
		m.Version = "v2"
	default:
		m.Version = "none"
	}
	if m.Unified != nil {
		name := strings.TrimPrefix(*m.Unified, "/") + "/cgroup.controllers"
		if text, rerr := fs.ReadFile(root, name); rerr == nil {
			m.UnifiedControllers = strings.Fields(string(text))
		}
	}
	return m, err
}

// Cpuset returns the hierarchy that limits the CPUs of tasks, and whether it is v2, which may lack the cpuset
// controller. It returns "" if there is none.
func (m Mounts) Cpuset() (dir string, v2 bool) {
	switch {
	case m.CpusetV1 != nil:
		return *m.CpusetV1, false
	case m.Unified != nil:
		return *m.Unified, true
	}
	return "", false
}

// Tree returns a cgroup and those in it, each after its parent. It skips those that are removed meanwhile.
func Tree(root fs.FS, dir string) ([]string, error) {
	var dirs []string
	err := fs.WalkDir(root, dir[1:], func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && "/"+name != dir:
			return nil
		case err == nil && d.IsDir():
			dirs = append(dirs, "/"+name)
		}
		return err
	})
	return dirs, err
}

// Processes returns the processes in a cgroup and in those below it; none if it is gone.
func Processes(root fs.FS, dir string) ([]int, error) { return members(root, dir, "cgroup.procs") }

// Populated reports whether a cgroup, or one below it, has processes.
func Populated(root fs.FS, dir string) bool {
	pids, err := Processes(root, dir)
	return err == nil && len(pids) > 0
}

// Threads is like Processes, for all threads.
func Threads(root fs.FS, dir string) ([]int, error) {
	return members(root, dir, "cgroup.threads", "tasks") // tasks is that of cgroup v1
}

// members reads in each cgroup the first of the files that can be read. If none can, the cgroup is gone, or
// it is threaded: then the cgroup above it lists its processes.
func members(root fs.FS, dir string, files ...string) ([]int, error) {
	dirs, err := Tree(root, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []int
	for _, d := range dirs {
		for _, file := range files {
			text, rerr := fs.ReadFile(root, path.Join(d, file)[1:])
			if rerr != nil {
				continue
			}
			found, perr := IDs(string(text))
			if perr != nil {
				return nil, fmt.Errorf("%s/%s: %w", d, file, perr)
			}
			all = append(all, found...)
			break
		}
	}
	return all, err
}

// IDs parses the text of cgroup.procs, cgroup.threads or tasks. A task of another PID namespace is 0.
func IDs(text string) ([]int, error) {
	var all []int
	for f := range strings.FieldsSeq(text) {
		id, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("%q: expected the id of a process or thread", f)
		}
		all = append(all, id)
	}
	return all, nil
}
