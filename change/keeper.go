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

// KindKeeper is a process that sleeps in a cgroup of Isolane's within somebody else's, of cgroup v2: "" or
// "running". Target is that cgroup, and behind a space the one that the processes of the other have moved to.
// systemd ends a scope when its last process has left (systemd.scope(5)), and removes its cgroups: then the
// processes could not come back, and the tools of containers and machines miss them. When systemd ends the
// unit it also ends the keeper, by SIGTERM as it does all others there. The keeper then fetches back what has
// moved, so that nothing of the unit is left running. A guard outside of the unit ends what a keeper that was
// killed can no longer fetch.
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

// KeeperGroup is the cgroup of a keeper in the scope that this process leaves.
func KeeperGroup(scope string, pid int) string {
	return path.Join(scope, GroupPrefix+strconv.Itoa(pid))
}

// IsKeeperGroup says whether a cgroup that is no lane's has a keeper in it.
func IsKeeperGroup(dir string) bool {
	number, ok := strings.CutPrefix(path.Base(dir), GroupPrefix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

func (k keeper) Check(s journal.Step) error {
	if s.Before != "" {
		return fmt.Errorf("%q: expected a process that was not there", s.Before)
	}
	group, moved := keeperOf(s)
	return errors.Join(k.processes.Check(group), ownGroup(moved))
}

func (k keeper) Read(ctx context.Context, s journal.Step) (string, error) {
	group, _ := keeperOf(s)
	return k.processes.Read(ctx, group)
}

// fetchBack waits for the end of the unit. Then it tells the processes of $1 to end, as systemd has told it,
// also those that are born meanwhile, and moves them to $2, its own cgroup. In this order: who has a signal
// to die of can no longer fork (copy_process in kernel/fork.c), and a child born in $2 would be told nothing.
// By SIGUSR1 it tells the guard that the lane lets the workload go on elsewhere.
const fetchBack = `end() { kill -KILL $!; for round in 1 2 3 4 5 6 7 8 9 10; do
for p in $(cat "$1/cgroup.procs"); do kill $p; echo $p > "$2/cgroup.procs"; done; done 2> /dev/null; exit 0; }
trap 'echo released >&3; kill -KILL $!; exit 0' USR1
trap 'end "$1" "$2"' TERM HUP INT; echo ready; exec > /dev/null
while :; do sleep 2147483647 3>&- & wait $!; done`

// guard waits for the keeper to end, whose end of a pipe it reads, and for $1, the keeper's cgroup, to go,
// which is when the unit has ended. It ends what is then left in its directory, the cgroup that the unit's
// processes have moved to.
const guard = `read released && exit; while [ -d "$1" ]; do sleep 1; done
for round in 1 2 3 4 5 6 7 8 9 10; do kill -KILL $(cat cgroup.procs) || exit 0; done 2> /dev/null`

// startGuard starts the guard of a keeper, and returns what the keeper is to hold until it ends.
func (k keeper) startGuard(group, moved string) (*os.File, error) {
	// Nobody ends there what a unit has started.
	top, err := k.open(outside(moved), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	ended, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ended.Close()
	cmd := script(top, guard, "isolane-guard", group)
	cmd.Dir, cmd.Stdin = moved, ended
	if err = cmd.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", outside(moved), err), hold.Close())
	}
	return hold, nil
}

// script is a command that starts a shell in a cgroup and ends: the shell is no child of isolane run's, which
// becomes the workload.
func script(group *os.File, text string, args ...string) *exec.Cmd {
	cmd := exec.Command("setsid", append([]string{"--fork", "/bin/sh", "-c", text}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	return cmd
}

func (k keeper) Write(ctx context.Context, s journal.Step, value string) error {
	s, moved := keeperOf(s)
	if value != Running {
		// It ends by itself, so that its guard lets go, unless it is stopped or of an earlier isolane.
		if err := k.ask(ctx, s.Target, unix.SIGUSR1); err != nil {
			return err
		}
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
	defer parent.Close()
	var owner unix.Stat_t // who may end the others there, a user's systemd for one, may end it too
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
	cmd := script(dir, fetchBack, "isolane-keeper", moved, s.Target)
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{hold}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	if err = runReady(cmd); err != nil {
		return fmt.Errorf("%s: %w", s.Target, err)
	}
	return nil
}

// runReady runs a command that starts another, and returns when that has said that it is ready.
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
