package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
)

// temporary is a lane that lives as long as a command.
type temporary struct {
	spec lane.Spec
	node int
}

func (t *temporary) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&t.spec.CPUs.Count, "cpus", 0, "make a lane of so many CPUs for the command")
	cmd.Flags().StringVar(&t.spec.CPUs.SMT, "smt", "", "with --cpus: isolate (siblings stay idle), pack (whole cores) or any")
	cmd.Flags().IntVar(&t.node, "numa-node", -1, "with --cpus: the NUMA node to be near to")
	cmd.Flags().StringVar(&t.spec.Scheduling.Policy, "policy", "", "with --cpus: scheduling policy fifo, rr or other")
	cmd.Flags().IntVar(&t.spec.Scheduling.Priority, "priority", 0, "with --cpus: its priority")
	for _, name := range []string{"smt", "numa-node", "policy", "priority"} {
		cmd.MarkFlagsMutuallyExclusive("lane", name)
	}
}

// lane is the declaration, checked as one of a file.
func (t *temporary) lane(name string) ([]lane.Lane, error) {
	l := lane.Lane{APIVersion: lane.APIVersion, Kind: lane.Kind, Metadata: lane.Metadata{Name: name}, Spec: t.spec}
	if t.node >= 0 {
		l.Spec.Near.NUMANode = &t.node
	}
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	lanes, err := lane.Parse("run --cpus", bytes.NewReader(text))
	if err != nil {
		return nil, usage(err)
	}
	return lanes, nil
}

// run makes the lane, runs the command in it, and releases it whatever comes; when this process is killed, the
// command is too, and the next isolane that changes the host releases the lane.
func (t *temporary) run(cmd *cobra.Command, c confines, argv []string) (err error) {
	if _, err = exec.LookPath(argv[0]); err != nil {
		return notStarted(err)
	}
	name := fmt.Sprintf("run-%d", os.Getpid())
	lanes, err := t.lane(name)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if err = t.make(ctx, cmd, name, lanes); err != nil {
		return err
	}
	defer func() {
		if rerr := giveBack(context.WithoutCancel(ctx), cmd.ErrOrStderr(), name); rerr != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "isolane: lane %s is still in force: %v: isolane recover releases it\n", name, rerr)
		}
	}()
	args := []string{"run", "--lane", name, "--parent", strconv.Itoa(os.Getpid()), "--netns", c.netns}
	for _, capability := range c.more {
		args = append(args, "--cap-add", capability)
	}
	return inherit(slices.Concat(args, []string{"--"}, argv))
}

func (t *temporary) make(ctx context.Context, cmd *cobra.Command, name string, lanes []lane.Lane) error {
	l, err := enforce.OpenWait(ctx, journal.Dir, host.Live(), ops())
	if err != nil {
		return fail(err)
	}
	defer l.Close() //nolint:errcheck // what is in force is stored
	if err = expire(ctx, cmd.ErrOrStderr(), l); err != nil {
		return fail(err)
	}
	if err = l.Recorded(); err != nil {
		return withoutRecord(err)
	}
	if err = l.Lend(name, os.Getpid()); err != nil {
		return fail(err)
	}
	p, _, err := l.Want(lanes, false)
	if err = refused(err, "run --cpus"); err != nil {
		return err
	}
	_, err = putInForce(cmd, l, p)
	return err
}

// giveBack releases the lane, if nobody else has.
func giveBack(ctx context.Context, w io.Writer, name string) error {
	l, err := enforce.OpenWait(ctx, journal.Dir, host.Live(), ops())
	if err != nil {
		return err
	}
	defer l.Close() //nolint:errcheck // what is in force is stored
	groups, err := l.Groups()
	for _, g := range groups {
		if g.Lane.Name == name && g.Processes > 0 {
			fmt.Fprintf(w, "isolane: %s of lane %s: outside of it from now on\n", quantity.Count(g.Processes, "process"), name)
		}
	}
	if _, gone := l.Lane(name); err != nil || gone != nil {
		return err
	}
	p, err := l.Without(name)
	if err != nil {
		return err
	}
	return l.Apply(ctx, p)
}

// inherit runs this program again in its own place, passes signals on, and returns its exit code.
func inherit(args []string) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
		unix.SIGCONT, unix.SIGWINCH)
	defer signal.Stop(signals)
	child := exec.Command("/proc/self/exe", args...)
	child.Args[0] = os.Args[0]
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	runtime.LockOSThread() // the child dies with the thread that started it (PR_SET_PDEATHSIG(2const))
	defer runtime.UnlockOSThread()
	if err := child.Start(); err != nil {
		return fail(err)
	}
	ended := make(chan struct{})
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for {
			select {
			case <-ended:
				return
			case s := <-signals:
				if !fromTerminal(s) {
					_ = child.Process.Signal(s) // it may have ended
				}
			}
		}
	}()
	err := child.Wait()
	close(ended)
	<-passed
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fail(err)
	}
	if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return &exitError{code: 128 + int(status.Signal())}
	}
	if code := child.ProcessState.ExitCode(); code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// fromTerminal says whether the child has had a signal too: a terminal sends those of its keys to all processes in
// its foreground.
func fromTerminal(s os.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT && s != unix.SIGWINCH {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close() //nolint:errcheck // only asked
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}
