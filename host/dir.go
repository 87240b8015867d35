package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// Live returns the file system of this machine.
func Live() fs.FS { return dir{} }

// Dir returns the file system of the machine whose /sys and /proc lie in a directory. Links in it,
// also absolute ones, are followed within the directory, so that what is read is never this machine.
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

// dir reads files with few system calls: a large machine has ten thousand of them. Its zero value is
// the live machine.
type dir struct {
	root *os.Root
	top  *os.File // the same directory
}

// Open opens a file or a directory. It does not wait for what could block for ever, such as a pipe.
func (d dir) Open(name string) (fs.File, error) {
	f, err := d.file(name)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d dir) file(name string) (*os.File, error) {
	fd, err := d.descriptor(name)
	if d.root != nil && errors.Is(err, unix.ENOSYS) { // before Linux 5.6
		return d.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (d dir) descriptor(name string) (int, error) {
	if !fs.ValidPath(name) {
		return -1, fs.ErrInvalid
	}
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK
	for {
		var fd int
		var err error
		if d.root == nil {
			fd, err = unix.Open("/"+name, flags, 0)
		} else {
			how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
			fd, err = unix.Openat2(int(d.top.Fd()), name, &how)
		}
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// ReadFile reads a file, and of a longer one somewhat more than maxFile bytes.
func (d dir) ReadFile(name string) ([]byte, error) {
	fd, err := d.descriptor(name)
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
	data := make([]byte, 0, 512)
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
		if data = data[:len(data)+n]; len(data) == cap(data) {
			data = slices.Grow(data, len(data))
		}
	}
	return data, nil
}

// ReadDir lists a directory.
func (d dir) ReadDir(name string) ([]fs.DirEntry, error) {
	const most = 2 << 20 // entries
	f, err := d.file(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(most)
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
	return d.root.Readlink(name)
}

// Lstat describes a file without following it.
func (d dir) Lstat(name string) (fs.FileInfo, error) {
	if d.root == nil {
		return os.Lstat("/" + name)
	}
	return d.root.Lstat(name)
}
