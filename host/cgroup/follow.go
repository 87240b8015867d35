package cgroup

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Follow calls look each time that somebody writes to a file of one of these directories (inotify(7)), such
// as its cpuset or kind of partition, until stop is called, which waits for look. It does not see that a
// cpuset changes with one above it. With an error it follows those that it can.
func Follow(dirs []string, look func()) (stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return func() {}, fmt.Errorf("inotify: %w", err)
	}
	for _, dir := range dirs {
		if _, aerr := unix.InotifyAddWatch(fd, dir, unix.IN_MODIFY); aerr != nil {
			err = errors.Join(err, fmt.Errorf("inotify: %s: %w", dir, aerr))
		}
	}
	events, done := os.NewFile(uintptr(fd), "inotify"), make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			if _, rerr := events.Read(buffer); rerr != nil {
				return // it is closed
			}
			look()
		}
	}()
	return func() {
		_ = events.Close() // nothing was written to it
		<-done
	}, err
}
