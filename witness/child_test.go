package witness

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
)

// childMode makes the test binary a process to be witnessed: "burn" burns CPU time, "family" lets a
// child of its own do it that ends at once, "gaps" looks when its CPU is taken away meanwhile.
const childMode = "ISOLANE_WITNESS_CHILD"

func TestMain(m *testing.M) {
	hosttest.Main(m, func() (bool, error) {
		mode := os.Getenv(childMode)
		if mode == "" {
			return false, nil
		}
		return true, child(mode)
	})
}

// comm is the name that the kernel gives the children: the program's, of at most 15 bytes.
func comm() string {
	name := filepath.Base(os.Args[0])
	return name[:min(len(name), 15)]
}

// child burns as many milliseconds of CPU time as each line says, and answers each with what all of
// this process has spent by then.
func child(mode string) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		ms, err := strconv.Atoi(lines.Text())
		if err != nil {
			return err
		}
		switch mode {
		case "family":
			cmd := exec.Command(os.Args[0])
			cmd.Env = []string{childMode + "=burn"}
			cmd.Stdin = strings.NewReader(lines.Text() + "\n")
			err = cmd.Run()
		case "gaps":
			if ms > 1 { // else it only says that it is up
				err = gaps(time.Duration(ms) * time.Millisecond)
			}
		default:
			err = burn(time.Duration(ms) * time.Millisecond)
		}
		if err != nil {
			return err
		}
		if _, err = fmt.Fprintln(os.Stdout, int64(cpuTime(unix.CLOCK_PROCESS_CPUTIME_ID))); err != nil {
			return err
		}
	}
	return lines.Err()
}

func cpuTime(clock int32) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(clock, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

func burn(d time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for end := cpuTime(unix.CLOCK_THREAD_CPUTIME_ID) + d; cpuTime(unix.CLOCK_THREAD_CPUTIME_ID) < end; {
	}
	return nil
}

// gaps reads the clock until d is over and prints when it did not get on for 2 µs or more.
func gaps(d time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	found := make([]results.Sample, 0, 1<<16)
	last := clock()
	for end := last + results.Nanoseconds(d); last < end && len(found) < cap(found); {
		now := clock()
		if now-last >= 2000 {
			found = append(found, results.Sample{Begin: last, End: now})
		}
		last = now
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// clock is CLOCK_MONOTONIC.
func clock() results.Nanoseconds {
	ns, _ := monotonic()
	return results.Nanoseconds(ns)
}

// burner is a child process that runs on one CPU.
type burner struct {
	tb  testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a child whose threads are all born on the given CPU.
func start(tb testing.TB, mode string, cpu int) *burner {
	tb.Helper()
	b := &burner{tb: tb, cmd: exec.Command(os.Args[0])}
	b.cmd.Env = []string{childMode + "=" + mode, "GOMAXPROCS=1"}
	b.cmd.Stderr = os.Stderr
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := b.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	b.in, b.out = in, bufio.NewReader(out)
	runtime.LockOSThread() // also for Pdeathsig
	var before, only unix.CPUSet
	only.Set(cpu)
	if err = errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &only)); err != nil {
		tb.Fatal(err)
	}
	err = b.cmd.Start()
	if err = errors.Join(err, unix.SchedSetaffinity(0, &before)); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		b.end()
		runtime.UnlockOSThread()
	})
	b.burn(1) // it is up
	return b
}

func (b *burner) pid() int { return b.cmd.Process.Pid }

func (b *burner) tids() []int { return task.Threads(os.DirFS("/"), b.pid()) }

// burn lets the child burn CPU time and returns what it has spent in all.
func (b *burner) burn(ms int) time.Duration {
	b.tb.Helper()
	if _, err := fmt.Fprintln(b.in, ms); err != nil {
		b.tb.Fatal(err)
	}
	line, err := b.out.ReadString('\n')
	if err != nil {
		b.tb.Fatal(err)
	}
	spent, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		b.tb.Fatal(err)
	}
	return time.Duration(spent)
}

// move pins all threads of the child to another CPU.
func (b *burner) move(cpu int) {
	b.tb.Helper()
	var only unix.CPUSet
	only.Set(cpu)
	for _, tid := range b.tids() {
		if err := unix.SchedSetaffinity(tid, &only); err != nil {
			b.tb.Fatal(err)
		}
	}
}

// end ends the child and waits for it. It may be called again.
func (b *burner) end() {
	_ = b.in.Close()
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}
