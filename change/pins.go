package change

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
)

// pins are the threads, by their TaskTarget, that have something of their own.
//
// CPUs: the thread's affinity is narrower than its cpuset. The kernel may forget that when the cpuset
// changes. Since Linux 6.2 it also remembers too long: an affinity that Isolane sets in the lane would still
// hold after the way back (kernel/sched/core.c, user_cpus_ptr). So each step that changes a thread's cpuset
// records the affinities and sets them again.
//
// Group: with cgroup v2 the thread is in another, threaded cgroup than the main thread. When a process leaves
// that threaded domain, the kernel puts all its threads in one cgroup.
type pins map[string]pin

type pin struct {
	cpus  cpuset.Set // empty: all of its cpuset
	group string     // "": the main thread's
}

// fitsIn reports whether the thread has CPUs of its own, and its cpuset, all, has those of them that are
// online. Offline CPUs are in no cpuset, and are the thread's again when they are back.
func (own pin) fitsIn(all, online cpuset.Set) bool {
	on := own.cpus.Intersection(online)
	return !on.IsEmpty() && on.IsSubsetOf(all)
}

// pinOf returns what a thread has of its own.
func (p pins) pinOf(tid int) (pin, bool) {
	if len(p) == 0 {
		return pin{}, false
	}
	start, err := task.StartTime(host.Live(), tid)
	own, ok := p[TaskTarget(tid, start)]
	return own, ok && err == nil // else it has ended
}

// pinsOf reads the pins of threads whose main thread is in the cgroup dir.
func pinsOf(tids []int, h cgroup.Hierarchy, dir string) (pins, error) {
	p, place := pins{}, placeFinder(h)
	for _, tid := range tids {
		start, err := task.StartTime(host.Live(), tid)
		if err != nil {
			continue // it has ended
		}
		group, all, err := place(tid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		target, own := TaskTarget(tid, start), pin{}
		may, err := task.Affinity(tid)
		if err == nil && !all.IsSubsetOf(may) {
			own.cpus, err = task.ReadAllowed(host.Live(), task.Dir(tid)) // with the offline ones
		}
		if err != nil {
			continue
		}
		if h.V2 && group != dir {
			own.group = group
		}
		if own != (pin{}) {
			p[target] = own
		}
	}
	return p, nil
}

// placeFinder returns a function that finds the cgroup of a thread, and the CPUs of that cgroup, which it
// reads only once. It fails with fs.ErrNotExist if the thread has ended.
func placeFinder(h cgroup.Hierarchy) func(tid int) (string, cpuset.Set, error) {
	known := map[string]cpuset.Set{}
	return func(tid int) (string, cpuset.Set, error) {
		group, err := h.Of(host.Live(), task.Dir(tid))
		if err != nil {
			return "", cpuset.Set{}, err
		}
		cpus, is := known[group]
		if !is {
			cpus, err = h.CPUs(host.Live(), group)
			known[group] = cpus
		}
		return group, cpus, err
	}
}

// restore gives each thread its own CPUs back if its cpuset has them. All others get every CPU of the cpuset,
// also those that it gets later.
func (p pins) restore(tids []int, h cgroup.Hierarchy) error {
	online, err := host.Online(host.Live())
	if err != nil {
		return err
	}
	errs, place := []error(nil), placeFinder(h)
	for _, tid := range tids {
		_, all, err := place(tid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if own, _ := p.pinOf(tid); !own.fitsIn(all, online) {
			err = task.ResetAffinity(tid)
		} else {
			err = task.SetAffinity(tid, own.cpus)
		}
		// Some kernel threads in a process, such as io_uring's, refuse (PF_NO_SETAFFINITY).
		if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("thread %d: %w", tid, err))
		}
	}
	return errors.Join(errs...)
}

// String returns one line per thread: tid:start=cpulist, then after a space the cgroup. Each line begins with
// a line feed, which no path and no cpulist contains.
func (p pins) String() string {
	var b strings.Builder
	for _, target := range slices.Sorted(maps.Keys(p)) {
		b.WriteString("\n" + target + "=" + p[target].cpus.String())
		if group := p[target].group; group != "" {
			b.WriteString(" " + group)
		}
	}
	return b.String()
}

// parsePins splits a value into what precedes the pins, and the pins.
func parsePins(value string) (string, pins, error) {
	head, rest, _ := strings.Cut(value, "\n")
	p := pins{}
	for line := range strings.Lines(rest) {
		target, own, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		list, group, _ := strings.Cut(own, " ")
		set, err := cpuset.Parse(list)
		if err != nil || set.IsEmpty() && group == "" {
			return "", nil, fmt.Errorf("%q: expected tid:start=cpulist, or this and a cgroup", line)
		}
		p[target] = pin{set, group}
	}
	return head, p, nil
}
