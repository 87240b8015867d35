package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/quantity"
)

// temporary is a lane that lives as long as a command.
type temporary struct {
	spec lane.Spec
	node int
}

func (t *temporary) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&t.spec.CPUs.Count, "cpus", 0, "make a lane of so many CPUs for the command")
	cmd.Flags().StringVar(&t.spec.CPUs.SMT, "smt", "",
		"with --cpus: isolate (siblings stay idle), pack (whole cores) or any")
	cmd.Flags().IntVar(&t.node, "numa-node", -1, "with --cpus: the NUMA node to be near to")
	cmd.Flags().StringVar((*string)(&t.spec.Scheduling.Policy), "policy", "",
		"with --cpus: scheduling policy fifo, rr or other")
	cmd.Flags().IntVar(&t.spec.Scheduling.Priority, "priority", 0, "with --cpus: its priority")
	for _, name := range []string{"smt", "numa-node", "policy", "priority"} {
		cmd.MarkFlagsMutuallyExclusive("lane", name)
	}
}

// lane is the declaration, checked as one of a file.
func (t *temporary) lane(name string) (lane.Lane, error) {
	l := lane.Lane{APIVersion: lane.APIVersion, Kind: lane.Kind, Metadata: lane.Metadata{Name: name},
		Spec: t.spec}
	if t.node >= 0 {
		l.Spec.Near.NUMANode = &t.node
	}
	text, err := json.Marshal(l)
	if err != nil {
		return l, err
	}
	checked, err := lane.Parse("run --cpus", bytes.NewReader(text))
	if err != nil {
		return l, usage(err)
	}
	return checked[0], nil
}

// run makes the lane, runs the command in it, and releases it whatever comes; when this process is killed,
// the command is too, and the next isolane that changes the host releases the lane.
func (t *temporary) run(cmd *cobra.Command, with lanes.With, argv []string) (err error) {
	if _, err = exec.LookPath(argv[0]); err != nil {
		return notStarted(err)
	}
	name := fmt.Sprintf("run-%d", os.Getpid())
	want, err := t.lane(name)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	expired, err := lanes.PutFor(ctx, options(), os.Getpid(), want)
	printExpired(cmd.ErrOrStderr(), expired)
	if err != nil {
		return notInForce(err, "run --cpus")
	}
	defer func() {
		n, rerr := lanes.GiveBack(context.WithoutCancel(ctx), options(), name)
		if n > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "isolane: %s of lane %s: outside of it from now on\n",
				quantity.Count(n, "process"), name)
		}
		if rerr != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "isolane: lane %s is still in force: %v: isolane recover releases it\n",
				name, rerr)
		}
	}()
	args := []string{"run", "--lane", name, "--parent", strconv.Itoa(os.Getpid()), "--netns", with.Netns}
	for _, capability := range with.Capabilities {
		args = append(args, "--cap-add", capability)
	}
	return inherit(slices.Concat(args, []string{"--"}, argv))
}

// inherit runs this program again in its own place, passes signals on, and returns its exit code.
func inherit(args []string) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGALRM,
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

// fromTerminal says whether the child has had a signal too: a terminal sends those of its keys to all
// processes in its foreground.
func fromTerminal(s os.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT && s != unix.SIGWINCH {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}
