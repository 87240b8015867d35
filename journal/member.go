package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
)

// member is the cgroup that one process is in, which is that of its main thread: Target is its TaskTarget,
// After the directory of the cgroup that takes it. The value before also holds what single threads have of
// their own, see pins.
type member struct{ kernel }

// Check lets processes move only into cgroups of Isolane's own, which are at the root of their hierarchy,
// and back into that hierarchy.
func (member) Check(s Step) error {
	dir, p, err := parsePins(s.Before)
	top := outside(s.After)
	if dir != "" {
		err = errors.Join(err, checkGroup(dir, top))
	}
	for _, own := range p {
		if own.group != "" {
			err = errors.Join(err, checkGroup(own.group, top))
		}
	}
	return errors.Join(err, checkTask(s.Target), ownGroup(s.After))
}

func checkGroup(dir, top string) error {
	if !path.IsAbs(dir) || path.Clean(dir) != dir || !below(dir, top) {
		return fmt.Errorf("%q: expected the directory of a cgroup below %s", dir, top)
	}
	return nil
}

func (member) Read(_ context.Context, s Step) (string, error) {
	pid, err := find(s.Target)
	if err != nil {
		return "", err
	}
	root := os.DirFS("/")
	h, err := HierarchyOf(root, s.After)
	if err != nil {
		return "", err
	}
	dir, err := h.Of(root, "proc/"+strconv.Itoa(pid))
	if err != nil || dir == s.After {
		return dir, ended(err)
	}
	p, err := pinsOf(threads(pid), h, dir)
	return dir + p.String(), err
}

func (m member) Write(_ context.Context, s Step, value string) error {
	pid, err := find(s.Target)
	if err != nil {
		return err
	}
	root := os.DirFS("/")
	h, err := HierarchyOf(root, s.After)
	if err != nil {
		return err
	}
	dir, keep, err := parsePins(value)
	if err != nil {
		return fmt.Errorf("member %s: %w", s.Target, err)
	}
	if dir == s.After {
		var from string
		if from, err = h.Of(root, "proc/"+strconv.Itoa(pid)); err != nil {
			return ended(err)
		}
		if keep, err = pinsOf(threads(pid), h, from); err == nil {
			err = m.join(dir, pid)
		}
	} else if err = m.rejoin(h, dir, pid); err == nil {
		err = m.scatter(threads(pid), keep)
	}
	if err != nil {
		return err
	}
	return keep.restore(threads(pid), h)
}

func (m member) join(dir string, pid int) error {
	return ended(m.write(path.Join(dir, "cgroup.procs"), strconv.Itoa(pid)))
}

// rejoin is join for the way back. The cgroup that it came from may have been removed: then the nearest
// one above it that takes processes.
func (m member) rejoin(h Hierarchy, dir string, pid int) error {
	for {
		err := m.join(dir, pid)
		if err == nil || dir == h.Mount || !below(dir, h.Mount) {
			return err
		}
		dir = filepath.Dir(dir)
	}
}

// scatter puts threads back into the threaded cgroups that they came from. All others stay in that of the
// main thread: those that are new, and those whose cgroup was removed or is no longer in the same domain
// (Documentation/admin-guide/cgroup-v2.rst, Threads).
func (m member) scatter(tids []int, p pins) error {
	var errs []error
	for _, tid := range tids {
		own, ok := p.of(tid)
		if !ok || own.group == "" {
			continue
		}
		err := m.write(path.Join(own.group, "cgroup.threads"), strconv.Itoa(tid))
		if err != nil && !slices.ContainsFunc([]error{unix.ESRCH, unix.ENOENT, unix.ENODEV, unix.EOPNOTSUPP},
			func(expected error) bool { return errors.Is(err, expected) }) {
			errs = append(errs, fmt.Errorf("thread %d: %w", tid, err))
		}
	}
	return errors.Join(errs...)
}

// ended makes the end of a task fs.ErrNotExist.
func ended(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return fs.ErrNotExist
	}
	return err
}

// threads are those of a process; none when it has ended.
func threads(pid int) []int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	var tids []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// cpusetCPUs are the CPUs of a cpuset of cgroup v1 that is not Isolane's: Target is its cpuset.cpus,
// After a cpulist. The value before also holds the affinities, see pins.
type cpusetCPUs struct{ file }

// Check lets a step change only the CPUs of a cpuset.
func (c cpusetCPUs) Check(s Step) error {
	before, p, err := parsePins(s.Before)
	if err == nil && path.Base(s.Target) != "cpuset.cpus" {
		err = fmt.Errorf("%s: expected a cpuset.cpus", s.Target)
	}
	for _, own := range p {
		if own.group != "" {
			err = fmt.Errorf("%q: expected affinities only", own.group)
		}
	}
	return errors.Join(err, c.file.Check(Step{Target: s.Target, Before: before, After: s.After}))
}

func (c cpusetCPUs) Read(ctx context.Context, s Step) (string, error) {
	now, err := c.file.Read(ctx, s)
	if err != nil || now == s.After {
		return now, err
	}
	p, err := pinsIn(s.Target)
	return now + p.String(), err
}

func (c cpusetCPUs) Write(ctx context.Context, s Step, value string) error {
	cpus, keep, err := parsePins(value)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Target, err)
	}
	if cpus == s.After {
		if keep, err = pinsIn(s.Target); err != nil {
			return err
		}
	}
	if err = c.file.Write(ctx, s, cpus); err != nil {
		return err
	}
	_, h, tids, err := tasksOf(s.Target)
	if err != nil || len(tids) == 0 {
		return err
	}
	return keep.restore(tids, h)
}

func pinsIn(file string) (pins, error) {
	dir, h, tids, err := tasksOf(file)
	if err != nil || len(tids) == 0 {
		return nil, err
	}
	return pinsOf(tids, h, dir)
}

// tasksOf returns the threads that are in the cgroup which a file belongs to.
func tasksOf(file string) (dir string, h Hierarchy, tids []int, err error) {
	dir = filepath.Dir(file)
	if h, err = HierarchyOf(os.DirFS("/"), dir); err != nil {
		return "", h, nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "tasks"))
	for _, f := range strings.Fields(string(data)) {
		if tid, aerr := strconv.Atoi(f); aerr == nil {
			tids = append(tids, tid)
		}
	}
	return dir, h, tids, err
}

// pins are the threads, by their TaskTarget, that have something of their own.
//
// CPUs: the thread may use fewer than its cpuset has. The kernel may forget that when the cpuset changes,
// and since Linux 6.2 remembers it too long: what a step of kind task asks for lasts beyond the way back
// (kernel/sched/core.c, user_cpus_ptr). So who changes a cpuset writes down the affinities and sets them
// again.
//
// A group: with cgroup v2 the thread is in another, threaded cgroup than the main thread. A process that
// leaves their domain has all its threads in one.
type pins map[string]pin

type pin struct {
	cpus  cpuset.Set // empty: all of its cpuset
	group string     // "": where the main thread is
}

// of returns what a thread has of its own.
func (p pins) of(tid int) (pin, bool) {
	start, err := StartTime(tid)
	if err != nil {
		return pin{}, false // it has ended
	}
	own, ok := p[TaskTarget(tid, start)]
	return own, ok
}

// pinsOf reads them of threads whose main thread is in the cgroup dir.
func pinsOf(tids []int, h Hierarchy, dir string) (pins, error) {
	p := pins{}
	for _, tid := range tids {
		start, err := StartTime(tid)
		if err != nil {
			continue // it has ended
		}
		group, all, err := h.place(tid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		target, own := TaskTarget(tid, start), pin{}
		may, err := Affinity(tid)
		if err != nil {
			continue
		}
		if !all.IsSubsetOf(may) {
			own.cpus = may
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

// place returns the cgroup of a thread, and the CPUs that this gives it; fs.ErrNotExist when it has ended.
func (h Hierarchy) place(tid int) (string, cpuset.Set, error) {
	root := os.DirFS("/")
	group, err := h.Of(root, "proc/"+strconv.Itoa(tid))
	if err != nil {
		return "", cpuset.Set{}, ended(err)
	}
	cpus, err := h.CPUs(root, group)
	return group, cpus, err
}

// restore gives each thread the CPUs that it had of its own, where its cpuset has them, and all
// others every CPU of the cpuset, also those that it gets later.
func (p pins) restore(tids []int, h Hierarchy) error {
	var errs []error
	for _, tid := range tids {
		_, all, err := h.place(tid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if own, _ := p.of(tid); own.cpus.IsEmpty() || !own.cpus.IsSubsetOf(all) {
			err = ResetAffinity(tid)
		} else {
			err = SetAffinity(tid, own.cpus)
		}
		// Some threads of the kernel in a process, such as io_uring's, refuse (PF_NO_SETAFFINITY).
		if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("thread %d: %w", tid, err))
		}
	}
	return errors.Join(errs...)
}

// String is a line a thread, each after a line feed, which no path and no cpulist has: tid:start=cpulist,
// and behind a space the cgroup.
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

// parsePins splits a value into what stands before the pins, and these.
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
