package agent

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// changes wakes the agent when another process changes the lanes, which replaces or removes a record in their
// directory (inotify(7)).
type changes struct {
	some chan struct{} // holds one signal for any number of changes
	dir  string
	file *os.File // of inotify
	done chan struct{}
}

func newChanges(dir string) (*changes, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	c := &changes{make(chan struct{}, 1), dir, os.NewFile(uintptr(fd), "inotify"), make(chan struct{})}
	go c.read()
	c.follow()
	return c, nil
}

// follow watches the directory, and creates it if it does not exist, because lanes may come later. It ignores
// errors: the next reading reports them.
func (c *changes) follow() {
	_ = os.MkdirAll(c.dir, 0o700)
	conn, err := c.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_, _ = unix.InotifyAddWatch(int(fd), c.dir, unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_ONLYDIR)
	})
}

func (c *changes) read() {
	defer close(c.done)
	var buffer [4096]byte
	for {
		n, err := c.file.Read(buffer[:])
		if err != nil {
			return // closed
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&buffer[at]))
			at += unix.SizeofInotifyEvent
			name := string(bytes.TrimRight(buffer[at:at+int(e.Len)], "\x00"))
			at += int(e.Len)
			if !strings.HasSuffix(name, ".json") { // lanes and proofs, but not the lock or a journal
				continue
			}
			select {
			case c.some <- struct{}{}:
			default:
			}
		}
	}
}

func (c *changes) close() error {
	if c == nil {
		return nil
	}
	err := c.file.Close()
	<-c.done
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
