package journal

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// keeper is a process that sleeps in a cgroup of Isolane's within somebody else's, of cgroup v2: "" or "running".
// Target is that cgroup, and behind a space the one that the processes of the other have moved to. systemd ends a
// scope when its last process has left (systemd.scope(5)), and removes its cgroups: then the processes could not come
// back, and the tools of containers and machines miss them. When systemd ends the unit it also ends the keeper, by
// SIGTERM as it does all others there. The keeper then fetches back what has moved, so that nothing of the unit is
// left running.
type keeper struct{ processes }

// KeeperTarget names a keeper for a step.
func KeeperTarget(group, moved string) string { return group + " " + moved }

func keeperOf(s Step) (group Step, moved string) {
	at := max(0, strings.LastIndex(s.Target, " "))
	group, moved = s, s.Target[min(at+1, len(s.Target)):]
	group.Target = s.Target[:at]
	return group, moved
}

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
	group, moved := keeperOf(s)
	return errors.Join(k.processes.Check(group), ownGroup(moved))
}

func (k keeper) Read(ctx context.Context, s Step) (string, error) {
	group, _ := keeperOf(s)
	return k.processes.Read(ctx, group)
}

// fetchBack waits for the end of the unit. Then it moves the processes of $1 to $2, its own cgroup, also those that
// are born meanwhile, and tells them to end, as systemd has told it.
const fetchBack = `end() { for round in 1 2 3 4 5 6 7 8 9 10; do for p in $(cat "$1/cgroup.procs"); do
echo $p > "$2/cgroup.procs" && kill $p; done; done 2> /dev/null; exit 0; }
trap 'end "$1" "$2"' TERM HUP INT; while :; do sleep 2147483647 & wait $!; done`

func (k keeper) Write(ctx context.Context, s Step, value string) error {
	s, moved := keeperOf(s)
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
	defer dir.Close() //nolint:errcheck // only a reference
	cmd := exec.Command("/bin/sh", "-c", fetchBack, "isolane-keeper", moved, s.Target)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(dir.Fd()),
		Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	if err = cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", s.Target, err)
	}
	return cmd.Process.Release()
}
