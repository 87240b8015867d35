package change

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// daemon is a process of this program that goes on by itself in a cgroup made for it: "" or "running".
type daemon struct {
	processes
	args []string
}

// Daemon is the operation of a step whose process is this program, called with the arguments and its cgroup,
// in which it is not where who started it was killed.
func Daemon(root string, args ...string) journal.Op { return daemon{processes{kernel{root}}, args} }

// Write starts it, or lets it end: it may have something to put back. One that does not is killed.
func (d daemon) Write(ctx context.Context, s journal.Step, value string) error {
	if value != Running || !d.live() {
		if err := d.ask(ctx, s.Target, unix.SIGTERM); err != nil {
			return err
		}
		return d.processes.Write(ctx, s, value)
	}
	cmd := exec.Command("/proc/self/exe", append(slices.Clone(d.args), s.Target)...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", []string{}, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", s.Target, err)
	}
	if err := d.write(path.Join(s.Target, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid)); err != nil {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // "killed"
		return err
	}
	return cmd.Process.Release()
}
