// Package process runs a workload as a plain process: inside a network namespace, cgroups and a
// scheduling class that are set before its program starts.
//
// A process cannot be put into a namespace from outside, so the isolane binary starts itself as
// `isolane launch`, enters everything, and then becomes the workload (execve), under the same
// process id.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Confines is what a process lives in. The zero value confines nothing.
type Confines struct {
	Netns    string   // name under /run/netns; "" is the namespace of the caller
	Cgroups  []string // directories of cgroups to join
	Policy   string   // fifo, rr or other; "" leaves it
	Priority int      // 1-99 with fifo and rr
}

// Command returns the command that starts argv within c; self is the path of the isolane binary.
// The process gets a process group of its own, so that Ctrl-C reaches only isolane, and ends when
// isolane dies.
func Command(ctx context.Context, self string, c Confines, argv ...string) *exec.Cmd {
	args := []string{"launch"}
	if c.Netns != "" {
		args = append(args, "--netns", c.Netns)
	}
	for _, dir := range c.Cgroups {
		args = append(args, "--cgroup", dir)
	}
	if c.Policy != "" {
		args = append(args, "--policy", c.Policy, "--priority", strconv.Itoa(c.Priority))
	}
	cmd := exec.CommandContext(ctx, self, slices.Concat(args, []string{"--"}, argv)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Become enters the confines and then replaces the process by argv. It returns only with an error.
func Become(c Confines, argv []string) error {
	if len(argv) == 0 {
		return errors.New("launch: no command given")
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // namespace and policy belong to this thread, and go on with its execve
	for _, dir := range c.Cgroups {
		procs := filepath.Join(dir, "cgroup.procs")
		if err := os.WriteFile(procs, []byte("0\n"), 0); err != nil {
			return fmt.Errorf("%s: %w", procs, err)
		}
	}
	if err := enter(c.Netns); err != nil {
		return err
	}
	if err := schedule(c); err != nil {
		return err
	}
	return unix.Exec(program, argv, os.Environ())
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
	return unix.Close(fd)
}

// schedule sets policy and priority of this thread, sched(7).
func schedule(c Confines) error {
	var policy uint32
	switch c.Policy {
	case "":
		return nil
	case "other":
		policy = unix.SCHED_NORMAL
	case "fifo":
		policy = unix.SCHED_FIFO
	case "rr":
		policy = unix.SCHED_RR
	default:
		return fmt.Errorf("policy %q: expected fifo, rr or other", c.Policy)
	}
	if c.Priority < 0 || c.Priority > 99 {
		return fmt.Errorf("priority %d: expected 0-99", c.Priority)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: uint32(c.Priority)}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("policy %s priority %d: %w", c.Policy, c.Priority, err)
	}
	return nil
}
