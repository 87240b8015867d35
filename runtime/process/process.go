// Package process runs a workload as a plain process: inside a network namespace, cgroups and a
// scheduling class that are set before its program starts.
//
// A process is born in its cgroup, so that not one instant of it runs elsewhere. It cannot be put
// into a namespace from outside, so this program starts itself, enters the
// rest, and then becomes the workload (execve), under the same process id.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/sched"
)

// Command returns the command that starts argv within the lane when it is given to Start; self are the words
// with which this program starts itself to call Become. The process gets a process group of its own, so that
// Ctrl-C reaches only isolane, and ends when isolane dies.
func Command(ctx context.Context, self []string, l Lane, argv ...string) *exec.Cmd {
	l.Parent = os.Getpid() // Pdeathsig is the first thread's, and execve may come from another
	cmd := command(ctx, self, l, argv)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return Kill(cmd) }
	return cmd
}

// Detached returns a Command whose process goes on when isolane dies, in a session of its own.
func Detached(self []string, l Lane, argv ...string) *exec.Cmd {
	cmd := command(context.Background(), self, l, argv)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

func command(ctx context.Context, self []string, l Lane, argv []string) *exec.Cmd {
	confines, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings, numbers and sets of CPUs
	}
	return exec.CommandContext(ctx, self[0], slices.Concat(self[1:], []string{string(confines)}, argv)...)
}

// Become returns what a process of Command does, with its last arguments: it enters the lane and becomes the
// workload. It returns only with an error.
func Become(args []string) error {
	if len(args) < 2 {
		return errors.New("expected what the process lives in, and a command")
	}
	var l Lane
	if err := json.Unmarshal([]byte(args[0]), &l); err != nil {
		return err
	}
	return l.Enter(args[1:], os.Environ())
}

// Kill ends a process of Command, and the children that it left in its process group.
func Kill(cmd *exec.Cmd) error {
	if err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// Start starts cmd in the cgroup whose directory is given, "" in that of the caller.
func Start(cmd *exec.Cmd, cgroup string) error {
	if cgroup == "" {
		return cmd.Start()
	}
	if _, err := os.Stat(filepath.Join(cgroup, "cgroup.controllers")); err == nil {
		return startV2(cmd, cgroup)
	}
	return startV1(cmd, cgroup)
}

// startV2 lets the kernel make the process inside the cgroup (CLONE_INTO_CGROUP, clone(2)).
func startV2(cmd *exec.Cmd, cgroup string) error {
	dir, err := os.Open(cgroup)
	if err != nil {
		return err
	}
	defer dir.Close()
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return cmd.Start()
}

// startV1 goes into the cgroup with the one thread that makes the process, and back: a child is
// born where its parent thread is (cgroups(7)).
func startV1(cmd *exec.Cmd, cgroup string) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.ReadFile("/proc/thread-self/cpuset")
	if err != nil {
		return err
	}
	if err = joinV1(cgroup); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, joinV1(filepath.Join(filepath.Dir(cgroup), strings.TrimSpace(string(home)))))
	}()
	return cmd.Start()
}

// joinV1 moves this thread alone.
func joinV1(cgroup string) error {
	tasks := filepath.Join(cgroup, "tasks")
	if err := os.WriteFile(tasks, []byte(strconv.Itoa(unix.Gettid())+"\n"), 0); err != nil {
		return fmt.Errorf("%s: %w", tasks, err)
	}
	return nil
}

func enter(netns string) error {
	if netns == "" {
		return nil
	}
	path := filepath.Join("/run/netns", netns)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("%s: setns: %w", path, err)
	}
	if err := unix.Close(fd); err != nil {
		return err
	}
	return ownSysfs()
}

// schedule sets policy and priority of this thread, sched(7).
func (l Lane) schedule() error {
	if l.Policy == "" {
		return nil
	}
	policy, known := l.Policy.Number()
	if !known || l.Policy != sched.Other && !l.Policy.IsRealTime() {
		return fmt.Errorf("policy %q: expected fifo, rr or other", l.Policy)
	}
	if l.Priority < 0 || l.Priority > 99 {
		return fmt.Errorf("priority %d: expected 0-99", l.Priority)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: uint32(l.Priority)}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("policy %s priority %d: %w", l.Policy, l.Priority, err)
	}
	return nil
}
