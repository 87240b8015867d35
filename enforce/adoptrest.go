package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
)

// sysctls of the whole host.
func (a *adoption) sysctls(ctx context.Context) error {
	watched := a.possible
	if a.host.Kernel.NohzFull != nil {
		watched = watched.Difference(*a.host.Kernel.NohzFull)
	}
	for _, knob := range []struct{ name, ours, usual string }{
		{watchdogMask, "", watched.String()},
		{rtRuntime, "-1", "950000"},
		{busyPollFile, busyPollMicroseconds, "0"},
		{busyReadFile, busyPollMicroseconds, "0"},
	} {
		text, err := fs.ReadFile(a.root, knob.name)
		// the kernel has none, or it is not as lanes want it
		if err != nil || knob.ours != "" && trim(text) != knob.ours {
			continue
		}
		if err = a.set(ctx, file("/"+knob.name, knob.usual)); err != nil {
			return err
		}
	}
	return nil
}

// threads of the kernel that have all CPUs, or all of a node, but for the lanes', get these again.
func (a *adoption) threads(ctx context.Context) error {
	online := a.host.Online()
	usual := []cpuset.Set{online, online.Difference(a.host.BootIsolated())}
	for _, n := range a.host.NUMANodes {
		usual = append(usual, n.CPUs)
	}
	pids, err := task.Processes(a.root)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		t, now, terr := movable(a.root, pid)
		if terr != nil {
			continue
		}
		at := slices.IndexFunc(usual, func(cpus cpuset.Set) bool {
			return cpus.Intersects(a.lanes) &&
				now == a.without(cpus)
		})
		if at < 0 {
			continue
		}
		s := journal.Step{Kind: change.KindTask, Target: change.TaskTarget(pid, t.Start), After: usual[at].String()}
		if err = a.set(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// units of systemd's get back the CPUs that were taken until the next boot.
func (a *adoption) units(ctx context.Context) error {
	for _, name := range managedUnits() {
		dropIn := path.Join("run/systemd/system.control", name+".d", "50-AllowedCPUs.conf")
		if _, err := fs.Stat(a.root, dropIn); err != nil {
			continue
		}
		if err := a.set(ctx, journal.Step{Kind: change.KindUnit, Target: change.UnitTarget(name,
			"AllowedCPUs")}); err != nil {
			return err
		}
	}
	return nil
}

// otherCpusets of cgroup v1 that have all CPUs but the lanes' get these again, the highest first.
func (a *adoption) otherCpusets(ctx context.Context) error {
	root, v2, err := cpusetRoot(a.host)
	if err != nil || v2 {
		return err
	}
	online := a.host.Online()
	return fs.WalkDir(a.root, root[1:], func(name string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone meanwhile
			return nil
		case err != nil || !e.IsDir() || "/"+name == root:
			return err
		case strings.HasPrefix(e.Name(), change.GroupPrefix):
			return fs.SkipDir
		}
		list, rerr := fs.ReadFile(a.root, path.Join(name, "cpuset.cpus"))
		if now, perr := cpuset.Parse(trim(list)); rerr == nil && perr == nil && now == a.without(online) {
			return a.set(ctx, file("/"+path.Join(name, "cpuset.cpus"), online.String()))
		}
		return nil
	})
}

// remove takes the cgroups away, also those that keep the scopes of attached workloads.
func (a *adoption) remove(ctx context.Context) error {
	tops, err := a.hierarchies()
	if err != nil {
		return err
	}
	for _, top := range tops {
		err = fs.WalkDir(a.root, top[1:], func(name string, e fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil || !e.IsDir() || !change.IsKeeperGroup("/"+name):
				return err
			}
			if err = a.set(ctx, journal.Step{Kind: change.KindProcesses, Target: "/" + name}); err != nil {
				return err
			}
			if err = a.set(ctx, journal.Step{Kind: change.KindCgroup, Target: "/" + name}); err != nil {
				return err
			}
			return fs.SkipDir
		})
		if err != nil {
			return err
		}
	}
	for _, dir := range slices.Backward(a.groups) {
		if err = a.removeGroup(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// removeGroup removes a cgroup and those of Isolane's in it, the deepest first.
func (a *adoption) removeGroup(ctx context.Context, dir string) error {
	pids, err := cgroup.Processes(a.root, dir)
	if err != nil {
		return err
	}
	inside, err := fs.Glob(a.root, path.Join(dir, change.GroupPrefix+"*")[1:])
	for _, name := range inside {
		if err = a.removeGroup(ctx, "/"+name); err != nil {
			return err
		}
	}
	done := len(a.did)
	if err = errors.Join(err, a.set(ctx, journal.Step{Kind: change.KindCgroup, Target: dir})); err == nil &&
		len(pids) > 0 && len(a.did) > done {
		a.did[done].Note = fmt.Sprintf("its processes (%d) are in the cgroup above", len(pids))
	}
	return err
}

// unknown says what lanes may have changed and only the administrator knows the value of.
func (a *adoption) unknown() {
	pools, _ := fs.Glob(a.root, "sys/devices/system/node/node*/hugepages/hugepages-*/nr_hugepages")
	for _, name := range pools {
		if text, err := fs.ReadFile(a.root, name); err == nil && trim(text) != "0" {
			a.note("/"+name, trim(text)+" pages stay: how many of them were the lanes' is not known")
		}
	}
	devices, _ := fs.Glob(a.root, "sys/class/net/*")
	for _, name := range devices {
		target, ok := resolve(a.root, name)
		masks, _ := fs.Glob(a.root, target+"/queues/tx-*/xps_cpus")
		if ok && slices.ContainsFunc(masks, func(mask string) bool {
			now, _, is := readMask(a.root, mask)
			return is && !now.Intersects(a.lanes) && len(masks) > 1
		}) {
			a.note(path.Base(name), "the CPUs that send by its queues (xps_cpus) stay: its driver sets them when "+
				"the device comes up")
		}
	}
	a.partitions()
	a.note("CPUs of other threads",
		"what a program or taskset chose among CPUs "+a.lanes.String()+" before the lanes is not known")
}

// partitions of cgroup v2 that are not in Isolane's cgroups may be lanes in those of their workloads, or
// somebody else's.
func (a *adoption) partitions() {
	root, v2, err := cpusetRoot(a.host)
	if err != nil || !v2 {
		return
	}
	_ = fs.WalkDir(a.root, root[1:], func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() || "/"+name == root {
			return nil // gone meanwhile
		}
		text, rerr := fs.ReadFile(a.root, path.Join(name, partitionFile))
		if rerr == nil && !strings.HasPrefix(trim(text), member) {
			a.note("/"+path.Join(name, partitionFile),
				"if a lane was in this cgroup, write member there, then empty its "+exclusiveFile)
		}
		return nil
	})
}
