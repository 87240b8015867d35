package knob

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/change/systemd"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// The kinds of partition (Documentation/admin-guide/cgroup-v2.rst, "cpuset.cpus.partition").
const (
	Isolated = "isolated" // its CPUs are exclusive, and the scheduler does not balance them
	Balanced = "root"     // its CPUs are exclusive, and the scheduler balances its threads over them
	Member   = lane.Member
)

// PartitionFile is the file of a cgroup that holds its kind of partition.
const PartitionFile = "cpuset.cpus.partition"

// ExclusiveFile is the file with the CPUs that a cgroup has exclusively, or passes on to partitions below it.
const ExclusiveFile = "cpuset.cpus.exclusive"

// sharedGroup is the group of lanes that share CPUs, with cgroup v2. Partitions cannot overlap, so these
// lanes are plain cpusets within one partition that has the CPUs of all of them. The tilde keeps it apart
// from lanes, whose names cannot have one.
const sharedGroup = "shared~"

// sharesCPUs reports whether a lane may have CPUs that other lanes have too.
func sharesCPUs(l plan.Lane) bool { return l.Spec.CPUs.Share > 1 }

// Partition is a cgroup whose CPUs are to be exclusive. Equal values ask the same of the kernel.
type Partition struct {
	Name string // of the lane or group; the key of View.Levels
	Dir  string
	CPUs cpuset.Set
	Kind string // what its threads need: Isolated or Balanced
}

// File returns the path of its PartitionFile.
func (p Partition) File() string { return path.Join(p.Dir, PartitionFile) }

// laneDir returns the cgroup of a lane: the workload's own, or one of Isolane's.
func (v View) laneDir(root string, v2 bool, l plan.Lane) string {
	switch own := v.Own[l.Name]; {
	case own != "":
		return own
	case v2 && sharesCPUs(l):
		return path.Join(root, change.GroupPrefix+sharedGroup, change.GroupPrefix+l.Name)
	}
	return path.Join(root, change.GroupPrefix+l.Name)
}

// IsPartition reports whether a step sets the kind of a partition.
func IsPartition(s journal.Step) bool { return path.Base(s.Target) == PartitionFile }

// GivesCPUs reports whether a step sets the CPUs of a partition.
func GivesCPUs(s journal.Step) bool {
	base := path.Base(s.Target)
	return base == "cpuset.cpus" || base == ExclusiveFile
}

// Partitions returns the partitions that a placement wants; none with cgroup v1.
func (v View) Partitions(p plan.Placement) []Partition {
	root, v2, err := cpusetRoot(v.Host)
	if err != nil || !v2 {
		return nil
	}
	kind := map[bool]string{true: Balanced, false: Isolated}
	var parts []Partition
	var pool plan.Lane
	balanced := false
	for _, l := range p.Lanes {
		if sharesCPUs(l) {
			pool.CPUs, balanced = pool.CPUs.Union(l.CPUs), balanced || l.Spec.Balanced()
			continue
		}
		if l.Spec.Cgroup.Partition == Member {
			continue
		}
		parts = append(parts, Partition{l.Name, v.laneDir(root, true, l), l.CPUs, kind[l.Spec.Balanced()]})
		if !l.Idle.IsEmpty() {
			name := siblingsGroup(l.Name)
			parts = append(parts, Partition{name, path.Join(root, change.GroupPrefix+name), l.Idle, Isolated})
		}
	}
	if !pool.CPUs.IsEmpty() {
		dir := path.Join(root, change.GroupPrefix+sharedGroup)
		parts = append(parts, Partition{sharedGroup, dir, pool.CPUs, kind[balanced]})
	}
	return parts
}

// partitionSteps returns the steps for the cgroups of all lanes, with cgroup v2.
func partitionSteps(v View, root string, p plan.Placement) ([]journal.Step, error) {
	var groups, sharing []Group
	var pool Group
	var own []plan.Lane
	for _, l := range p.Lanes {
		g := Group{Name: l.Name, CPUs: l.CPUs, MemoryNodes: l.MemoryNodes}
		switch {
		case v.Own[l.Name] != "":
			own = append(own, l)
		case sharesCPUs(l):
			g.Name = path.Join(sharedGroup, change.GroupPrefix+l.Name)
			sharing = append(sharing, g)
			pool.CPUs, pool.MemoryNodes = pool.CPUs.Union(g.CPUs), pool.MemoryNodes.Union(g.MemoryNodes)
		default:
			groups = append(groups, g)
		}
		if !l.Idle.IsEmpty() {
			groups = append(groups, Group{Name: siblingsGroup(l.Name), CPUs: l.Idle, MemoryNodes: l.MemoryNodes})
		}
	}
	if len(sharing) > 0 {
		pool.Name = sharedGroup
		groups = append(groups, pool)
	}
	steps, err := Groups(v.Host, groups...)
	if err != nil {
		return nil, err
	}
	if len(sharing) > 0 {
		steps = append(steps, controllerStep(path.Join(root, change.GroupPrefix+sharedGroup)))
		for _, g := range sharing {
			steps = append(steps, g.steps(v.Host, root)...)
		}
	}
	for _, l := range own {
		steps = append(steps, v.ownGroupSteps(root, l, own)...)
	}
	others, err := v.keepOthersOff(root, p)
	if err != nil {
		return nil, err
	}
	steps = append(steps, others...)
	swap, err := noSwap(v, root, p)
	if err != nil {
		return nil, err
	}
	steps = append(steps, swap...)
	for _, part := range v.Partitions(p) {
		level := cmp.Or(v.Levels[part.Name], part.Kind)
		if !HasPartitions(v.Host) {
			level = Member
		}
		steps = append(steps, optional(fileStep(part.File(), level)))
	}
	return steps, nil
}

func controllerStep(group string) journal.Step {
	return journal.Step{Kind: change.KindController, Target: change.ControllerTarget(group, "cpuset"),
		After: "cpuset"}
}

// HasPartitions reports whether it is safe to ask the kernel for partitions. Before 5.11 the kernel does not
// know which of its workers are bound to a CPU. If such a kernel takes a partition's CPUs from all tasks of
// the root cgroup, as 5.10.223 does, it moves those workers too, and the host hangs.
func HasPartitions(h host.Host) bool { return h.Kernel.AtLeast(5, 11) }

// OwnGroups reports whether a lane can be in the workload's own cgroup. It needs cgroup v2, and for a
// partition Linux 6.7, because the cgroups above are no partitions ("remote partition" in cgroup-v2.rst).
func OwnGroups(h host.Host, spec lane.Spec) bool {
	_, v2, err := cpusetRoot(h)
	return err == nil && v2 && (h.Kernel.AtLeast(6, 7) || spec.Cgroup.Partition == Member)
}

// ownGroupSteps makes a partition of the workload's own cgroup, which may be below any other cgroups: each on
// the way passes the lane's CPUs on for exclusive use. The workload's limits and statistics and the runtime's
// view of it stay as they are. So does its cpuset.cpus: the kernel would not empty it again while it has
// processes, and a value left there keeps sibling cgroups from becoming partitions (seen with 6.12). If
// systemd manages the cgroup, its unit gets memory nodes, so that systemd keeps the cpuset controller there.
// others are all lanes in workloads' own cgroups.
func (v View) ownGroupSteps(root string, l plan.Lane, others []plan.Lane) []journal.Step {
	dir, partition := v.Own[l.Name], l.Spec.Cgroup.Partition != Member
	nodes := l.MemoryNodes
	if nodes.IsEmpty() {
		nodes = v.Host.MemoryNodes()
	}
	var steps []journal.Step
	if unit := v.managedUnit(root, dir); unit != "" {
		of := nodes
		if path.Join(root, unit) != dir { // others are in the unit too
			of = v.Host.MemoryNodes()
		}
		steps = append(steps, journal.Step{Kind: systemd.KindUnit,
			Target: systemd.UnitTarget(unit, "AllowedMemoryNodes"), After: of.String()})
	}
	var above []string
	for at := path.Dir(dir); at != root && at != "/"; at = path.Dir(at) {
		above = append(above, at)
	}
	slices.Reverse(above)
	for _, at := range append([]string{root}, above...) {
		steps = append(steps, controllerStep(at))
	}
	steps = append(steps, fileStep(path.Join(dir, "cpuset.mems"), nodes.String()))
	if !partition {
		return append(steps, fileStep(path.Join(dir, "cpuset.cpus"), l.CPUs.String()))
	}
	for _, at := range above { // other lanes may pass their CPUs on by the same cgroup
		steps = append(steps, fileStep(path.Join(at, ExclusiveFile), v.exclusiveCPUs(at, others).String()))
	}
	return append(steps, fileStep(path.Join(dir, ExclusiveFile), l.CPUs.String()))
}

// exclusiveCPUs returns the CPUs that a cgroup passes on: what it had, and those of all lanes below it.
func (v View) exclusiveCPUs(dir string, lanes []plan.Lane) cpuset.Set {
	var cpus cpuset.Set
	if text, err := fs.ReadFile(v.Root, path.Join(dir, ExclusiveFile)[1:]); err == nil {
		if had, perr := cpuset.Parse(trim(text)); perr == nil {
			cpus = cpus.Union(had)
		}
	}
	for _, l := range lanes {
		if strings.HasPrefix(v.Own[l.Name], dir+"/") && l.Spec.Cgroup.Partition != Member {
			cpus = cpus.Union(l.CPUs)
		}
	}
	return cpus
}

// managedUnit returns the service or scope of systemd that holds a cgroup, relative to root: the first cgroup
// on the way from the root that is no slice. It returns "" if there is none.
func (v View) managedUnit(root, dir string) string {
	if !exists(v.Root, "/run/systemd/system") { // sd_booted(3)
		return ""
	}
	parts := strings.Split(strings.TrimPrefix(dir, root+"/"), "/")
	for i, name := range parts {
		switch path.Ext(name) {
		case ".slice":
		case ".service", ".scope":
			return path.Join(parts[:i+1]...)
		default:
			return ""
		}
	}
	return ""
}
