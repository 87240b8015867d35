package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/lanes"
)

// workload is how an Instance runs in its lane.
type workload interface {
	// checkPossible says why this host cannot run it. ours: this agent has begun it.
	checkPossible(ctx context.Context, ours bool) error
	// isRunning reports whether it runs, given the processes in its lane.
	isRunning(ctx context.Context, pids []int) (bool, error)
	// begin starts it in its lane, which must be in force.
	begin(ctx context.Context, l *lanes.Lanes) error
	// end ends it and everything else in its lane. It does not wait for that: the error is an api.NotYet while
	// something is left.
	end(ctx context.Context) error
	// whereOutput says where to find its output.
	whereOutput() string
}

func (p *Instances) workload(name string, spec api.InstanceSpec) workload {
	c := command{p, name, spec}
	switch {
	case p.cluster != nil:
		return pod{c}
	case spec.Service != "":
		return service{c}
	case spec.Image != "":
		return container{c}
	}
	return c
}

// command is a program of the host.
type command struct {
	*Instances
	name string
	spec api.InstanceSpec
}

func (command) checkPossible(context.Context, bool) error { return nil }

func (command) isRunning(_ context.Context, pids []int) (bool, error) { return len(pids) > 0, nil }

func (c command) begin(_ context.Context, l *lanes.Lanes) error {
	with, err := c.runAs(c.name, c.spec)
	if err != nil {
		return err
	}
	return c.launch(l, with, c.spec.Command)
}

func (c command) end(ctx context.Context) error {
	left, err := c.remainingProcesses()
	if err != nil {
		return err
	}
	return c.endInBackground(ctx, func(context.Context) (bool, error) {
		pids, perr := left()
		return len(pids) > 0, perr
	}, func(ctx context.Context) error { return kill(ctx, left) })
}

// remainingProcesses returns a function that lists the processes in the lane, and those that the command had
// started before a person released the lane.
func (c command) remainingProcesses() (func() ([]int, error), error) {
	began, err := readSession(c.sessionFile(c.name))
	if err != nil {
		return nil, err
	}
	g, _, err := c.laneGroup(c.name)
	if err != nil && !isNoLane(err) {
		return nil, err
	}
	return func() ([]int, error) {
		pids, perr := began.processes()
		if g.Dir != "" {
			in, ierr := cgroup.Processes(host.Live(), g.Dir)
			pids, perr = append(pids, in...), errors.Join(perr, ierr)
		}
		slices.Sort(pids)
		return slices.Compact(pids), perr
	}, nil
}

// endInBackground ends what is left of a workload in the background, because that may take long and other
// Instances must be looked after.
func (c command) endInBackground(ctx context.Context, left func(context.Context) (bool, error),
	end func(context.Context) error) error {
	if goes, is := c.ending[c.name]; is {
		select {
		case err := <-goes:
			if delete(c.ending, c.name); err != nil {
				return err
			}
		default:
			return api.NotYet("it is ending")
		}
	}
	some, err := left(ctx)
	if err != nil {
		return err
	}
	if !some {
		// Another session may get its id. If the disk cannot be written, what has ended is nevertheless begun
		// again.
		_ = os.RemoveAll(c.sessionFile(c.name))
		return nil
	}
	goes := make(chan error, 1)
	c.ending[c.name] = goes
	go func() {
		goes <- end(context.WithoutCancel(ctx)) // the agent may end the context in which this began
		c.Wake()
	}()
	return api.NotYet("it is ending")
}

func (c command) whereOutput() string { return c.logFile(c.name) }

// launch starts a program in a lane, where it is from its first instruction on. It does so even if the
// program's output cannot be kept.
func (c command) launch(l *lanes.Lanes, with lanes.With, argv []string) error {
	out, unkept := os.OpenFile(c.logFile(c.name), os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if unkept != nil {
		unkept = fmt.Errorf("what it prints is not kept: %w", unkept)
		var err error
		if out, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
			return err
		}
	}
	defer out.Close()
	cmd, err := l.StartDetached(c.name, with, argv, func(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = out, out })
	if err != nil {
		return err
	}
	c.storeErrors[c.name] = errors.Join(unkept, writeSession(c.sessionFile(c.name), cmd.Process.Pid))
	go func() {
		_ = cmd.Wait() // it is started again, however it ended
		c.Wake()
	}()
	return nil
}

// container runs in Podman, which needs no daemon and leaves a container in the cgroup of its caller, here
// the lane's. It has the network of the lane.
type container struct{ command }

const podman = "podman"

func (c container) checkPossible(ctx context.Context, _ bool) error {
	out, err := exec.CommandContext(ctx, podman, "image", "exists", "--", c.spec.Image).CombinedOutput()
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("spec.image: this host has no Podman: expected its package podman, and crun")
	case ended && exit.ExitCode() == 1:
		return fmt.Errorf("spec.image: %s is not on this host: expected podman pull %[1]s there", c.spec.Image)
	case err != nil:
		return fmt.Errorf("spec.image: podman image exists %s: %w: %s", c.spec.Image, err, out)
	}
	return nil
}

// Podman itself needs more capabilities than programs usually do. The container gets those that Podman gives
// by default, or none.
func (c container) begin(_ context.Context, l *lanes.Lanes) error {
	argv := []string{podman, "run", "--rm", "--replace", "--name=" + c.containerName(), "--pull=never",
		"--cgroups=disabled", "--runtime=crun", "--network=host", "--log-driver=none", "--env=ISOLANE_*"}
	if !c.spec.Root {
		user, err := c.users.userOf(c.dir, c.spec.Tenant)
		if err != nil {
			return err
		}
		argv = append(argv, fmt.Sprintf("--user=%d:%[1]d", user), "--cap-drop=all",
			"--security-opt=no-new-privileges")
	}
	argv = append(append(argv, "--", c.spec.Image), c.spec.Command...)
	with := lanes.With{Capabilities: []string{"SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "SYS_RESOURCE",
		"DAC_READ_SEARCH"}}
	return c.launch(l, with, argv)
}

// end has Podman end the container. It then ends and removes without Podman what is left, as happens when
// Podman's monitor of the container is gone.
func (c container) end(ctx context.Context) error {
	left, err := c.remainingProcesses()
	if err != nil {
		return err
	}
	return c.endInBackground(ctx, func(ctx context.Context) (bool, error) {
		if pids, perr := left(); len(pids) > 0 || perr != nil {
			return true, perr
		}
		return c.exists(ctx)
	}, func(ctx context.Context) error {
		failed := c.remove(ctx)
		kerr := kill(ctx, left)
		if kerr == nil && failed != nil {
			kerr = c.remove(ctx)
		}
		return kerr
	})
}

// exists reports whether Podman has the container, even if it has ended.
func (c container) exists(ctx context.Context) (bool, error) {
	out, err := exec.CommandContext(ctx, podman, "container", "exists", "--", c.containerName()).CombinedOutput()
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case errors.Is(err, exec.ErrNotFound), ended && exit.ExitCode() == 1:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("podman container exists %s: %w: %s", c.containerName(), err, out)
	}
	return true, nil
}

func (c container) remove(ctx context.Context) error {
	rm := exec.CommandContext(ctx, podman, "rm", "--force", "--time=5", "--ignore", "--", c.containerName())
	out, err := rm.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return nil // nothing can be there
	}
	if err != nil {
		return fmt.Errorf("podman rm %s: %w: %s", c.containerName(), err, out)
	}
	return nil
}

// containerName returns the container's name.
func (c container) containerName() string { return "isolane-" + c.name }

// kill asks processes to end, and kills those that have not after five seconds, with those started meanwhile:
// a program may start others in order to end.
func kill(ctx context.Context, left func() ([]int, error)) error {
	for n := 0; ; n++ {
		pids, err := left()
		switch {
		case err != nil || len(pids) == 0:
			return err
		case n == 100:
			return fmt.Errorf("processes %v do not end", pids)
		}
		signal := syscall.SIGTERM
		if n >= 50 {
			signal = syscall.SIGKILL
		}
		for _, pid := range pids {
			if n == 0 || n >= 50 {
				_ = syscall.Kill(pid, signal) // it may have ended
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
