package change

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
)

// KindTasks moves the processes of a cgroup: Target is the cgroup that they leave, After the one that takes
// them. Kernel threads stay: their affinities are set instead (KindTask).
const KindTasks = "tasks"

type tasks struct{ kernel }

func (tasks) Check(s journal.Step) error {
	if !path.IsAbs(s.Target) || path.Clean(s.Target) != s.Target || path.Dir(s.After) != s.Target {
		return fmt.Errorf("%q to %q: expected a cgroup and one in it", s.Target, s.After)
	}
	return checkOwnGroup(s.After)
}

// Read returns After if a killed process has left the cgroup frozen: the move had begun, and undo thaws it.
func (t tasks) Read(_ context.Context, s journal.Step) (string, error) {
	if dir, err := t.open(s.Target, unix.O_RDONLY|unix.O_DIRECTORY); err == nil {
		defer dir.Close()
		if s.Before == s.Target && isFrozen(dir) {
			return s.After, nil
		}
	}
	pids, err := t.members(s.After)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(pids) == 0 {
		return s.Target, nil
	}
	return s.After, err
}

// InForce reports whether all processes have left. Others may have come after the move.
func (t tasks) InForce(_ context.Context, s journal.Step, _ string) (bool, error) {
	pids, err := t.members(s.Target)
	return !slices.ContainsFunc(pids, func(pid int) bool { return !isKernelThread(pid) }), err
}

func (t tasks) Write(ctx context.Context, s journal.Step, to string) error {
	if to == s.Target {
		return t.move(ctx, s.After, to, func(int) bool { return true })
	}
	return t.move(ctx, s.Target, to, func(pid int) bool { return !isKernelThread(pid) })
}

// isKernelThread reports whether a process is the kernel's, or has ended: those do not move.
func isKernelThread(pid int) bool {
	t, err := task.ReadStat(host.Live(), task.Dir(pid))
	return errors.Is(err, fs.ErrNotExist) || err == nil && (t.Kernel || t.Dead())
}

// Shell returns a command that moves the processes.
func (tasks) Shell(s journal.Step) string {
	from, to := s.Target, s.After
	if s.After == s.Target {
		from, to = s.Before, s.After
	}
	return fmt.Sprintf("for p in $(cat %s/cgroup.procs); do echo $p > %s/cgroup.procs; done", from, to)
}

// Describe says which processes move, and where.
func (tasks) Describe(s journal.Step) (name, from, to string) {
	if s.After == s.Target { // an undo: the processes are where Before says
		return "processes of " + s.Target, s.Before, s.After
	}
	return "processes of " + s.Target, s.Target, s.After
}

// DescribeDrift says that other processes are there.
func (tasks) DescribeDrift(s journal.Step) (expected, found string) {
	if s.After == s.Target {
		return s.After, s.Before
	}
	return "no process of its own", "processes that were born or moved there"
}

// movingTime limits how long move follows processes that keep being born. After half of it, move freezes the
// cgroup if the kernel can. A busy machine needs many rounds.
const movingTime = 30 * time.Second

// move moves the processes of one cgroup to another, also those born meanwhile. It waits for dying ones.
func (k kernel) move(ctx context.Context, from, to string, which func(pid int) bool) error {
	errLeft := errors.New("processes are left")
	left, begun := 0, time.Now()
	if err := errors.Join(k.thaw(from), k.thaw(to)); err != nil {
		return err
	}
	stopped := false
	err := retry(ctx, movingTime, errLeft, func() error {
		if !stopped && k.isLive() && time.Since(begun) > movingTime/2 {
			stopped = k.freeze(from) // whoever is moved out continues
		}
		var err error
		left, err = k.moveOnce(from, to, which)
		if err == nil && left > 0 {
			err = errLeft
		}
		return err
	})
	if errors.Is(err, errLeft) {
		err = fmt.Errorf("%s: processes are born there faster than they can be moved to %s, "+
			"%d in the last round: try again, or when less is started", from, to, left)
	}
	return errors.Join(err, k.thaw(from))
}

// moveOnce moves the processes that are there now, and returns how many there were.
func (k kernel) moveOnce(from, to string, which func(pid int) bool) (int, error) {
	pids, err := k.members(from)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, pid := range pids {
		if !which(pid) {
			continue
		}
		err = k.write(path.Join(to, "cgroup.procs"), strconv.Itoa(pid))
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return n, fmt.Errorf("process %d: %w", pid, err)
		}
		n++
	}
	return n, nil
}
