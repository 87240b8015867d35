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

// kernel is the file system through which the kernel's settings are reached: below root, "/" for the
// live one. Another root is a directory that stands in for the kernel, as tests have it.
//
// A journal is not trusted: no symbolic link is followed, and on the live system only files are opened that
// lie on a file system of the kernel's. Which files these are is for each kind's Check.
type kernel struct{ root string }

func (k kernel) live() bool { return k.root == "/" }

// open opens a file or directory without following a symbolic link (openat2(2)).
func (k kernel) open(name string, flags uint64) (*os.File, error) {
	fd, err := k.descriptor(name, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// descriptor is open without a finalizer, for the many that are read.
func (k kernel) descriptor(name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o644
	}
	from, to := unix.AT_FDCWD, path.Join("/", name)
	if !k.live() {
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
	if err = k.onKernelFS(fd, name); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// onKernelFS says whether a file lies on a file system of the kernel's own.
func (k kernel) onKernelFS(fd int, name string) error {
	if !k.live() {
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

// read returns a file's content without the white space at its end. Of a cgroup's files one that a
// stand-in lacks is empty: the kernel makes them, a directory does not.
func (k kernel) read(name string) (string, error) {
	fd, err := k.descriptor(name, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) && !k.live() && slices.Contains(groupFiles(), path.Base(name)) {
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
	if !k.live() {
		flags |= unix.O_CREAT // as in read
	}
	f, err := k.open(name, flags)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

// inherit empties the list of a cpuset, so that it has what its parent has. The kernel empties none of a
// cgroup v2 with processes (kernel/cgroup/cpuset.c, validate_change): that one gets all there is, which means
// the same.
func (k kernel) inherit(name string) error {
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

// parent opens the directory that holds name.
func (k kernel) parent(name string) (*os.File, error) {
	return k.open(filepath.Dir(name), unix.O_PATH|unix.O_DIRECTORY)
}
