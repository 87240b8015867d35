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

// hierarchy is a hierarchy of cgroups.
type hierarchy struct {
	mount       string
	unified     bool     // cgroup v2; beside v1, containers are in it too, but it has no controllers
	controllers []string // of v1
}

func hierarchies() (all []hierarchy, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if f[2] == "cgroup" || f[2] == "cgroup2" {
			all = append(all, hierarchy{f[1], f[2] == "cgroup2", strings.Split(f[3], ",")})
		}
	}
	if err == nil && len(all) == 0 {
		err = errors.New("/proc/self/mounts: expected a cgroup hierarchy")
	}
	return all, err
}

// CgroupDir returns the node's cgroup in the hierarchy of a controller, which contains its kubepods.
func (n *Node) CgroupDir(controller string) (string, error) {
	all, err := hierarchies()
	if err != nil {
		return "", err
	}
	for _, h := range all {
		if !h.unified && slices.Contains(h.controllers, controller) || h.unified && len(all) == 1 {
			return h.mount + n.Cgroup, nil
		}
	}
	return "", fmt.Errorf("/proc/self/mounts: expected a cgroup hierarchy with the controller %s", controller)
}

// ContainerCgroup returns the cgroup of a container, given the UID of its pod and the container's id.
func (n *Node) ContainerCgroup(uid, id string) (string, error) {
	dir, err := n.CgroupDir("cpuset")
	if err != nil {
		return "", err
	}
	for _, class := range []string{"", "burstable", "besteffort"} {
		group := filepath.Join(dir, "kubepods", class, "pod"+uid, id)
		if n.bed.options.Systemd {
			group = filepath.Join(dir, scopeOf(class, uid, id))
		}
		if _, err = os.Stat(group); err == nil {
			return group, nil
		}
	}
	return "", fmt.Errorf("%s: expected a cgroup of container %s", dir, id)
}

// cgroupsOf returns the cgroups of a bed, one in each hierarchy.
func cgroupsOf(bed string) (dirs []string, err error) {
	all, err := hierarchies()
	for _, h := range all {
		dirs = append(dirs, filepath.Join(h.mount, bed))
	}
	return dirs, err
}

// disabled returns the controllers that the root of cgroup v2 does not pass on, and the kubelet needs below
// it. Beside v1 there are none.
func disabled(tops []string) (names []string, err error) {
	if len(tops) != 1 {
		return nil, nil
	}
	root := filepath.Dir(tops[0])
	all, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	below, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control"))
	for _, name := range strings.Fields(string(all)) {
		if !slices.Contains(strings.Fields(string(below)), name) {
			names = append(names, name)
		}
	}
	return names, err
}

// pass makes the root of cgroup v2 pass controllers on (sign +), or stop that (-).
func pass(sign string, tops, names []string) error {
	for _, name := range names {
		file := filepath.Join(filepath.Dir(tops[0]), "cgroup.subtree_control")
		if err := os.WriteFile(file, []byte(sign+name), 0o644); err != nil {
			return fmt.Errorf("%s%s: %w", sign, name, err)
		}
	}
	return nil
}

// makeCgroups makes the cgroups of a bed, each with a cgroup for each node.
func makeCgroups(tops, nodes []string) error {
	for _, top := range tops {
		if err := removeAll(top); err != nil { // nobody has this bed: what exists has no processes
			return err
		}
		dirs := []string{top}
		for _, node := range nodes {
			dirs = append(dirs, filepath.Join(top, node))
		}
		for _, dir := range dirs {
			if err := makeOne(dir, len(tops) == 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeOne makes a cgroup that may use what its parent may. only means v2 without v1.
func makeOne(dir string, only bool) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("cgroup %w", err)
	}
	if only {
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
			continue // belongs to another hierarchy
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

// removeCgroup removes a cgroup and everything below it. Killed processes need a moment to leave.
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

// removeAll removes a cgroup and everything below it, the lowest first.
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
