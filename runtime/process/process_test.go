package process

import (
	"bytes"
	"context"
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

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
)

func TestMain(m *testing.M) { hosttest.Main(m, entered, parent, becoming) }

// entered makes this binary what Command starts. Its first thread is not the one that becomes the workload.
func entered() (bool, error) {
	if len(os.Args) < 2 || os.Args[1] != "enter" {
		return false, nil
	}
	runtime.LockOSThread()
	failed := make(chan error)
	go func() { failed <- Become(os.Args[2:]) }()
	return true, <-failed
}

// parent starts a workload and says its process id.
func parent() (bool, error) {
	if len(os.Args) < 2 || os.Args[1] != "parent" {
		return false, nil
	}
	self, err := os.Executable()
	if err != nil {
		return true, err
	}
	cmd := Command(context.Background(), []string{self, "enter"}, Lane{}, "sh", "-c", "echo $$; exec sleep 1000")
	cmd.Stdout = os.Stdout
	if err = Start(cmd, ""); err != nil {
		return true, err
	}
	return true, cmd.Wait()
}

// becoming is a process that prepares until its input ends, and then becomes one that says what it ignores.
func becoming() (bool, error) {
	if len(os.Args) < 2 || os.Args[1] != "becoming" {
		return false, nil
	}
	before := HoldBack()
	if _, err := os.Stdout.WriteString("prepares\n"); err != nil {
		return true, err
	}
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return true, err
	}
	before.Let()
	return true, Lane{}.Enter([]string{"grep", "SigIgn", "/proc/self/status"}, os.Environ())
}

// A signal that comes before the program begins ends the process as it would end the program, and one that the
// program would ignore, as under nohup(1) and systemd, it ignores.
func TestSignalsBefore(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		start string
		send  syscall.Signal
		ended string // how; "": not by a signal
		says  string
	}{
		{"exec", syscall.SIGTERM, "signal: terminated", ""},
		{"exec", syscall.SIGHUP, "signal: hangup", ""},
		{"exec", syscall.SIGCONT, "", "0000000000000000"},
		{"exec nohup", syscall.SIGHUP, "", "0000000000000001"},
		{"exec nohup", syscall.SIGTERM, "signal: terminated", ""},
		{"trap '' INT; exec", syscall.SIGINT, "", "0000000000000002"},
		{"exec", syscall.SIGINT, "signal: interrupt", ""},
		{"export SYSTEMD_EXEC_PID=$$; exec", syscall.SIGCONT, "", "0000000000001000"},
		{"export SYSTEMD_EXEC_PID=1; exec", syscall.SIGCONT, "", "0000000000000000"},
	} {
		// Whoever runs the tests may ignore signals himself, as under nohup: none of these.
		cmd := exec.CommandContext(t.Context(), "env", "--default-signal", "sh", "-c", c.start+" "+self+" becoming")
		in, ierr := cmd.StdinPipe()
		out, oerr := cmd.StdoutPipe()
		if err = errors.Join(ierr, oerr, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		if _, err = fmt.Fscan(out, new(string)); err != nil {
			t.Fatal(err)
		}
		if err = errors.Join(cmd.Process.Signal(c.send), in.Close()); err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(out)
		ended := ""
		if werr := cmd.Wait(); werr != nil {
			ended = werr.Error()
		}
		ignored, says := "", strings.Fields(string(said))
		if len(says) == 2 { // but for those of the C library, 32 and 33
			mask, perr := strconv.ParseUint(says[1], 16, 64)
			ignored, err = fmt.Sprintf("%016x", mask&^(3<<31)), errors.Join(err, perr)
		}
		if ended != c.ended || ignored != c.says || err != nil {
			t.Errorf("%s, %s: it ended %q and ignored %q, %v; want %q and %q", c.start, c.send, ended, ignored, err, c.ended, c.says)
		}
	}
}

// A workload does not outlive a parent that is killed.
func TestEndsWithParent(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err = fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	if err = cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended(t, pid)
	_ = cmd.Wait() // killed
}

// A process is born in its cgroup, with its policy, and keeps its process id through the exec.
func TestStart(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset)
	h, err := host.Read(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	if h.Kernel.Cgroup.CpusetV1 == nil {
		t.Skip("skipped: needs a cgroup v1 cpuset")
	}
	dir := filepath.Join(*h.Kernel.Cgroup.CpusetV1, "isolane-process-test")
	if err = os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err = unix.Rmdir(dir); err != nil {
			t.Error(err)
		}
	}()
	last := fmt.Sprint(h.Usable().Last())
	for name, value := range map[string]string{"cpuset.cpus": last, "cpuset.mems": h.MemoryNodes().String()} {
		if err = os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.ReadFile("/proc/thread-self/cpuset")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := Command(t.Context(), []string{self, "enter"}, Lane{Policy: "fifo", Priority: 7}, "sh", "-c",
		"echo pid $$; grep Cpus_allowed_list /proc/self/status; cat /proc/self/cpuset; chrt -p $$")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err = Start(cmd, dir); err != nil {
		t.Fatal(err)
	}
	if err = cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	for _, want := range []string{fmt.Sprint("pid ", cmd.Process.Pid), "Cpus_allowed_list:\t" + last + "\n", "/isolane-process-test\n", "SCHED_FIFO", "priority: 7"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &out)
		}
	}
	if back, rerr := os.ReadFile("/proc/thread-self/cpuset"); rerr != nil || !bytes.Equal(back, home) {
		t.Errorf("this thread is in %s, was in %s, %v", back, home, rerr)
	}
}

// When the run ends, so do the children that a workload left behind.
func TestCancelEndsTheGroup(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := Command(ctx, []string{self, "enter"}, Lane{}, "sh", "-c", "sleep 1000 & echo $!; wait")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err = Start(cmd, ""); err != nil {
		t.Fatal(err)
	}
	if err = w.Close(); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err = fmt.Fscan(r, &child); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err = cmd.Wait(); err == nil {
		t.Error("the command ended by itself")
	}
	// The pipe closes when nobody holds its other end: the child is about to end.
	if n, rerr := r.Read(make([]byte, 1)); n != 0 || rerr == nil {
		t.Errorf("read %d, %v", n, rerr)
	}
	ended(t, child)
}

// ended waits for a process to end.
func ended(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			_ = unix.Kill(pid, unix.SIGKILL)
			t.Fatalf("process %d still runs", pid)
		}
	}
}

// A process of another user has no privileges, none by a program that gives them, and sees nothing of others.
func TestUser(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const user = 1879048200
	private := t.TempDir()
	if err = os.Chown(private, user, user); err != nil {
		t.Fatal(err)
	}
	script := `cat /proc/self/status; echo in $(pwd); echo sees $(ls -d /proc/[0-9]* | wc -l); echo own > /tmp/file
cat /etc/shadow > /dev/null || echo no secrets; test -e ` + filepath.Join(os.TempDir(), filepath.Base(filepath.Dir(private))) + ` || echo no others`
	cmd := Command(t.Context(), []string{self, "enter"}, Lane{User: user, Private: private, Capabilities: []string{"KILL"}},
		"sh", "-c", script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ids := strings.Repeat("\t1879048200", 4)
	for _, want := range []string{"Uid:" + ids, "Gid:" + ids, "Groups:\t \n", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000",
		"CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "in /tmp\n", "no secrets", "no others"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("expected %q in\n%s", want, out)
		}
	}
	_, seen, _ := strings.Cut(string(out), "sees ")
	if n, nerr := strconv.Atoi(strings.Fields(seen)[0]); nerr != nil || n < 1 || n > 4 { // the shell, and what it starts
		t.Errorf("it sees %d processes, %v", n, nerr)
	}
	info, err := os.Stat(filepath.Join(private, "file"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != user {
		t.Errorf("its file: %v, %v", info, err)
	}
	if _, err = os.Stat("/tmp/file"); err == nil {
		t.Error("its file is in the host's /tmp")
	}
}
