package knob

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// kernelThreads moves the kernel threads that may be moved off the CPUs
// (Documentation/admin-guide/kernel-per-CPU-kthreads.rst). Those bound to a CPU stay: the witness
// shows what they cost. A thread that ends meanwhile, or refuses, is no error.
func kernelThreads(v View, p plan.Placement) ([]journal.Step, error) {
	entries, err := fs.ReadDir(v.Root, "proc")
	if err != nil {
		return nil, err
	}
	var steps []journal.Step
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, err := v.kernelThread(pid, p.CPUs())
		if err != nil {
			return nil, err
		}
		steps = append(steps, s...)
	}
	return steps, nil
}

func (v View) kernelThread(pid int, cpus cpuset.Set) ([]journal.Step, error) {
	stat, err := fs.ReadFile(v.Root, fmt.Sprintf("proc/%d/stat", pid))
	if err != nil {
		return nil, gone(err)
	}
	t, err := host.ParseStat(string(stat))
	if err != nil {
		return nil, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	// The threads of interrupts follow their interrupt (kernel/irq/manage.c).
	if !t.Kernel || t.Fixed || strings.HasPrefix(t.Comm, "irq/") {
		return nil, nil
	}
	status, err := fs.ReadFile(v.Root, fmt.Sprintf("proc/%d/status", pid))
	if err != nil {
		return nil, gone(err)
	}
	allowed, err := allowedList(string(status))
	if err != nil {
		return nil, fmt.Errorf("/proc/%d/status: %w", pid, err)
	}
	target := change.TaskTarget(pid, t.Start)
	allowed = v.cpusBefore(change.KindTask, target, allowed)
	to := allowed.Difference(cpus)
	if !allowed.Intersects(cpus) || to.IsEmpty() { // elsewhere, or bound there by its owner
		return nil, nil
	}
	return []journal.Step{{Kind: change.KindTask, Target: target, After: to.String(), Optional: true}}, nil
}

// gone turns the end of a process between two reads into nothing to do.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "no such process") {
		return nil
	}
	return err
}

func allowedList(status string) (cpuset.Set, error) {
	for line := range strings.Lines(status) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return cpuset.Parse(list)
		}
	}
	return cpuset.Set{}, errors.New("expected a line Cpus_allowed_list")
}

func trim(data []byte) string { return strings.TrimSpace(string(data)) }

// widen pads a cpumask with zeros to the width in which the kernel prints it.
func widen(mask, like string) string {
	for len(mask) < len(like) {
		if like[len(like)-len(mask)-1] == ',' {
			mask = "," + mask
		} else {
			mask = "0" + mask
		}
	}
	return mask
}

// kernelThreadDefaults gives threads of the kernel that have all CPUs, or all of a node, but for the lanes',
// these again.
func kernelThreadDefaults(u *Unrecorded) error {
	online := u.Host.Online()
	usual := []cpuset.Set{online, online.Difference(u.Host.BootIsolated())}
	for _, n := range u.Host.NUMANodes {
		usual = append(usual, n.CPUs)
	}
	entries, err := fs.ReadDir(u.Root, "proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, aerr := strconv.Atoi(e.Name())
		if aerr != nil {
			continue
		}
		stat, serr := fs.ReadFile(u.Root, path.Join("proc", e.Name(), "stat"))
		status, terr := fs.ReadFile(u.Root, path.Join("proc", e.Name(), "status"))
		t, perr := host.ParseStat(string(stat))
		now, lerr := allowedList(string(status))
		if errors.Join(serr, terr, perr, lerr) != nil || !t.Kernel || t.Fixed || strings.HasPrefix(t.Comm, "irq/") {
			continue // as in kernelThread
		}
		at := slices.IndexFunc(usual, func(cpus cpuset.Set) bool {
			return cpus.Intersects(u.Lanes) && now == u.without(cpus)
		})
		if at >= 0 {
			target := change.TaskTarget(pid, t.Start)
			u.set(journal.Step{Kind: change.KindTask, Target: target, After: usual[at].String()})
		}
	}
	return nil
}
