package guard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writers records who writes to files, as far as fanotify(7) reports it: it reports programs, not the kernel.
type writers struct {
	fd     int
	dirs   map[string]bool
	byFile map[string]string // by file: the program and its process id
	self   int
}

// newWriters returns nil if the kernel has no fanotify or does not permit it.
func newWriters() *writers {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_NONBLOCK|unix.FAN_CLOEXEC,
		unix.O_RDONLY|unix.O_CLOEXEC|unix.O_LARGEFILE)
	if err != nil {
		return nil
	}
	return &writers{fd: fd, dirs: map[string]bool{}, byFile: map[string]string{}, self: os.Getpid()}
}

// watch watches the directory of a file from now on, because another file there may set the same value:
// smp_affinity sets what smp_affinity_list shows.
func (w *writers) watch(file string) {
	dir := filepath.Dir(file)
	if w == nil || w.dirs[dir] {
		return
	}
	const what = unix.FAN_MODIFY | unix.FAN_EVENT_ON_CHILD
	// If this fails the directory is missing, and the writer stays unknown.
	if unix.FanotifyMark(w.fd, unix.FAN_MARK_ADD, what, unix.AT_FDCWD, dir) == nil {
		w.dirs[dir] = true
	}
}

// read collects the writes since the last call, and reports whether there were any.
func (w *writers) read() (bool, error) {
	if w == nil {
		return false, nil
	}
	some := false
	var buffer [4096]byte
	for {
		n, err := unix.Read(w.fd, buffer[:])
		if errors.Is(err, unix.EAGAIN) || n == 0 {
			return some, nil
		}
		if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) { // the file of a cgroup that is gone
			continue
		}
		if err != nil {
			return some, fmt.Errorf("fanotify: %w", err)
		}
		for at := 0; at+int(unsafe.Sizeof(unix.FanotifyEventMetadata{})) <= n; {
			event := (*unix.FanotifyEventMetadata)(unsafe.Pointer(&buffer[at]))
			if event.Event_len == 0 {
				break
			}
			at += int(event.Event_len)
			if event.Fd < 0 {
				continue
			}
			file, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", event.Fd))
			err = errors.Join(err, unix.Close(int(event.Fd)))
			if err == nil && int(event.Pid) != w.self {
				w.byFile[file], some = describeProcess(int(event.Pid)), true
			}
		}
	}
}

// describeProcess names a process. If it has ended, only its number is known.
func describeProcess(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("a program that has ended (process %d)", pid)
	}
	return fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(name)), pid)
}

// lastWriter returns who last wrote to a file, or to its sibling that sets the same value; "" if that is not
// known.
func (w *writers) lastWriter(file string) string {
	if w == nil {
		return ""
	}
	for _, name := range []string{file, strings.TrimSuffix(file, "_list")} {
		if who, ok := w.byFile[name]; ok {
			return who
		}
	}
	return ""
}

func (w *writers) close() error {
	if w == nil {
		return nil
	}
	return unix.Close(w.fd)
}
