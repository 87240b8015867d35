package enforce

import (
	"errors"
	"path"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// ErrNoCpuset says that the host has no cgroup hierarchy with the cpuset controller.
var ErrNoCpuset = errors.New("no cgroup hierarchy with the cpuset controller: mount one, or boot a kernel with CONFIG_CPUSETS")

// Group is a cgroup with CPUs and memory nodes of its own. The zero CPUs are an error of the caller.
type Group struct {
	Name        string // the directory is isolane-<name>
	CPUs        cpuset.Set
	MemoryNodes cpuset.Set // empty: all
}

const prefix = "isolane-"

// GroupDir returns the directory of the group of that name: a process joins by its cgroup.procs.
func GroupDir(h host.Host, name string) (string, error) {
	root, _, err := cpusetRoot(h)
	return path.Join(root, prefix+name), err
}

// cpusetRoot returns where cpuset cgroups are made, and whether they are of cgroup v2.
func cpusetRoot(h host.Host) (string, bool, error) {
	c := h.Kernel.Cgroup
	if c.CpusetV1 != nil {
		return *c.CpusetV1, false, nil
	}
	for _, name := range c.UnifiedControllers {
		if name == "cpuset" && c.Unified != nil {
			return *c.Unified, true, nil
		}
	}
	return "", false, ErrNoCpuset
}

// Groups returns the steps that make cpuset cgroups.
func Groups(h host.Host, groups ...Group) ([]journal.Step, error) {
	root, v2, err := cpusetRoot(h)
	if err != nil {
		return nil, err
	}
	var steps []journal.Step
	if v2 {
		steps = append(steps, journal.Step{Kind: "controller", Target: path.Join(root, "cgroup.subtree_control"), After: "cpuset"})
	}
	for _, g := range groups {
		nodes := g.MemoryNodes
		if nodes.IsEmpty() {
			nodes = h.MemoryNodes()
		}
		dir := path.Join(root, prefix+g.Name)
		steps = append(steps,
			journal.Step{Kind: "dir", Target: dir, After: "present"},
			file(path.Join(dir, "cpuset.cpus"), g.CPUs.String()),
			file(path.Join(dir, "cpuset.mems"), nodes.String()))
	}
	return steps, nil
}

// cpusets gives each lane its cgroup and keeps all other tasks off the lanes' CPUs. With cgroup v2
// the lane is an isolated partition, and the kernel itself takes its CPUs from everybody else
// (Documentation/admin-guide/cgroup-v2.rst, "cpuset.cpus.partition"). With v1 the others are moved
// into a housekeeping cpuset (Documentation/admin-guide/cgroup-v1/cpusets.rst).
func cpusets(h host.Host, p plan.Placement) ([]journal.Step, error) {
	root, v2, err := cpusetRoot(h)
	if err != nil {
		return nil, err
	}
	var groups []Group
	if !v2 {
		groups = append(groups, Group{Name: "housekeeping", CPUs: p.Housekeeping})
	}
	for _, l := range p.Lanes {
		groups = append(groups, Group{Name: l.Name, CPUs: l.CPUs.Union(l.Idle), MemoryNodes: l.MemoryNodes})
	}
	steps, err := Groups(h, groups...)
	if err != nil {
		return nil, err
	}
	if !v2 {
		return append(steps, journal.Step{Kind: "tasks", Target: root, After: path.Join(root, prefix+"housekeeping")}), nil
	}
	for _, l := range p.Lanes {
		steps = append(steps, file(path.Join(root, prefix+l.Name, "cpuset.cpus.partition"), "isolated"))
	}
	return steps, nil
}
