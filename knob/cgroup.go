package knob

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// errNoCpuset says that the host has no cgroup hierarchy with the cpuset controller.
var errNoCpuset = errors.New("no cgroup hierarchy with the cpuset controller: mount one, or boot a kernel " +
	"with CONFIG_CPUSETS")

// Group is a cgroup with CPUs and memory nodes of its own. The caller must set CPUs.
type Group struct {
	Name        string // the directory is isolane-<name>
	CPUs        cpuset.Set
	MemoryNodes cpuset.Set // empty: all
}

// GroupDir returns the directory of the group of that name. A process joins by its cgroup.procs.
func GroupDir(h host.Host, name string) (string, error) {
	root, _, err := cpusetRoot(h)
	return path.Join(root, change.GroupPrefix+name), err
}

// cpusetRoot returns where cpuset cgroups are made, and whether they are of cgroup v2.
func cpusetRoot(h host.Host) (string, bool, error) {
	c := h.Kernel.Cgroup
	root, v2 := c.Cpuset()
	if root == "" || v2 && !slices.Contains(c.UnifiedControllers, "cpuset") {
		return "", false, errNoCpuset
	}
	return root, v2, nil
}

// Hierarchies returns the directories in which Isolane makes cgroups; none if the host has no cpusets.
func Hierarchies(root fs.FS) ([]string, error) {
	c, err := cgroup.Mounted(root)
	if err != nil {
		return nil, err
	}
	top, _, err := cpusetRoot(host.Host{Kernel: host.Kernel{Cgroup: c}})
	if errors.Is(err, errNoCpuset) {
		return nil, nil
	}
	tops := []string{top}
	if c.MemoryV1 != nil && *c.MemoryV1 != top {
		tops = append(tops, *c.MemoryV1)
	}
	return tops, err
}

// Place says where a lane's processes are, and who spreads their threads over its CPUs.
type Place struct {
	Dir     string // their cgroup
	Own     bool   // it is the workload's, made by its service manager or container runtime
	Balance string // who spreads the threads, for people
	Spread  bool   // Isolane does
	// PartitionDir is the cgroup that is the partition of the lane, alone or with others.
	PartitionDir string
}

// Place returns the place of a lane. It fails if no hierarchy has the cpuset controller.
func (v View) Place(l plan.Lane) (Place, error) {
	root, v2, err := cpusetRoot(v.Host)
	if err != nil {
		return Place{}, err
	}
	p := Place{Dir: v.laneDir(root, v2, l), Own: v.Own[l.Name] != "", Balance: v.describeBalance(l),
		Spread: v.isSpread(l)}
	if p.PartitionDir = p.Dir; v2 && sharesCPUs(l) {
		p.PartitionDir = path.Dir(p.Dir)
	}
	return p, nil
}

// Groups returns the steps that make cpuset cgroups.
func Groups(h host.Host, groups ...Group) ([]journal.Step, error) {
	root, v2, err := cpusetRoot(h)
	if err != nil {
		return nil, err
	}
	var steps []journal.Step
	if v2 {
		steps = append(steps, controllerStep(root))
	}
	for _, g := range groups {
		steps = append(steps, g.steps(h, root)...)
	}
	return steps, nil
}

func (g Group) steps(h host.Host, root string) []journal.Step {
	nodes := g.MemoryNodes
	if nodes.IsEmpty() {
		nodes = h.MemoryNodes()
	}
	dir := path.Join(root, change.GroupPrefix+g.Name)
	return []journal.Step{{Kind: change.KindCgroup, Target: dir, After: change.Present},
		attributeStep(dir, "cpuset.cpus", g.CPUs.String()), attributeStep(dir, "cpuset.mems", nodes.String())}
}

func attributeStep(dir, name, value string) journal.Step {
	return journal.Step{Kind: change.KindAttribute, Target: path.Join(dir, name), After: value}
}

// housekeeping is the group of everything that is in no lane, with cgroup v1.
const housekeeping = "housekeeping"

// siblingsGroup returns the group that holds the SMT siblings of a lane's CPUs, and no process. The tilde
// keeps it apart from lanes, whose names cannot have one.
func siblingsGroup(lane string) string { return lane + "~siblings" }

// otherCPUs returns the CPUs that cpusets beside the lanes' may have: housekeeping, and what boot isolated,
// for workloads that ask for that.
func (v View) otherCPUs(p plan.Placement) cpuset.Set {
	return p.Housekeeping.Union(v.Host.BootIsolated().Difference(p.CPUs()))
}

// Cpusets gives each lane its cgroup and keeps all other tasks off the lanes' CPUs. With cgroup v2 the lane
// is a partition: the kernel itself takes its CPUs from everybody else
// (Documentation/admin-guide/cgroup-v2.rst, "cpuset.cpus.partition"). With v1 all others are moved into a
// housekeeping cpuset, and the scheduler balances only that one and those of balanced lanes
// (Documentation/admin-guide/cgroup-v1/cpusets.rst).
func Cpusets(v View, p plan.Placement) ([]journal.Step, error) {
	root, v2, err := cpusetRoot(v.Host)
	if err != nil {
		return nil, err
	}
	if v2 {
		return partitionSteps(v, root, p)
	}
	groups := []Group{{Name: housekeeping, CPUs: v.otherCPUs(p)}}
	balance := map[string]string{}
	for _, l := range p.Lanes {
		groups = append(groups, Group{Name: l.Name, CPUs: l.CPUs, MemoryNodes: l.MemoryNodes})
		if l.Spec.Balanced() {
			balance[l.Name] = "1"
		}
		if !l.Idle.IsEmpty() {
			groups = append(groups, Group{Name: siblingsGroup(l.Name), CPUs: l.Idle, MemoryNodes: l.MemoryNodes})
		}
	}
	steps, err := Groups(v.Host, groups...)
	if err != nil {
		return nil, err
	}
	swap, err := noSwap(v, root, p)
	if err != nil {
		return nil, err
	}
	steps = append(steps, swap...)
	for _, g := range groups[1:] {
		dir := path.Join(root, change.GroupPrefix+g.Name)
		steps = append(steps, attributeStep(dir, "cpuset.memory_migrate", "1"),
			attributeStep(dir, "cpuset.sched_load_balance", cmp.Or(balance[g.Name], "0")))
	}
	others, err := v.narrowOtherCpusets(root, p)
	steps = append(steps, others...)
	return append(steps, journal.Step{Kind: change.KindTasks, Target: root,
		After: path.Join(root, change.GroupPrefix+housekeeping)},
		fileStep(path.Join(root, "cpuset.sched_load_balance"), "0")), err
}

// narrowOtherCpusets takes the lanes' CPUs out of other people's cpusets of cgroup v1, the deepest first,
// because a cpuset's CPUs must be its parent's too. It fails if a cpuset with processes would have none left:
// they would be in the lanes. One that came after the lanes gets those of housekeeping, as the kernel does it
// with v2. A cpuset that is attached to a lane keeps the lane's CPUs, and so do those above it.
func (v View) narrowOtherCpusets(mount string, p plan.Placement) ([]journal.Step, error) {
	cpus := p.CPUs()
	var steps, wider []journal.Step
	top := strings.TrimPrefix(mount, "/")
	above := map[string]cpuset.Set{} // by name, the CPUs of cpusets above attached ones
	err := fs.WalkDir(v.Root, top, func(name string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone meanwhile
			return nil
		case err != nil || !e.IsDir() || name == top:
			return err
		case strings.HasPrefix(e.Name(), change.GroupPrefix), slices.Contains(v.Attached, "/"+name):
			return fs.SkipDir
		case slices.ContainsFunc(v.Attached, func(dir string) bool { return strings.HasPrefix(dir, "/"+name+"/") }):
			// If it stayed balanced, the scheduler would balance it together with the lane below it.
			steps = append(steps, optional(fileStep("/"+path.Join(name, "cpuset.sched_load_balance"), "0")))
			more, has := v.cpusAboveAttached(name, above, cpus)
			above[name], wider = has, append(wider, more...)
			return nil
		}
		list, err := fs.ReadFile(v.Root, path.Join(name, "cpuset.cpus"))
		if err != nil {
			return nil // gone meanwhile
		}
		now, err := cpuset.Parse(trim(list))
		if err != nil {
			return fmt.Errorf("/%s/cpuset.cpus: %w", name, err)
		}
		to := now.Difference(cpus)
		if !now.Intersects(cpus) {
			return nil
		}
		if to.IsEmpty() {
			procs, _ := fs.ReadFile(v.Root, path.Join(name, "cgroup.procs")) // empty if it is gone
			if trim(procs) == "" {
				return nil
			}
			if !now.IsSubsetOf(v.lanes) {
				return fmt.Errorf("/%s: has processes and only CPUs %s, which are to be the lanes': give it others, "+
					"or end them", name, now)
			}
			to = v.otherCPUs(p)
		}
		steps = append(steps, optional(fileStep("/"+path.Join(name, "cpuset.cpus"), to.String())))
		return nil
	})
	slices.Reverse(steps)
	return append(steps, wider...), err
}

// cpusAboveAttached returns the CPUs of a cpuset above an attached one. If all that it lacks of its parent's
// CPUs is the lanes', it was made while they were in force, as a pod's cgroup is: a step then adds them.
func (v View) cpusAboveAttached(name string, above map[string]cpuset.Set, lanes cpuset.Set) (
	[]journal.Step, cpuset.Set,
) {
	has, err := cpuset.Read(v.Root, path.Join(name, "cpuset.cpus"))
	parent, is := above[path.Dir(name)]
	lacks := parent.Difference(has)
	if err != nil || !is || lacks.IsEmpty() || !lacks.IsSubsetOf(lanes) {
		return nil, has
	}
	all := has.Union(lacks)
	return []journal.Step{fileStep("/"+path.Join(name, "cpuset.cpus"), all.String())}, all
}

// cpusetDefaults ends the partitions of Isolane's cgroups. A partition in another cgroup may be a lane in its
// workload's cgroup, or somebody else's. With cgroup v1 the scheduler balances all CPUs again, and a cpuset
// with all CPUs except the lanes' gets these back, the topmost first.
func cpusetDefaults(u *Unrecorded) error {
	root, v2, err := cpusetRoot(u.Host)
	if err != nil {
		return err
	}
	if !v2 {
		u.addStep(fileStep(path.Join(root, "cpuset.sched_load_balance"), "1"))
	}
	online := u.Host.Online()
	return fs.WalkDir(u.Root, root[1:], func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // gone meanwhile
			return nil
		}
		if err != nil || !e.IsDir() || "/"+name == root {
			return err
		}
		own := strings.HasPrefix(e.Name(), change.GroupPrefix)
		if !v2 && own {
			return fs.SkipDir
		}
		list, _ := fs.ReadFile(u.Root, path.Join(name, "cpuset.cpus"))
		cpus, perr := cpuset.Parse(trim(list)) // empty if it is gone
		kind, kerr := fs.ReadFile(u.Root, path.Join(name, PartitionFile))
		partition := v2 && kerr == nil && !strings.HasPrefix(trim(kind), Member)
		switch {
		case partition && own:
			u.addStep(fileStep("/"+path.Join(name, PartitionFile), Member))
		case partition:
			u.addUnknown("/"+path.Join(name, PartitionFile),
				"if a lane was in this cgroup, write member there, then empty its "+ExclusiveFile)
		case !v2 && perr == nil && cpus == u.withoutLanes(online):
			u.addStep(fileStep("/"+path.Join(name, "cpuset.cpus"), online.String()))
		}
		return nil
	})
}
