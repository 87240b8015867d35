package change

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// GroupPrefix begins the name of each cgroup that Isolane makes.
const GroupPrefix = "isolane-"

// checkOwnGroup returns an error unless a directory can be a cgroup that Isolane made.
func checkOwnGroup(dir string) error {
	name, ok := strings.CutPrefix(path.Base(dir), GroupPrefix)
	if !path.IsAbs(dir) || path.Clean(dir) != dir || !ok || name == "" {
		return fmt.Errorf("%q: expected a cgroup %sNAME", dir, GroupPrefix)
	}
	return nil
}

// foreignAncestor returns the nearest ancestor of a cgroup that is not Isolane's.
func foreignAncestor(dir string) string {
	for checkOwnGroup(dir) == nil {
		dir = path.Dir(dir)
	}
	return dir
}

// KindCgroup makes a cgroup. A value is "" or Present. Removing the cgroup moves its processes to its nearest
// ancestor that is not Isolane's.
const KindCgroup = "cgroup"

type groupDir struct{ kernel }

func (groupDir) Check(s journal.Step) error { return checkOwnGroup(s.Target) }

func (c groupDir) Read(_ context.Context, s journal.Step) (string, error) {
	f, err := c.open(s.Target, unix.O_PATH|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	}
	return Present, f.Close()
}

// Shell returns a command that makes or removes the directory.
func (groupDir) Shell(s journal.Step) string {
	if s.After == "" {
		return "rmdir " + s.Target
	}
	return "mkdir " + s.Target
}

func (c groupDir) Write(ctx context.Context, s journal.Step, value string) error {
	parent, err := c.openParent(s.Target)
	if err != nil {
		return err
	}
	defer parent.Close()
	name := path.Base(s.Target)
	if value == Present {
		return unix.Mkdirat(int(parent.Fd()), name, 0o755)
	}
	if !c.isLive() {
		return c.removeStandIn(s.Target, parent, name)
	}
	// A cgroup stays busy for a moment after its last process has ended.
	return retry(ctx, 2*time.Second, unix.EBUSY, func() error {
		if err := c.move(ctx, s.Target, foreignAncestor(s.Target), func(int) bool { return true }); err != nil {
			return err
		}
		return unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
	})
}

// removeStandIn removes a directory that stands in for a cgroup, with its files.
func (c groupDir) removeStandIn(dir string, parent *os.File, name string) error {
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

// retry calls f until it no longer returns the error again, or until limit has passed.
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
