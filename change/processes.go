package change

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
)

// KindProcesses is the processes in a cgroup that was made for them: Running or "". A runtime starts them,
// and Journal.Adopt records them. Undo kills them all, with the children of those that have died.
const KindProcesses = "processes"

type processes struct{ kernel }

func (processes) Check(s journal.Step) error { return checkOwnGroup(s.Target) }

func (p processes) Read(_ context.Context, s journal.Step) (string, error) {
	pids, err := p.members(s.Target)
	if err != nil || len(pids) == 0 {
		return "", err
	}
	return Running, nil
}

func (p processes) Write(ctx context.Context, s journal.Step, value string) error {
	if value != "" {
		return errors.New("processes are started by their runtime, not by the journal")
	}
	return p.endProcesses(ctx, s.Target)
}

// EndProcesses kills the processes of a cgroup of this host, until there are none.
func EndProcesses(ctx context.Context, group string) error {
	return kernel{"/"}.endProcesses(ctx, group)
}

func (k kernel) endProcesses(ctx context.Context, group string) error {
	errAlive := errors.New("processes still there after SIGKILL")
	return retry(ctx, 5*time.Second, errAlive, func() error {
		pids, err := k.members(group)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		return errAlive
	})
}

// askToEnd sends the processes of a cgroup a signal on which they end, and waits up to a second for that.
func (k kernel) askToEnd(ctx context.Context, group string, sig unix.Signal) error {
	pids, err := k.members(group)
	for _, pid := range pids {
		if kerr := unix.Kill(pid, sig); kerr != nil && !errors.Is(kerr, unix.ESRCH) {
			return kerr
		}
	}
	if err != nil || len(pids) == 0 {
		return err
	}
	errAlive := errors.New("still there")
	err = retry(ctx, time.Second, errAlive, func() error {
		left, merr := k.members(group)
		if len(left) > 0 {
			return errAlive
		}
		return merr
	})
	if errors.Is(err, errAlive) {
		err = nil
	}
	return err
}

func (k kernel) members(group string) ([]int, error) {
	text, err := k.read(path.Join(group, "cgroup.procs"))
	if errors.Is(err, unix.EOPNOTSUPP) { // threaded: in Isolane's own each process has one thread
		text, err = k.read(path.Join(group, "cgroup.threads"))
	}
	if err != nil {
		return nil, err
	}
	pids, err := cgroup.IDs(text)
	if err != nil {
		err = fmt.Errorf("%s: %w", group, err)
	}
	return pids, err
}
