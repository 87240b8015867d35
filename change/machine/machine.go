// Package machine runs programs that Isolane does not bring along, such as systemctl and ovs-vsctl. In a
// container that has none of them, such as isolane-kube's, they are the machine's.
package machine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// first is the root directory of process 1 (proc_pid_root(5)), which is the machine's if a container sees its
// processes.
const first = "/proc/1/root"

// Command returns a command that runs a program of this process's PATH, or else the machine's, in the root
// directory of the machine. If neither has it, the command fails with exec.ErrNotFound.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return command(ctx, first, name, args)
}

func command(ctx context.Context, root, name string, args []string) *exec.Cmd {
	if _, err := exec.LookPath(name); err != nil && isOther(root) {
		for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin",
			"/bin"} {
			file := filepath.Join(dir, name)
			if _, err = os.Lstat(root + file); err == nil { // a link leads on below that root only
				cmd := exec.CommandContext(ctx, file, args...)
				cmd.Dir, cmd.SysProcAttr = "/", &unix.SysProcAttr{Chroot: root}
				return cmd
			}
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &unix.SysProcAttr{}
	return cmd
}

// Has reports whether a file is there, also if only the machine has it and not this container.
func Has(file string) bool { return has(first, file) }

func has(root, file string) bool {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	_, err := os.Lstat(root + file)
	return err == nil
}

// isOther reports whether a root directory is not this process's own.
func isOther(root string) bool {
	own, err := os.Stat("/")
	if err != nil {
		return false
	}
	other, err := os.Stat(root)
	return err == nil && !os.SameFile(own, other)
}
