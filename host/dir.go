package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/firmware"
)

// Live returns the file system of this machine. What a container lacks below /etc and /usr, such as
// /etc/machine-id, is that of process 1 (proc_pid_root(5)).
func Live() fs.FS { return dir{} }

// IsLive reports whether a file system is that of this machine, directly or through another file system of
// Isolane that shows some settings with other values.
func IsLive(root fs.FS) bool {
	l, is := root.(interface{ Live() bool })
	return is && l.Live()
}

// Live reports whether d is the file system of this machine.
func (d dir) Live() bool { return d.root == nil }

// Dir returns the file system of a machine whose /sys and /proc are in a directory. Links are followed within
// the directory, even absolute ones, so that nothing of this machine is read.
func Dir(name string) (fs.FS, error) {
	if path.Clean(name) == "/" {
		return Live(), nil
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	top, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	return dir{root: root, top: top}, nil
}

// dir reads files with few system calls, because a large machine has ten thousand of them. Its zero value is
// the live machine.
type dir struct {
	root *os.Root
	top  *os.File // the same directory
}

// Open opens a file or a directory. It does not wait for something that could block forever, such as a pipe.
func (d dir) Open(name string) (fs.File, error) {
	f, err := d.file(name)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d dir) file(name string) (*os.File, error) {
	fd, err := d.descriptor(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if d.root != nil && errors.Is(err, unix.ENOSYS) { // before Linux 5.6
		return d.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (d dir) descriptor(name string, flags int) (int, error) {
	if !fs.ValidPath(name) {
		return -1, fs.ErrInvalid
	}
	flags |= unix.O_CLOEXEC
	for {
		var fd int
		var err error
		if d.root == nil && firmware.IsAsked(name) {
			fd, err = firmware.Ask(name)
		} else if d.root == nil {
			fd, err = unix.Open("/"+name, flags, 0)
			if errors.Is(err, unix.ENOENT) && (strings.HasPrefix(name, "etc/") || strings.HasPrefix(name, "usr/")) {
				if its, ierr := unix.Open("/proc/1/root/"+name, flags, 0); ierr == nil {
					return its, nil
				}
			}
		} else {
			how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
			fd, err = unix.Openat2(int(d.top.Fd()), name, &how)
		}
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// ReadFile reads a file. Of a long file it returns somewhat more than maxFile bytes.
func (d dir) ReadFile(name string) ([]byte, error) {
	fd, err := d.descriptor(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if errors.Is(err, unix.ENOSYS) {
		f, ferr := d.file(name)
		if ferr != nil {
			return nil, ferr
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, maxFile+1))
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	return ReadDescriptor(fd, name)
}

// ReadDescriptor reads the rest of an open file with that name. Of a long file it returns somewhat more than
// maxFile bytes.
func ReadDescriptor(fd int, name string) ([]byte, error) {
	const first = 512
	data := make([]byte, 0, first)
	for len(data) <= maxFile {
		n, err := unix.Read(fd, data[len(data):cap(data)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		case n == 0:
			return data, nil
		}
		if data = data[:len(data)+n]; ends(name) && len(data) < cap(data) && cap(data) == first {
			return data, nil
		}
		if len(data) == cap(data) {
			data = slices.Grow(data, len(data))
		}
	}
	return data, nil
}

// ends reports whether a file, by its name, has ended when the first read returns less than was asked for.
// This is true for sysfs, cgroups, interrupts and tasks' times: each file is one record, or its records are
// so short that several fit in the page that the kernel fills before it returns (fs/kernfs/file.c,
// seq_read_iter in fs/seq_file.c).
func ends(name string) bool {
	name = strings.TrimPrefix(name, "/")
	return strings.HasPrefix(name, "sys/") || strings.HasPrefix(name, "proc/irq/") ||
		strings.HasPrefix(name, "proc/") && strings.HasSuffix(name, "/stat")
}

// ReadDir lists a directory.
func (d dir) ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := d.file(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(2 << 20) // most entries
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// ReadLink returns where a link points.
func (d dir) ReadLink(name string) (string, error) {
	if d.root == nil {
		return os.Readlink("/" + name)
	}
	fd, err := d.descriptor(name, unix.O_PATH|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOSYS) {
		return d.root.Readlink(name)
	}
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	defer unix.Close(fd)
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil { // ENOENT if the file is no link
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(target[:n]), nil
}

// Lstat describes a file without following it.
func (d dir) Lstat(name string) (fs.FileInfo, error) {
	if d.root == nil {
		return os.Lstat("/" + name)
	}
	return d.root.Lstat(name)
}
