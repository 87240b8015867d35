package knob

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// kernelThreads moves movable kernel threads off the CPUs
// (Documentation/admin-guide/kernel-per-CPU-kthreads.rst). Those bound to a CPU stay: the witness shows what
// they cost. A thread that ends meanwhile, or refuses, is no error.
func kernelThreads(v View, p plan.Placement) ([]journal.Step, error) {
	pids, err := task.Processes(v.Root)
	if err != nil {
		return nil, err
	}
	var steps []journal.Step
	for _, pid := range pids {
		s, err := v.kernelThread(pid, p.CPUs())
		if err != nil {
			return nil, err
		}
		steps = append(steps, s...)
	}
	return steps, nil
}

func (v View) kernelThread(pid int, cpus cpuset.Set) ([]journal.Step, error) {
	t, err := readMovable(v.Root, pid)
	target := change.TaskTarget(pid, t.Start)
	var allowed cpuset.Set
	if known, is := v.recordedBefore(change.KindTask, target); is && err == nil {
		allowed = known
	} else if err == nil {
		allowed, err = task.ReadAllowed(v.Root, task.Dir(pid))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	to := allowed.Difference(cpus)
	// It is elsewhere, or bound to these CPUs by its owner. The kernel requires an online CPU in an affinity.
	if !allowed.Intersects(cpus) || !to.Intersects(v.Host.Online()) {
		return nil, nil
	}
	return []journal.Step{{Kind: change.KindTask, Target: target, After: to.String(), Optional: true}}, nil
}

// readMovable reads a kernel thread that may be moved. It fails with fs.ErrNotExist for any other task.
func readMovable(root fs.FS, pid int) (task.Stat, error) {
	t, err := task.ReadStat(root, task.Dir(pid))
	if err == nil && (!t.Kernel || !t.Movable()) {
		err = fs.ErrNotExist
	}
	return t, err
}

func trim(data []byte) string { return strings.TrimSpace(string(data)) }

// padMask pads a cpumask with zeros to the width in which the kernel prints it.
func padMask(mask, like string) string {
	for len(mask) < len(like) {
		if like[len(like)-len(mask)-1] == ',' {
			mask = "," + mask
		} else {
			mask = "0" + mask
		}
	}
	return mask
}

// kernelThreadDefaults gives kernel threads that have all CPUs except the lanes', or all of a node except the
// lanes', these back. They keep offline CPUs.
func kernelThreadDefaults(u *Unrecorded) error {
	online := u.Host.Online()
	usual := []cpuset.Set{online, online.Difference(u.Host.BootIsolated())}
	for _, n := range u.Host.NUMANodes {
		usual = append(usual, n.CPUs)
	}
	pids, err := task.Processes(u.Root)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		t, terr := readMovable(u.Root, pid)
		now, aerr := task.ReadAllowed(u.Root, task.Dir(pid))
		if errors.Join(terr, aerr) != nil {
			continue
		}
		here := now.Intersection(online)
		at := slices.IndexFunc(usual, func(cpus cpuset.Set) bool {
			return cpus.Intersects(u.Lanes) && here == u.withoutLanes(cpus).Intersection(online)
		})
		if at >= 0 {
			target := change.TaskTarget(pid, t.Start)
			u.addStep(journal.Step{Kind: change.KindTask, Target: target, After: now.Union(usual[at]).String()})
		}
	}
	return nil
}
