package change

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// frozen is an attribute (xattr(7)) of a cgroup that is frozen while its processes are moved: one who was
// killed meanwhile leaves it to the next, which thaws nothing that somebody else has frozen.
const frozen = "trusted.isolane.frozen"

// freeze stops the processes of a cgroup v2 but the root; false where it cannot, or somebody has done it.
func (k kernel) freeze(group string) bool {
	file := path.Join(group, "cgroup.freeze")
	dir, err := k.open(group, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer dir.Close()
	now, err := k.read(file)
	return err == nil && now == "0" && unix.Fsetxattr(int(dir.Fd()), frozen, nil, 0) == nil &&
		k.write(file, "1") == nil
}

// thaw lets those go on that freeze has stopped, now or before this process.
func (k kernel) thaw(group string) error {
	dir, err := k.open(group, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if !isFrozen(dir) {
		return nil
	}
	if err = k.write(path.Join(group, "cgroup.freeze"), "0"); err == nil {
		err = unix.Fremovexattr(int(dir.Fd()), frozen)
	}
	return err
}

// isFrozen says whether freeze has stopped those of a cgroup.
func isFrozen(dir *os.File) bool {
	_, err := unix.Fgetxattr(int(dir.Fd()), frozen, nil)
	return err == nil
}

// Finish thaws the cgroup where a process was killed that was about to remove it.
func (c groupDir) Finish(_ context.Context, s journal.Step) error { return c.thaw(s.Target) }

// Finish thaws the cgroup where a process was killed that moved processes out of it.
func (t tasks) Finish(_ context.Context, s journal.Step) error { return t.thaw(s.Target) }
