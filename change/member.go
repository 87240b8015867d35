package change

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
)

// KindMember moves a process, with all its threads, to a cgroup. Target is its TaskTarget, After the cgroup's
// directory. The value before is the cgroup of its main thread, and what its threads have of their own, see
// pins.
const KindMember = "member"

type member struct{ kernel }

// Check lets processes move only into Isolane's own cgroups at the root of their hierarchy, and back from
// them.
func (member) Check(s journal.Step) error {
	dir, p, err := parsePins(s.Before)
	top := foreignAncestor(s.After)
	if dir != "" {
		err = errors.Join(err, checkGroup(dir, top))
	}
	for _, own := range p {
		if own.group != "" {
			err = errors.Join(err, checkGroup(own.group, top))
		}
	}
	return errors.Join(err, checkTask(s.Target), checkOwnGroup(s.After))
}

func checkGroup(dir, top string) error {
	if !path.IsAbs(dir) || path.Clean(dir) != dir || !cgroup.IsBelow(dir, top) {
		return fmt.Errorf("%q: expected the directory of a cgroup below %s", dir, top)
	}
	return nil
}

// Ends returns true: any process may end.
func (member) Ends(journal.Step) bool { return true }

// Name names the process.
func (member) Name(s journal.Step) string { return taskName("cgroup of process", s.Target) }

func (member) Read(_ context.Context, s journal.Step) (string, error) {
	pid, err := findTask(host.Live(), s.Target)
	if err != nil {
		return "", err
	}
	root := host.Live()
	h, err := cgroup.HierarchyOf(root, s.After)
	if err != nil {
		return "", err
	}
	dir, err := placeOfProcess(root, h, pid)
	if err != nil || dir == s.After {
		return dir, err
	}
	p, err := pinsOf(task.Threads(root, pid), h, dir)
	return dir + p.String(), err
}

// placeOfProcess returns the cgroup of the first thread that is not dead, or fs.ErrNotExist. A zombie stays
// in its cgroup, but with cgroup v1 the kernel reports it at the root.
func placeOfProcess(root fs.FS, h cgroup.Hierarchy, pid int) (string, error) {
	for _, tid := range task.Threads(root, pid) {
		dir := task.ThreadDir(pid, tid)
		if t, err := task.ReadStat(root, dir); err == nil && !t.Dead() {
			return h.Of(root, dir)
		}
	}
	return "", fs.ErrNotExist
}

func (m member) Write(_ context.Context, s journal.Step, value string) error {
	pid, err := findTask(host.Live(), s.Target)
	if err != nil {
		return err
	}
	root := host.Live()
	h, err := cgroup.HierarchyOf(root, s.After)
	if err != nil {
		return err
	}
	dir, keep, err := parsePins(value)
	if err != nil {
		return fmt.Errorf("member %s: %w", s.Target, err)
	}
	if dir == s.After {
		var from string
		if from, err = placeOfProcess(root, h, pid); err != nil {
			return err
		}
		if keep, err = pinsOf(task.Threads(root, pid), h, from); err == nil {
			err = m.join(dir, pid)
		}
	} else if err = m.rejoin(h, dir, pid); err == nil {
		err = m.restoreThreadGroups(task.Threads(root, pid), keep)
	}
	if err != nil {
		return err
	}
	return keep.restore(task.Threads(root, pid), h)
}

func (m member) join(dir string, pid int) error {
	return task.Ended(m.write(path.Join(dir, "cgroup.procs"), strconv.Itoa(pid)))
}

// rejoin moves the process back to dir. If dir has been removed, it tries the ancestors, the nearest first.
func (m member) rejoin(h cgroup.Hierarchy, dir string, pid int) error {
	for {
		err := m.join(dir, pid)
		if err == nil || dir == h.Mount || !cgroup.IsBelow(dir, h.Mount) {
			return err
		}
		dir = path.Dir(dir)
	}
}

// restoreThreadGroups puts threads back into the threaded cgroups that they came from. The others stay with
// the main thread: new ones, and those whose cgroup was removed or is no longer in the same domain
// (Documentation/admin-guide/cgroup-v2.rst, Threads).
func (m member) restoreThreadGroups(tids []int, p pins) error {
	var errs []error
	for _, tid := range tids {
		own, ok := p.pinOf(tid)
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
