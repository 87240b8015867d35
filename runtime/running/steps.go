package running

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
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

// Resolve returns the absolute directory of a cgroup in the hierarchy with the cpuset controller. group is
// absolute, or relative to the root of that hierarchy, such as docker/ID. It must be below that root and
// contain no "..". It must not be one of Isolane's own, and no part of it may be a symbolic link.
func Resolve(h host.Host, root fs.FS, group string) (string, error) {
	lane, err := knob.GroupDir(h, "any") // only its parent counts
	if err != nil {
		return "", err
	}
	top := path.Dir(lane)
	dir := group
	if !path.IsAbs(group) {
		dir = path.Join(top, group)
	}
	if slices.Contains(strings.Split(group, "/"), "..") || !strings.HasPrefix(path.Clean(dir), top+"/") {
		return "", fmt.Errorf("cgroup %q: expected a directory below %s, which has the cpuset controller", group,
			top)
	}
	dir = path.Clean(dir)
	if strings.HasPrefix(dir, path.Join(top, change.GroupPrefix)) {
		return "", fmt.Errorf("cgroup %q: expected one of a workload, found one of Isolane's own", group)
	}
	for at := dir; at != top; at = path.Dir(at) {
		var info fs.FileInfo
		if info, err = fs.Lstat(root, at[1:]); err != nil {
			return "", fmt.Errorf("cgroup %q: %w", group, err)
		}
		if !info.IsDir() {
			return "", fmt.Errorf("cgroup %q: %s: expected a directory, found %s", group, at, info.Mode().Type())
		}
	}
	mounted, err := cgroup.HierarchyOf(root, dir)
	if err == nil && mounted.Mount != top {
		err = fmt.Errorf("cgroup %q: expected a cgroup of %s, found one of %s", group, top, mounted.Mount)
	}
	return dir, err
}

// InService reports whether a process is in a service of systemd's that is not a user's session, with cgroup
// v2.
func InService(h host.Host, root fs.FS, pid int) bool {
	lane, err := knob.GroupDir(h, "any") // only its parent counts
	if err != nil {
		return false
	}
	hier, err := cgroup.HierarchyOf(root, path.Dir(lane))
	if err != nil || !hier.V2 {
		return false
	}
	group, err := hier.Of(root, task.Dir(pid))
	_, booted := fs.Stat(root, "run/systemd/system") // sd_booted(3)
	return err == nil && booted == nil && strings.HasSuffix(group, ".service")
}

// OwnGroup returns the cgroup of a process if only the process and its descendants are in it, as in a
// container, or if it is the first process of a systemd service: there, descendants may have lost their
// parent.
func OwnGroup(h host.Host, root fs.FS, pid int) (string, bool) {
	lane, err := knob.GroupDir(h, "any") // only its parent counts
	if err != nil {
		return "", false
	}
	hier, err := cgroup.HierarchyOf(root, path.Dir(lane))
	if err != nil {
		return "", false
	}
	group, err := hier.Of(root, task.Dir(pid))
	for err == nil && threaded(root, group) { // as with libvirt: the process is in the one above
		group = path.Dir(group)
	}
	if err != nil || group == hier.Mount || strings.Contains(group, "/"+change.GroupPrefix) {
		return "", false
	}
	all, err := Cgroup(root, group)
	if err != nil {
		return "", false
	}
	if InService(h, root, pid) && first(all, pid) {
		return group, true
	}
	tree, err := Tree(root, pid)
	if err != nil {
		return "", false
	}
	return group, !slices.ContainsFunc(all, func(t Thread) bool {
		return !slices.ContainsFunc(tree, func(o Thread) bool { return o.PID == t.PID })
	})
}

// first reports whether no other process is older.
func first(all []Thread, pid int) bool {
	oldest := slices.MinFunc(all, func(a, b Thread) int { return cmp.Compare(a.Start, b.Start) })
	return oldest.PID == pid
}

// Steps returns the missing steps that bring the threads of an attachment into the lane, which is already in
// force in the cgroup dir, and warnings for the user.
//
// A workload stays in its own cgroup whenever the kernel can give that the lane's CPUs. Then limits,
// statistics and the view of its service manager or container runtime do not change, and new threads are born
// in the lane. With cgroup v1 the group's cpuset gets the lane's CPUs and memory nodes, as with `runc update
// --cpuset-cpus`. With v2 the group is already a partition if at.Own says so (enforce.Lanes.Attach).
// Otherwise the processes move into the lane's cgroup, because only tasks of a partition may use its CPUs
// (Documentation/admin-guide/cgroup-v2.rst). All threads of a process move with it and later come back, also
// those in threaded cgroups, as with libvirt.
func Steps(h host.Host, root fs.FS, l plan.Lane, dir string, at attached.Workload,
	threads []Thread) ([]journal.Step, []string, error) {
	hier, err := cgroup.HierarchyOf(root, dir)
	if err != nil {
		return nil, nil, err
	}
	if at.Group == dir && !at.Own {
		return nil, nil, fmt.Errorf("cgroup %s: expected another than the lane's own", at.Group)
	}
	a := attachment{host: h, root: root, lane: l, dir: dir, hierarchy: hier, moved: map[int]bool{},
		kept: map[string]bool{}}
	switch {
	case at.Own: // it has the lane's CPUs already: its threads keep their affinities
	case at.Group != "" && !hier.V2:
		err = a.regroup(at.Group)
	default:
		err = a.move(at, threads)
	}
	if err == nil && at.NoQuota {
		var quotas []journal.Step
		quotas, err = NoQuota(root, at.Group)
		a.steps = append(a.steps, quotas...)
	}
	if err == nil {
		err = a.noSwap(threads)
	}
	if err == nil {
		err = a.pin(threads)
	}
	return a.steps, a.warnings, err
}

type attachment struct {
	host      host.Host
	root      fs.FS
	lane      plan.Lane
	dir       string // the cgroup that the processes are to be in
	hierarchy cgroup.Hierarchy
	steps     []journal.Step
	warnings  []string
	all       bool            // the cpuset of all threads changes
	moved     map[int]bool    // the processes whose cpuset changes
	kept      map[string]bool // the units that have a keeper
}

// regroup changes a cpuset of cgroup v1 and those below it. Each must always contain the CPUs of those below
// it (Documentation/admin-guide/cgroup-v1/cpusets.rst). So from the top down each first gets the lane's CPUs
// in addition to its own, and then from the bottom up only the lane's.
func (a *attachment) regroup(group string) error {
	nodes := a.nodes()
	dirs, err := cgroup.Tree(a.root, group)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		kind, name string
		want       cpuset.Set
	}{{change.KindFile, "cpuset.mems", nodes}, {change.KindCpuset, "cpuset.cpus", a.lane.CPUs}} {
		if err := a.fits(group, f.name, f.want); err != nil {
			return err
		}
		var last []journal.Step
		for _, dir := range dirs {
			file := path.Join(dir, f.name)
			now, err := cpuset.Read(a.root, file[1:])
			if err != nil {
				return err
			}
			if now == f.want || now.IsEmpty() { // an empty one has no tasks
				continue
			}
			if both := now.Union(f.want); both != now && len(dirs) > 1 {
				a.steps = append(a.steps, journal.Step{Kind: f.kind, Target: file, After: both.String()})
			}
			last = append(last, journal.Step{Kind: f.kind, Target: file, After: f.want.String()})
			a.all = true
		}
		slices.Reverse(last)
		a.steps = append(a.steps, last...)
	}
	balance := "0"
	if a.lane.Spec.Balanced() {
		balance = "1"
	}
	for _, dir := range dirs {
		name := path.Join(dir, "cpuset.sched_load_balance")
		if now, err := fs.ReadFile(a.root, name[1:]); err == nil && strings.TrimSpace(string(now)) != balance {
			a.steps = append(a.steps, journal.Step{Kind: change.KindFile, Target: name, After: balance})
		}
	}
	if more := a.host.MemoryNodes().Difference(nodes); a.all && !more.IsEmpty() {
		a.warnings = append(a.warnings,
			fmt.Sprintf("cgroup %s: pages that it already has on nodes %s stay there: start it again, or move them "+
				"with migratepages(8)", group, more))
	}
	return nil
}

func (a *attachment) nodes() cpuset.Set {
	if a.lane.MemoryNodes.IsEmpty() {
		return a.host.MemoryNodes()
	}
	return a.lane.MemoryNodes
}

// fits returns an error unless the cgroups above one have what it is to get.
func (a *attachment) fits(group, name string, want cpuset.Set) error {
	for dir := path.Dir(group); len(dir) >= len(a.hierarchy.Mount); dir = path.Dir(dir) {
		file := path.Join(dir, name)
		has, err := cpuset.Read(a.root, file[1:])
		if err != nil {
			return err
		}
		if !want.IsSubsetOf(has) {
			return fmt.Errorf("%s: expected %s of lane %s in it, found %q: write them there", file, want, a.lane.Name,
				has)
		}
	}
	return nil
}

// move moves whole processes into the lane's cgroup. With v2 they go into a group within it, so that it is
// known later whose children are there.
func (a *attachment) move(at attached.Workload, threads []Thread) error {
	if _, err := fs.Stat(a.root, a.dir[1:]); err != nil {
		return fmt.Errorf("lane %s: %w: apply it first", a.lane.Name, err)
	}
	if a.hierarchy.V2 {
		a.dir = attached.MovedGroup(a.dir, at)
		if _, err := fs.Stat(a.root, a.dir[1:]); err != nil {
			a.steps = append(a.steps, journal.Step{Kind: change.KindCgroup, Target: a.dir, After: change.Present})
		}
	}
	var left []string
	for _, p := range byProcess(threads) {
		from, err := a.place(p)
		if errors.Is(err, fs.ErrNotExist) || from == a.dir {
			continue
		}
		if err != nil {
			return err
		}
		main := slices.IndexFunc(p, func(t Thread) bool { return t.TID == t.PID })
		if main < 0 {
			continue // it has ended
		}
		a.moved[p[main].PID] = true
		// A child may have ended before its turn.
		child := slices.ContainsFunc(threads, func(t Thread) bool { return t.PID == p[main].parent })
		kept := a.keep(from, p[main].PID)
		a.steps = append(a.steps, journal.Step{Kind: change.KindMember,
			Target: change.TaskTarget(p[main].PID, p[main].Start), After: a.dir, Optional: child})
		if from = a.domain(from); a.hierarchy.V2 && from != a.hierarchy.Mount && !slices.Contains(left, from) {
			left = append(left, from)
			a.warnMoved(from, kept)
		}
	}
	return nil
}

// warnMoved warns about the consequences of processes leaving their cgroup.
func (a *attachment) warnMoved(from string, kept bool) {
	back := "isolane release brings them back"
	if kept {
		back = "they come back with isolane release, and when systemd stops the unit (not with KillMode=process)"
	}
	a.warnings = append(a.warnings,
		fmt.Sprintf("MOVED out of cgroup %s to %s: its limits, statistics and freezer do not "+
			"reach them there, and what its runtime adds is born outside; %s", from, a.dir, back))
}

// place returns the cgroup of a process. With cgroup v2 that is the main thread's; the others may be in other
// threaded cgroups of the same domain. With v1 it fails if the threads are in several cgroups: such a process
// could not be put back.
func (a *attachment) place(p []Thread) (string, error) {
	if a.hierarchy.V2 {
		return a.hierarchy.Of(a.root, task.Dir(p[0].PID))
	}
	place := ""
	for _, t := range p {
		dir, err := a.hierarchy.Of(a.root, task.ThreadDir(t.PID, t.TID))
		if t.dead || errors.Is(err, fs.ErrNotExist) { // other threads may outlive the first
			continue
		}
		if err != nil {
			return "", err
		}
		if place != "" && dir != place {
			return "", fmt.Errorf("%s: expected all threads in one cgroup, found %s and %s: attach its cgroup instead",
				name(p), place, dir)
		}
		place = dir
	}
	if place == "" {
		return "", fs.ErrNotExist
	}
	return place, nil
}

// domain returns the nearest cgroup that is not threaded: it has the memory limits.
func (a *attachment) domain(dir string) string {
	for dir != a.hierarchy.Mount && threaded(a.root, dir) {
		dir = path.Dir(dir)
	}
	return dir
}

// keep keeps a service or scope of systemd alive after process pid has left it, by a keeper
// (change.KindKeeper).
func (a *attachment) keep(from string, pid int) bool {
	if _, err := fs.Stat(a.root, "run/systemd/system"); err != nil || !a.hierarchy.V2 { // sd_booted(3)
		return false
	}
	unit := from
	for !strings.HasSuffix(unit, ".scope") && !strings.HasSuffix(unit, ".service") {
		if unit == a.hierarchy.Mount {
			return false
		}
		unit = path.Dir(unit)
	}
	if !a.kept[unit] {
		a.kept[unit] = true
		group := change.KeeperGroup(unit, pid) // another attachment has its own
		a.steps = append(a.steps, journal.Step{Kind: change.KindCgroup, Target: group, After: change.Present},
			journal.Step{Kind: change.KindKeeper, Target: change.KeeperTarget(group, a.dir), After: change.Running})
	}
	return true
}

// pin gives threads with a role their CPUs, and every thread the scheduling that the lane asks for.
func (a *attachment) pin(threads []Thread) error {
	want, warnings := roles(a.host, a.root, a.lane, threads)
	a.warnings = append(a.warnings, warnings...)
	for _, t := range threads {
		r, ok := want[t.TID]
		if ok && (r.cpus != t.CPUs || a.all || a.moved[t.PID]) {
			a.steps = append(a.steps, journal.Step{Kind: change.KindTask, Target: change.TaskTarget(t.TID, t.Start),
				After:    r.cpus.String(),
				Optional: !r.one}) // the others come and go
		}
		if err := a.schedule(t, ok && !r.one); err != nil {
			return err
		}
	}
	return nil
}

// schedule gives a thread of a lane with fifo or rr what `run` would: that policy, or exact timers if the
// policy only helps threads that have a CPU to themselves. A thread that already has a real-time policy chose
// it itself and keeps it. The present scheduling is read from this machine, not from root.
func (a *attachment) schedule(t Thread, helps bool) error {
	lane := a.lane.Spec.Scheduling
	to := change.Scheduling{Policy: lane.Policy, Priority: lane.Priority}
	if !to.RealTime() {
		return nil
	}
	now, err := change.SchedulingOf(t.TID)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, change.ErrDeadline) || now.RealTime() {
		return nil
	}
	if helps {
		to = now
		to.Slack = 1 // 0 is the default
	}
	if err == nil && to != now {
		// it may end
		a.steps = append(a.steps, journal.Step{Kind: change.KindScheduling,
			Target: change.TaskTarget(t.TID, t.Start), After: to.String(), Optional: true})
	}
	return err
}
