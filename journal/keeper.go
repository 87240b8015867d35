package journal

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// keeper is a process that sleeps in a cgroup of Isolane's within somebody else's, of cgroup v2: "" or
// "running". systemd ends a scope when its last process has left (systemd.scope(5)), and removes its cgroups:
// then the processes could not come back, and the tools of containers and machines miss them.
type keeper struct{ processes }

// KeeperGroup is the cgroup of a keeper in the scope that this process leaves.
func KeeperGroup(scope string, pid int) string {
	return path.Join(scope, GroupPrefix+strconv.Itoa(pid))
}

// IsKeeperGroup says whether a cgroup that is no lane's has a keeper in it.
func IsKeeperGroup(dir string) bool {
	number, ok := strings.CutPrefix(path.Base(dir), GroupPrefix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

func (k keeper) Check(s Step) error {
	if s.Before != "" {
		return fmt.Errorf("%q: expected a process that was not there", s.Before)
	}
	return k.processes.Check(s)
}

func (k keeper) Write(ctx context.Context, s Step, value string) error {
	if value != Running {
		return k.processes.Write(ctx, s, value)
	}
	file := path.Join(s.Target, "cgroup.type")
	kind, err := k.read(file)
	if err == nil && kind == "domain invalid" { // the one above has threaded ones, and takes no others
		err = k.write(file, "threaded")
	}
	if err != nil {
		return err
	}
	parent, err := k.parent(s.Target)
	if err != nil {
		return err
	}
	defer parent.Close()  //nolint:errcheck // only a reference
	var owner unix.Stat_t // who may end the others there, a user's systemd for one, may end it too
	if err = unix.Fstat(int(parent.Fd()), &owner); err != nil {
		return err
	}
	dir, err := k.open(s.Target, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()                                        //nolint:errcheck // only a reference
	cmd := exec.Command("/bin/sleep", strconv.Itoa(1<<31-1)) // also busybox's knows this much
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(dir.Fd()),
		Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	if err = cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", s.Target, err)
	}
	return cmd.Process.Release()
}
