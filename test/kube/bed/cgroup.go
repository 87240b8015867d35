package bed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// hierarchies are the mount points of the cgroup hierarchies. Beside v1 containers are in that of v2 too, which
// then has no controllers.
func hierarchies() (v1, v2 []string, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		switch f := strings.Fields(line); f[2] {
		case "cgroup":
			v1 = append(v1, f[1])
		case "cgroup2":
			v2 = append(v2, f[1])
		}
	}
	return v1, v2, err
}

// CgroupDir is the node's cgroup in the hierarchy with a controller: its kubepods are in it.
func (n *Node) CgroupDir(controller string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	unified := ""
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		switch {
		case f[2] == "cgroup" && slices.Contains(strings.Split(f[3], ","), controller):
			return f[1] + n.Cgroup, nil
		case f[2] == "cgroup2":
			unified = f[1] + n.Cgroup
		}
	}
	if _, err = os.Stat(unified); err != nil {
		return "", fmt.Errorf("/proc/mounts: expected a cgroup hierarchy with the controller %s", controller)
	}
	return unified, nil
}

// makeCgroup makes a cgroup for a bed, and one for each node below it, in each hierarchy, and returns the
// former.
func makeCgroup(bed string, nodes []string) ([]string, error) {
	v1, v2, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var made []string
	for _, mount := range append(v1, v2...) {
		top := filepath.Join(mount, bed)
		made = append(made, top)
		dirs := []string{top}
		for _, node := range nodes {
			dirs = append(dirs, filepath.Join(top, node))
		}
		for _, dir := range dirs {
			if err := makeOne(dir, len(v1) == 0); err != nil {
				return made, err
			}
		}
	}
	return made, nil
}

// makeOne makes a cgroup that may use what the one above it may.
func makeOne(dir string, unified bool) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("cgroup %w", err)
	}
	if unified {
		controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return err
		}
		all := "+" + strings.Join(strings.Fields(string(controllers)), " +")
		return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(all), 0o644)
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} { // v1 leaves them empty, which takes no process
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // another hierarchy
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), above, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup removes a cgroup and all below it. Processes that were killed need a moment to leave.
func removeCgroup(ctx context.Context, top string) error {
	for {
		err := removeAll(top)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// removeAll removes a cgroup and all below it, the lowest first.
func removeAll(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, name)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) && len(dirs) == 0 {
		return nil
	}
	for i := len(dirs) - 1; i >= 0 && err == nil; i-- {
		if err = os.Remove(dirs[i]); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}
