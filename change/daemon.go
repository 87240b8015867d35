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

// daemon is a background process of this program in a cgroup made for it. A value is "" or "running".
type daemon struct {
	processes
	args []string
}

// Daemon returns the operation of a step that runs this program in the background, with the given arguments
// and its cgroup as the last one. If its starter was killed, the process may not be in that cgroup.
func Daemon(root string, args ...string) journal.Op { return daemon{processes{kernel{root}}, args} }

// Write starts the process, or asks it to end, as it may have something to restore. Else it kills it.
func (d daemon) Write(ctx context.Context, s journal.Step, value string) error {
	if value != Running || !d.isLive() {
		if err := d.askToEnd(ctx, s.Target, unix.SIGTERM); err != nil {
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
