package witness

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/results"
)

// lookAtCpusets reads the cpusets. Of one that was not as planned once within the window, that state is kept.
func (s *Session) lookAtCpusets() error {
	var failed error
	for i, dir := range slices.Sorted(maps.Keys(s.watch.Cpusets)) {
		force, err := cgroup.CPUs(s.root, dir)
		failed = errors.Join(failed, err)
		now := results.Cpuset{Path: dir, Planned: s.watch.Cpusets[dir], InForce: force}
		switch {
		case i == len(s.cpusets):
			s.cpusets = append(s.cpusets, now)
		case s.cpusets[i].InForce == s.cpusets[i].Planned:
			s.cpusets[i] = now
		}
	}
	return failed
}

// followCpusets looks at the cpusets each time that somebody writes to one (inotify(7)), until the returned
// function is called. What is changed and put back within the window is not seen at its end. A cpuset that
// changes with one above it is seen at the end only.
func (s *Session) followCpusets() (stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return func() {}, fmt.Errorf("what is changed and put back within a window is not seen: inotify: %w", err)
	}
	for dir := range s.watch.Cpusets {
		_, aerr := unix.InotifyAddWatch(fd, filepath.Join(dir, "cpuset.cpus"), unix.IN_MODIFY)
		if aerr != nil && !errors.Is(aerr, unix.ENOENT) { // ENOENT: it has the CPUs of one above it
			err = errors.Join(err, fmt.Errorf("%s: what is changed and put back is not seen: inotify: %w", dir, aerr))
		}
	}
	events, done := os.NewFile(uintptr(fd), "inotify"), make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			if _, err := events.Read(buffer); err != nil {
				return // it is closed
			}
			_ = s.lookAtCpusets() // one that cannot be read has no CPUs, which the evidence says
		}
	}()
	return func() {
		_ = events.Close() // nothing is written to it
		<-done
	}, err
}
