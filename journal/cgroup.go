package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// GroupPrefix begins the name of each cgroup that Isolane makes.
const GroupPrefix = "isolane-"

// ownGroup says whether a directory can be a cgroup that Isolane made.
func ownGroup(dir string) error {
	name, ok := strings.CutPrefix(path.Base(dir), GroupPrefix)
	if !path.IsAbs(dir) || path.Clean(dir) != dir || !ok || name == "" {
		return fmt.Errorf("%q: expected a cgroup %sNAME", dir, GroupPrefix)
	}
	return nil
}

// outside is the nearest cgroup above one of Isolane's that is none.
func outside(dir string) string {
	for ownGroup(dir) == nil {
		dir = path.Dir(dir)
	}
	return dir
}

// present is the value of a cgroup, namespace or link that exists.
const present = "present"

// cgroup is a cgroup: "" or "present". Processes that are in it when it is taken away go on in the nearest one above
// that is not Isolane's.
type cgroup struct{ kernel }

func (cgroup) Check(s Step) error { return ownGroup(s.Target) }

func (c cgroup) Read(_ context.Context, s Step) (string, error) {
	f, err := c.open(s.Target, unix.O_PATH|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	}
	return present, f.Close()
}

func (c cgroup) Write(ctx context.Context, s Step, value string) error {
	parent, err := c.parent(s.Target)
	if err != nil {
		return err
	}
	defer parent.Close()
	name := path.Base(s.Target)
	if value == present {
		return unix.Mkdirat(int(parent.Fd()), name, 0o755)
	}
	if !c.live() {
		return c.empty(s.Target, parent, name)
	}
	// A cgroup stays busy for a moment after its last process has ended.
	return retry(ctx, 2*time.Second, unix.EBUSY, func() error {
		if err := c.move(ctx, s.Target, outside(s.Target), func(int) bool { return true }); err != nil {
			return err
		}
		return unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
	})
}

// empty removes the files of a directory that stands in for a cgroup, and the directory.
func (c cgroup) empty(dir string, parent *os.File, name string) error {
	d, err := c.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer d.Close()
	files, err := d.Readdirnames(-1)
	for _, f := range files {
		err = errors.Join(err, unix.Unlinkat(int(d.Fd()), f, 0))
	}
	return errors.Join(err, unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR))
}

// retry calls f until it returns something other than the error again, or limit has passed.
func retry(ctx context.Context, limit time.Duration, again error, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if !errors.Is(err, again) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// ControllerTarget names a controller for a step of kind controller, and the cgroup v2 whose children are
// to have it.
func ControllerTarget(group, name string) string { return group + ":" + name }

// controller is a controller that a cgroup v2 hands to its children: its name, or "".
type controller struct{ kernel }

// controllerOf returns the file that a step writes, and the controller's name.
func controllerOf(s Step) (file, name string) {
	group, name, _ := strings.Cut(s.Target, ":")
	return path.Join(group, "cgroup.subtree_control"), name
}

func (c controller) Check(s Step) error {
	name, controller := controllerOf(s)
	if controller != "cpuset" && controller != "memory" {
		return fmt.Errorf("%q: expected the controller cpuset or memory", controller)
	}
	return check(name)
}

func (c controller) Read(_ context.Context, s Step) (string, error) {
	name, controller := controllerOf(s)
	text, err := c.read(name)
	if slices.Contains(strings.Fields(text), controller) {
		return controller, err
	}
	return "", err
}

func (c controller) Write(_ context.Context, s Step, value string) error {
	name, controller := controllerOf(s)
	switch {
	case !c.live(): // the kernel would add to what is there, or take it out
		now, err := c.read(name)
		if err != nil {
			return err
		}
		list := slices.DeleteFunc(strings.Fields(now), func(f string) bool { return f == controller })
		list = slices.Sorted(slices.Values(append(list, strings.Fields(value)...)))
		return c.write(name, strings.Join(list, " "))
	case value == "":
		return c.write(name, "-"+controller)
	}
	return c.write(name, "+"+controller)
}

// processes are those in a cgroup that was made for them: "running" or "". They are started by a
// runtime and recorded by Adopt; undo kills them all, also the children of one that died.
type processes struct{ kernel }

// Running is the value of a processes step while there are any.
const Running = "running"

func (processes) Check(s Step) error { return ownGroup(s.Target) }

func (p processes) Read(_ context.Context, s Step) (string, error) {
	pids, err := p.members(s.Target)
	if err != nil || len(pids) == 0 {
		return "", err
	}
	return Running, nil
}

func (p processes) Write(ctx context.Context, s Step, value string) error {
	if value != "" {
		return errors.New("processes are started by their runtime, not by the journal")
	}
	errAlive := errors.New("processes still there after SIGKILL")
	return retry(ctx, 5*time.Second, errAlive, func() error {
		pids, err := p.members(s.Target)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		return errAlive
	})
}

// tasks is where the processes of a cgroup are: Target is the cgroup that they are to leave,
// After the one that takes them. Kernel threads stay: their affinity is theirs (kind task).
type tasks struct{ kernel }

func (tasks) Check(s Step) error {
	if !path.IsAbs(s.Target) || path.Clean(s.Target) != s.Target || path.Dir(s.After) != s.Target {
		return fmt.Errorf("%q to %q: expected a cgroup and one in it", s.Target, s.After)
	}
	return ownGroup(s.After)
}

func (t tasks) Read(_ context.Context, s Step) (string, error) {
	pids, err := t.members(s.After)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(pids) == 0 {
		return s.Target, nil
	}
	return s.After, err
}

// Stands says whether all have left: others may have come after the move.
func (t tasks) Stands(_ context.Context, s Step) (bool, error) {
	pids, err := t.members(s.Target)
	return !slices.ContainsFunc(pids, func(pid int) bool { return !kernelThread(pid) }), err
}

func (t tasks) Write(ctx context.Context, s Step, to string) error {
	if to == s.Target {
		return t.move(ctx, s.After, to, func(int) bool { return true })
	}
	return t.move(ctx, s.Target, to, func(pid int) bool { return !kernelThread(pid) })
}

// How long processes are moved that are born meanwhile; after half of it they are frozen, where the kernel can. A
// busy machine needs many rounds.
const movingTime = 30 * time.Second

// move takes the processes of one cgroup to another, also those that are born meanwhile. One that is about to
// end stays where it is until it has.
func (k kernel) move(ctx context.Context, from, to string, which func(pid int) bool) error {
	errLeft := errors.New("processes are left")
	left, begun := 0, time.Now()
	freeze := path.Join(from, "cgroup.freeze") // cgroup v2, but of the root; who is moved out goes on
	frozen := false
	err := retry(ctx, movingTime, errLeft, func() error {
		if !frozen && k.live() && time.Since(begun) > movingTime/2 {
			frozen = k.write(freeze, "1") == nil
		}
		var err error
		left, err = k.moveOnce(from, to, which)
		if err == nil && left > 0 {
			err = errLeft
		}
		return err
	})
	if frozen {
		_ = k.write(freeze, "0") // gone with the cgroup, if that is
	}
	if errors.Is(err, errLeft) {
		return fmt.Errorf("%s: processes are born there faster than they can be moved to %s, %d in the last round: try again, "+
			"or when less is started", from, to, left)
	}
	return err
}

// moveOnce moves those that are there now, and returns how many that were.
func (k kernel) moveOnce(from, to string, which func(pid int) bool) (int, error) {
	pids, err := k.members(from)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, pid := range pids {
		if !which(pid) {
			continue
		}
		if err = k.write(path.Join(to, "cgroup.procs"), strconv.Itoa(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
			return n, fmt.Errorf("process %d: %w", pid, err)
		}
		n++
	}
	return n, nil
}

func (k kernel) members(group string) ([]int, error) {
	text, err := k.read(path.Join(group, "cgroup.procs"))
	if errors.Is(err, unix.EOPNOTSUPP) { // threaded: Isolane's own have processes of one thread
		text, err = k.read(path.Join(group, "cgroup.threads"))
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range strings.Fields(text) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("%s/cgroup.procs: %q is not a process id", group, f)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
