package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
)

// recorded returns the file name of a program's record.
func recorded(program string) string { return program + ".process" }

// identity identifies a process across process ids that are used again: by id, start time and boot.
func identity(pid int) (string, error) {
	start, err := task.StartTime(host.Live(), pid)
	if err != nil {
		return "", err
	}
	boot, err := journal.BootID()
	return fmt.Sprintf("%d %d %s", pid, start, boot), err
}

// record writes down which process a program is.
func record(dir, program string, pid int) error {
	is, err := identity(pid)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, recorded(filepath.Base(program))), []byte(is), 0o600)
}

// endLeft ends what is left of a hub that was killed, and waits for that. The kernel ends the children of a
// killed hub, but they keep their ports for a moment.
func endLeft(ctx context.Context, dir string) error {
	records, err := filepath.Glob(filepath.Join(dir, recorded("*")))
	if err != nil {
		return err
	}
	for _, file := range records {
		if err = endRecorded(ctx, file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func endRecorded(ctx context.Context, file string) error {
	was, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var pid int
	if _, err = fmt.Sscan(string(was), &pid); err != nil {
		return os.Remove(file) // it was not written completely
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.Remove(file)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if is, ierr := identity(pid); ierr != nil || is != string(was) { // another process, or none
		return os.Remove(file)
	}
	if err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	for { // a pidfd can be read when the process has ended, pidfd_open(2)
		n, perr := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		switch {
		case n > 0:
			return os.Remove(file)
		case perr != nil && !errors.Is(perr, unix.EINTR):
			return perr
		case ctx.Err() != nil:
			return fmt.Errorf("process %d does not end: %w", pid, ctx.Err())
		}
	}
}
