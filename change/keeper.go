package change

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// KindKeeper is a sleeping process, the keeper, that keeps somebody else's cgroup (v2) alive after its
// processes have moved to a lane. A value is "" or "running". Target is Isolane's cgroup within that cgroup,
// in which the keeper sleeps, then a space and the cgroup that the processes have moved to.
//
// Without it systemd ends a scope when its last process has left (systemd.scope(5)), and removes its cgroups.
// Then the processes could not come back, and the tools of containers and virtual machines would miss them.
// When systemd ends the unit it also ends the keeper, by SIGTERM. The keeper then fetches the moved processes
// back, so that systemd leaves nothing of the unit running. A guard process outside of the unit ends them if
// the keeper was killed and cannot.
const KindKeeper = "keeper"

type keeper struct{ processes }

// KeeperTarget names a keeper for a step.
func KeeperTarget(group, moved string) string { return group + " " + moved }

func keeperOf(s journal.Step) (group journal.Step, moved string) {
	at := max(0, strings.LastIndex(s.Target, " "))
	group, moved = s, s.Target[min(at+1, len(s.Target)):]
	group.Target = s.Target[:at]
	return group, moved
}

// KeeperGroup returns the cgroup of a keeper in the scope that process pid leaves.
func KeeperGroup(scope string, pid int) string {
	return path.Join(scope, GroupPrefix+strconv.Itoa(pid))
}

// IsKeeperGroup reports whether a cgroup that is no lane's is that of a keeper.
func IsKeeperGroup(dir string) bool {
	number, ok := strings.CutPrefix(path.Base(dir), GroupPrefix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

func (k keeper) Check(s journal.Step) error {
	if s.Before != "" {
		return fmt.Errorf("%q: expected a process that was not there", s.Before)
	}
	group, moved := keeperOf(s)
	return errors.Join(k.processes.Check(group), checkOwnGroup(moved))
}

func (k keeper) Read(ctx context.Context, s journal.Step) (string, error) {
	group, _ := keeperOf(s)
	return k.processes.Read(ctx, group)
}

// keeperScript is the keeper's script. It waits for the end of the unit. Then it sends SIGTERM to the
// processes of $1, as systemd has sent it to the keeper, and moves them to $2, its own cgroup; new children
// too. The signal comes first: a process with a pending fatal signal cannot fork (copy_process in
// kernel/fork.c), and a child born in $2 would get none. On SIGUSR1 it tells the guard that the lane lets the
// workload go on.
const keeperScript = `end() { kill -KILL $!; for round in 1 2 3 4 5 6 7 8 9 10; do
for p in $(cat "$1/cgroup.procs"); do kill $p; echo $p > "$2/cgroup.procs"; done; done 2> /dev/null; exit 0; }
trap 'echo released >&3; kill -KILL $!; exit 0' USR1
trap 'end "$1" "$2"' TERM HUP INT; echo ready; exec > /dev/null
while :; do sleep 2147483647 3>&- & wait $!; done`

// guardScript is the guard's script. It waits for the keeper to end, by reading from a pipe that the keeper
// holds, and then for $1, the keeper's cgroup, to go, which happens when the unit has ended. Then it kills
// what is left in its working directory, the cgroup that the unit's processes have moved to.
const guardScript = `read released && exit; while [ -d "$1" ]; do sleep 1; done
for round in 1 2 3 4 5 6 7 8 9 10; do kill -KILL $(cat cgroup.procs) || exit 0; done 2> /dev/null`

// startGuard starts the guard of a keeper, and returns the end of the pipe that the keeper is to hold.
func (k keeper) startGuard(group, moved string) (*os.File, error) {
	// There nobody ends what a unit has started.
	top, err := k.open(foreignAncestor(moved), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	ended, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ended.Close()
	cmd := script(top, guardScript, "isolane-guard", group)
	cmd.Dir, cmd.Stdin = moved, ended
	if err = cmd.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", foreignAncestor(moved), err), hold.Close())
	}
	return hold, nil
}

// script returns a command that starts a shell in a cgroup and ends: so the shell is no child of isolane run,
// which becomes the workload.
func script(group *os.File, text string, args ...string) *exec.Cmd {
	cmd := exec.Command("setsid", append([]string{"--fork", "/bin/sh", "-c", text}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	return cmd
}

func (k keeper) Write(ctx context.Context, s journal.Step, value string) error {
	s, moved := keeperOf(s)
	if value != Running {
		// The keeper ends by itself, so that its guard lets go, unless it is stopped or an earlier isolane's.
		if err := k.askToEnd(ctx, s.Target, unix.SIGUSR1); err != nil {
			return err
		}
		return k.processes.Write(ctx, s, value)
	}
	file := path.Join(s.Target, "cgroup.type")
	kind, err := k.read(file)
	if err == nil && kind == "domain invalid" { // the parent has threaded children, and takes no others
		err = k.write(file, "threaded")
	}
	if err != nil {
		return err
	}
	parent, err := k.openParent(s.Target)
	if err != nil {
		return err
	}
	defer parent.Close()
	var owner unix.Stat_t // whoever may end the other processes, such as a user's systemd, may end it too
	if err = unix.Fstat(int(parent.Fd()), &owner); err != nil {
		return err
	}
	dir, err := k.open(s.Target, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	hold, err := k.startGuard(s.Target, moved)
	if err != nil {
		return err
	}
	defer hold.Close()
	cmd := script(dir, keeperScript, "isolane-keeper", moved, s.Target)
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{hold}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	if err = runReady(cmd); err != nil {
		return fmt.Errorf("%s: %w", s.Target, err)
	}
	return nil
}

// runReady runs a command that starts another one, and returns when that one has printed that it is ready.
func runReady(cmd *exec.Cmd) error {
	said, say, err := os.Pipe()
	if err != nil {
		return err
	}
	defer said.Close()
	cmd.Stdout = say
	err = errors.Join(cmd.Run(), say.Close())
	if err == nil {
		_, err = said.Read(make([]byte, 1))
	}
	return err
}
