// Package process runs a workload as a plain process, inside a network namespace, cgroups and a scheduling
// class that are set before its program starts.
//
// A process is born in its cgroup, so it never runs elsewhere. It cannot be put into a namespace from
// outside. So this program starts itself, enters the rest, and then becomes the workload (execve) with the
// same process ID.
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

// Command returns a command for Start that runs argv in the lane. self are the words with which this program
// starts itself to call Become. The process gets its own process group, so that Ctrl-C reaches only isolane,
// and ends when isolane dies.
func Command(ctx context.Context, self []string, l Lane, argv ...string) *exec.Cmd {
	l.Parent = os.Getpid() // Pdeathsig belongs to the first thread, and another one may execve
	cmd := command(ctx, self, l, argv)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return Kill(cmd) }
	return cmd
}

// Detached is like Command, but the process outlives isolane, in a session of its own.
func Detached(self []string, l Lane, argv ...string) *exec.Cmd {
	cmd := command(context.Background(), self, l, argv)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

func command(ctx context.Context, self []string, l Lane, argv []string) *exec.Cmd {
	confines, err := json.Marshal(l)
	if err != nil {
		panic(err) // only strings, numbers and sets of CPUs
	}
	return exec.CommandContext(ctx, self[0], slices.Concat(self[1:], []string{string(confines)}, argv)...)
}

// Become does what a process of Command has to do, with its last arguments: it enters the lane and becomes
// the workload. It returns only with an error.
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

// Kill kills a process of Command, and the children that it left in its process group.
func Kill(cmd *exec.Cmd) error {
	if err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// Start starts cmd in the cgroup with that directory; "" is the caller's.
func Start(cmd *exec.Cmd, cgroup string) error {
	if cgroup == "" {
		return cmd.Start()
	}
	if _, err := os.Stat(filepath.Join(cgroup, "cgroup.controllers")); err == nil {
		return startV2(cmd, cgroup)
	}
	return startV1(cmd, cgroup)
}

// startV2 makes the kernel create the process inside the cgroup (CLONE_INTO_CGROUP, clone(2)).
func startV2(cmd *exec.Cmd, cgroup string) error {
	dir, err := os.Open(cgroup)
	if err != nil {
		return err
	}
	defer dir.Close()
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return cmd.Start()
}

// startV1 moves only the thread that creates the process into the cgroup, and back afterwards: a child is
// born in its parent thread's cgroup (cgroups(7)).
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

// joinV1 moves only this thread.
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
	path := netns
	if !filepath.IsAbs(path) {
		path = filepath.Join("/run/netns", netns)
	}
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

// schedule sets the policy and priority of this thread (sched(7)).
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
