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

// frozenMark is an extended attribute (xattr(7)) that marks a cgroup as frozen by Isolane while its processes
// are moved. If the mover is killed, the next one finds the mark and thaws the cgroup; one that somebody else
// has frozen has no mark, and stays frozen.
const frozenMark = "trusted.isolane.frozen"

// freeze stops the processes of a cgroup v2. It returns false if it cannot, or if the cgroup is frozen
// already.
func (k kernel) freeze(group string) bool {
	file := path.Join(group, "cgroup.freeze")
	dir, err := k.open(group, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer dir.Close()
	now, err := k.read(file)
	return err == nil && now == "0" && unix.Fsetxattr(int(dir.Fd()), frozenMark, nil, 0) == nil &&
		k.write(file, "1") == nil
}

// thaw lets the processes continue that freeze has stopped, in this process or an earlier one.
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
		err = unix.Fremovexattr(int(dir.Fd()), frozenMark)
	}
	return err
}

// isFrozen reports whether freeze has stopped the cgroup.
func isFrozen(dir *os.File) bool {
	_, err := unix.Fgetxattr(int(dir.Fd()), frozenMark, nil)
	return err == nil
}

// Finish thaws the cgroup if a process was killed while removing it.
func (c groupDir) Finish(_ context.Context, s journal.Step) error { return c.thaw(s.Target) }

// Finish thaws the cgroup if a process was killed while moving processes out of it.
func (t tasks) Finish(_ context.Context, s journal.Step) error { return t.thaw(s.Target) }
