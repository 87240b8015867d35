package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotRunning says that no machine runs with the files of a folder.
var ErrNotRunning = errors.New("no machine runs there")

// Running reports whether the machine with these files runs.
func Running(dir string) bool {
	_, ok := running(dir)
	return ok
}

// Attach connects to a machine that another process has started. It waits up to a limit while another runner
// uses it. What a runner that has gone left running there is ended.
func Attach(dir string, limit time.Duration) (*VM, error) {
	if !Running(dir) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNotRunning)
	}
	conn, err := net.Dial("unix", filepath.Join(dir, "control"))
	if err != nil {
		return nil, err
	}
	vm := &VM{dir: dir, conn: conn}
	if err = vm.ping(limit); err != nil {
		vm.Close()
		return nil, fmt.Errorf("%s: the guest has not answered for %v: does another command run in it? %w; %s",
			dir, limit, err, lastLines(dir))
	}
	return vm, nil
}

// Down ends a machine that another process has started.
func Down(dir string) error {
	pid, _ := running(dir)
	// Check once more which process this is: its id may belong to another one by now.
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	if again, ok := running(dir); err != nil || !ok || again != pid {
		return fmt.Errorf("%s: %w", dir, ErrNotRunning)
	}
	if err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return fmt.Errorf("%s: process %d: %w", dir, pid, err)
	}
	const limit = 10 * time.Second
	for deadline := time.Now().Add(limit); ; {
		left := max(0, time.Until(deadline))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR) && time.Now().Before(deadline):
			continue
		case err != nil || n == 0:
			return fmt.Errorf("%s: process %d did not end within %v of SIGKILL", dir, pid, limit)
		}
		return os.Remove(filepath.Join(dir, "pid"))
	}
}

// running returns the process of a machine, if it is still the one that was started: process ids are used
// again.
func running(dir string) (int, bool) {
	data, err := os.ReadFile(filepath.Join(dir, "pid"))
	pid, start, ok := strings.Cut(string(data), " ")
	n, perr := strconv.Atoi(pid)
	return n, err == nil && ok && perr == nil && n > 0 && start != "" && startTime(pid) == start
}

// startTime returns when a process started, in ticks since boot (proc_pid_stat(5), field 22); "" if it is
// gone or a zombie.
func startTime(pid string) string {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if err != nil || len(f) < 20 || f[0] == "Z" {
		return ""
	}
	return f[19]
}
