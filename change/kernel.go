package change

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
)

// kernel gives access to the kernel's settings as files below root: "/" for the live system, or in tests a
// directory that stands in for the kernel.
//
// A journal is not trusted: kernel follows no symbolic link, and on the live system opens only files on the
// kernel's own file systems. Which of these a step may name is up to the Check of its kind.
type kernel struct{ root string }

func (k kernel) isLive() bool { return k.root == "/" }

// open opens a file or directory without following symbolic links (openat2(2)).
func (k kernel) open(name string, flags uint64) (*os.File, error) {
	fd, err := k.openDescriptor(name, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openDescriptor is open without a finalizer, for the many that are read.
func (k kernel) openDescriptor(name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o644
	}
	from, to := unix.AT_FDCWD, path.Join("/", name)
	if !k.isLive() {
		root, err := unix.Open(k.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: k.root, Err: err}
		}
		defer unix.Close(root)
		from, to, how.Resolve = root, to[1:], how.Resolve|unix.RESOLVE_BENEATH
	}
	fd, err := unix.Openat2(from, to, &how)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	if err = k.checkKernelFS(fd, name); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// checkKernelFS returns an error unless a file lies on one of the kernel's own file systems.
func (k kernel) checkKernelFS(fd int, name string) error {
	if !k.isLive() {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	switch st.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC:
		return nil
	}
	return fmt.Errorf("%s: expected a file of /proc, /sys or a cgroup, found one of another file system", name)
}

// read returns a file's content without trailing white space. In a directory that stands in for a cgroup, a
// missing file reads as empty, because the kernel makes such files and a directory does not.
func (k kernel) read(name string) (string, error) {
	fd, err := k.openDescriptor(name, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) && !k.isLive() && slices.Contains(groupFiles(), path.Base(name)) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	data, err := host.ReadDescriptor(fd, name)
	return strings.TrimRight(string(data), " \t\n"), err
}

func (k kernel) write(name, value string) error {
	flags := uint64(unix.O_WRONLY | unix.O_TRUNC)
	if !k.isLive() {
		flags |= unix.O_CREAT // as in read
	}
	f, err := k.open(name, flags)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

// inheritParent makes a cpuset use what its parent has, by emptying its list. The kernel refuses that for a
// cgroup v2 with processes (kernel/cgroup/cpuset.c, validate_change). It gets all there is, which means the
// same.
func (k kernel) inheritParent(name string) error {
	err := k.write(name, "")
	if errors.Is(err, unix.ENOSPC) {
		all := "/sys/devices/system/cpu/possible"
		if path.Base(name) == "cpuset.mems" {
			all = "/sys/devices/system/node/has_memory"
		}
		var list string
		if list, err = k.read(all); err == nil {
			err = k.write(name, list)
		}
	}
	return err
}

// openParent opens the directory that holds name.
func (k kernel) openParent(name string) (*os.File, error) {
	return k.open(filepath.Dir(name), unix.O_PATH|unix.O_DIRECTORY)
}
