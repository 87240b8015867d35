package inside

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Enter becomes a program in the namespaces of the node whose first process is pid, except for the PID
// namespace: the program has the node's files and network, and sees all processes and kernel threads, as a
// daemon of the host does. It is killed when its parent ends; a parent of 0 means that it goes on.
func Enter(parent, pid int, args []string) error {
	runtime.LockOSThread() // the namespaces belong to this thread, and exec makes it the only one
	if parent > 0 {
		if err := endWith(parent); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	for _, n := range []struct {
		name string
		flag int
	}{{"net", unix.CLONE_NEWNET}, {"uts", unix.CLONE_NEWUTS}, {"ipc", unix.CLONE_NEWIPC},
		{"mnt", unix.CLONE_NEWNS}} {
		if err := enter(fmt.Sprintf("/proc/%d/ns/%s", pid, n.name), n.flag); err != nil {
			return err
		}
	}
	// The node's /proc has only the node's processes. Another one is mounted over it for this program alone.
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	m := &mounter{}
	m.mount("", "/proc", "", unix.MS_PRIVATE, "")
	m.mount("proc", "/proc", "proc", 0, "")
	if m.err != nil {
		return m.err
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	if err = unix.Exec(program, args, os.Environ()); err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}

// endWith has the kernel kill what this thread becomes when its parent ends. What the parent has set for its
// child (Pdeathsig) is of the child's first thread, and is lost if exec is called by another one.
func endWith(parent int) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	if os.Getppid() != parent {
		return fmt.Errorf("process %d has ended, which this one would be of", parent)
	}
	return nil
}

func enter(file string, flag int) error {
	ns, err := os.Open(file)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err = unix.Setns(int(ns.Fd()), flag); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
