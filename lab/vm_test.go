package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// This program also replaces QEMU, and a runner that is to be killed.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("LAB_STAND_IN") != "":
		fmt.Fprintln(os.Stderr, standInForQEMU(os.Getenv("LAB_STAND_IN"), os.Args[1:]))
		os.Exit(3) //nolint:forbidigo // TestMain is this package's main
	case os.Getenv("LAB_RUNNER") != "":
		dir := os.Getenv("LAB_RUNNER")
		err := os.Setenv("LAB_STAND_IN", "serves")
		if err != nil {
			panic(err)
		}
		_, err = Lab{dir}.Start(context.Background(), Default(), Options{Dir: dir, Runner: dir, Share: dir, Log: os.Stderr})
		fmt.Println("started", err) //nolint:forbidigo // for the test that started this
		select {}
	}
	os.Exit(m.Run()) //nolint:forbidigo // as above
}

// standInForQEMU behaves as told: "silent 2" stays silent the first two times, and then serves.
func standInForQEMU(behaviour string, args []string) error {
	var control, dir string
	for _, a := range args {
		if rest, ok := strings.CutPrefix(a, "socket,id=ctl,path="); ok {
			control, _, _ = strings.Cut(rest, ",")
			dir = filepath.Dir(control)
		}
	}
	starts, err := os.OpenFile(filepath.Join(dir, "starts"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	before, err := io.ReadAll(starts)
	if err != nil {
		return err
	}
	if _, err = starts.WriteString("."); err != nil {
		return err
	}
	word, times, _ := strings.Cut(behaviour, " ")
	n, _ := strconv.Atoi(times)
	switch {
	case word == "fails":
		return errors.New("no such machine")
	case word == "crashes":
		return unix.Kill(os.Getpid(), unix.SIGKILL)
	case word == "silent" && len(before) < n:
		select {}
	}
	l, err := net.Listen("unix", control)
	if err != nil {
		return err
	}
	return serve(&port{l: l}, func(bool) {})
}

// port is a socket that reads like a virtio-serial port: end of file means that nobody is connected.
type port struct {
	l  net.Listener
	mu sync.Mutex
	c  net.Conn
}

func (p *port) conn() net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.c
}

func (p *port) Read(b []byte) (int, error) {
	c := p.conn()
	var err error
	if c == nil {
		if c, err = p.l.Accept(); err != nil {
			return 0, err
		}
	}
	n, err := c.Read(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.c = c
	if err != nil {
		p.c = nil
		return 0, io.EOF
	}
	return n, nil
}

func (p *port) Write(b []byte) (int, error) {
	if c := p.conn(); c != nil {
		return c.Write(b)
	}
	return len(b), nil
}

// standIn returns a lab whose QEMU is this program.
func standIn(t *testing.T, behaviour string) (Lab, Options, *bytes.Buffer) {
	t.Helper()
	t.Setenv("LAB_STAND_IN", behaviour)
	l, dir := Lab{t.TempDir()}, t.TempDir()
	linkSelf(t, l.dir)
	var log bytes.Buffer
	return l, Options{Dir: dir, Runner: dir, Share: dir, Log: &log}, &log
}

func linkSelf(t *testing.T, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	loader := filepath.Join(dir, "qemu/usr/lib64/ld-linux-x86-64.so.2")
	if err = os.MkdirAll(filepath.Dir(loader), 0o755); err != nil {
		t.Fatal(err)
	}
	if err = os.Symlink(self, loader); err != nil {
		t.Fatal(err)
	}
}

func up(t *testing.T, behaviour string) (*VM, Options, *bytes.Buffer) {
	t.Helper()
	l, o, log := standIn(t, behaviour)
	if behaviour != "serves" {
		o.Silence = 2 * time.Second
	}
	vm, err := l.Start(t.Context(), Default(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(vm.Stop)
	return vm, o, log
}

func TestExec(t *testing.T) {
	vm, _, log := up(t, "serves")
	if log.Len() > 0 {
		t.Error(log)
	}
	for _, c := range []struct {
		argv        []string
		code        int
		out, errOut string
	}{
		{[]string{"sh", "-c", "echo out; echo err >&2; exit 42"}, 42, "out\n", "err\n"},
		{[]string{"sh", "-c", "kill -9 $$"}, 137, "", ""},
		{[]string{"/nonexistent"}, 127, "", "isolane-lab: fork/exec /nonexistent: no such file or directory\n"},
		{[]string{"head", "-c", "3000000", "/dev/zero"}, 0, strings.Repeat("\x00", 3000000), ""},
	} {
		var out, errOut bytes.Buffer
		code, err := vm.Exec(t.Context(), c.argv, &out, &errOut)
		if err != nil || code != c.code || out.String() != c.out || errOut.String() != c.errOut {
			t.Errorf("%q: code %d, %d bytes, %q, %v", c.argv, code, out.Len(), errOut.String(), err)
		}
	}
}

// A silent guest is restarted, and that is logged each time.
func TestSilent(t *testing.T) {
	_, o, log := up(t, "silent 2")
	starts, err := os.ReadFile(filepath.Join(o.Dir, "starts"))
	if err != nil {
		t.Fatal(err)
	}
	n := strings.Count(log.String(), "the guest hangs: silent for 2s; it said nothing; started again")
	if n < 2 || n != len(starts)-1 { // on a busy machine it may not begin to serve within two seconds
		t.Errorf("told %d times of %d starts: %s", n, len(starts), log)
	}
	if !Running(o.Dir) {
		t.Error("it does not run")
	}
}

func TestAlwaysSilent(t *testing.T) {
	l, o, log := standIn(t, "silent 99")
	o.Silence = 200 * time.Millisecond
	_, err := l.Start(t.Context(), Default(), o)
	if !errors.Is(err, errHangs) || strings.Count(log.String(), "started again") != restarts || Running(o.Dir) {
		t.Errorf("%v; %s", err, log)
	}
}

// QEMU's output is in the error, in one line, and nothing of QEMU is left.
func TestQEMUFails(t *testing.T) {
	l, o, _ := standIn(t, "fails")
	_, err := l.Start(t.Context(), Default(), o)
	if err == nil || err.Error() != "QEMU ended: exit status 3; qemu.log: no such machine" || Running(o.Dir) {
		t.Errorf("got %v", err)
	}
}

// After a crash of the emulation the start is repeated, and that is logged each time.
func TestCrash(t *testing.T) {
	l, o, log := standIn(t, "crashes")
	_, err := l.Start(t.Context(), Default(), o)
	if !errors.Is(err, errCrashed) || strings.Count(log.String(), "started again") != restarts {
		t.Errorf("%v; %s", err, log)
	}
}

// A guest that never answers is ended when its runner gives up.
func TestCancelled(t *testing.T) {
	l, o, _ := standIn(t, "silent 99")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := l.Start(ctx, Default(), o)
	if !errors.Is(err, context.DeadlineExceeded) || Running(o.Dir) {
		t.Errorf("got %v", err)
	}
}

// timeOver is a context whose time is over when its channel is closed.
type timeOver struct {
	context.Context
	when chan struct{}
}

func (o timeOver) Done() <-chan struct{} { return o.when }

func (o timeOver) Err() error {
	select {
	case <-o.when:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A command that hangs is given up, and ended when the next runner comes or the old one goes.
func TestHang(t *testing.T) {
	vm, o, _ := up(t, "serves")
	file := filepath.Join(o.Dir, "hangs")
	if err := os.WriteFile(filepath.Join(o.Dir, "console"), []byte("a\nb\nrcu: INFO: rcu_preempt detected "+
		"stalls on CPUs/tasks:\n5-...!\nc\nd\nthe guest's last words\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	over := timeOver{t.Context(), make(chan struct{})}
	go func() {
		defer close(over.when)
		for text, _ := os.ReadFile(file); len(text) == 0 && t.Context().Err() == nil; text, _ = os.ReadFile(file) {
			<-time.After(10 * time.Millisecond)
		}
	}()
	_, err := vm.Exec(over, []string{"sh", "-c", "echo $$ > " + file + "; exec sleep 1000"}, io.Discard, io.Discard)
	if err == nil || !strings.HasSuffix(err.Error(), "did not end in time: give it longer, or see what it waits for; console: "+
		"rcu: INFO: rcu_preempt detected stalls on CPUs/tasks: | 5-...! | c | d | the guest's last words") {
		t.Errorf("got %v", err)
	}
	vm.Close()
	again, err := Attach(o.Dir, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if startTime(strings.TrimSpace(string(pid))) != "" {
		t.Error("the command still runs")
	}
	if code, err := again.Exec(t.Context(), []string{"true"}, io.Discard, io.Discard); code != 0 || err != nil {
		t.Error(code, err)
	}
}

// A machine that outlives its runner is found by its folder, and ended by it.
func TestDetached(t *testing.T) {
	l, o, _ := standIn(t, "serves")
	o.Detach = true
	vm, err := l.Start(t.Context(), Default(), o)
	if err != nil {
		t.Fatal(err)
	}
	vm.Close()
	if err = Down(o.Dir); err != nil || Running(o.Dir) {
		t.Fatal(err)
	}
	if err = Down(o.Dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v", err)
	}
	// An id that now belongs to another process is left alone.
	if err = os.WriteFile(filepath.Join(o.Dir, "pid"), fmt.Append(nil, os.Getpid(), " 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err = Down(o.Dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v", err)
	}
}

// When a runner is killed, no QEMU is left.
func TestKilledRunner(t *testing.T) {
	dir := t.TempDir()
	linkSelf(t, dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	runner := exec.CommandContext(t.Context(), self)
	runner.Env = append(os.Environ(), "LAB_RUNNER="+dir)
	out, err := runner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = runner.Start(); err != nil {
		t.Fatal(err)
	}
	if said, rerr := io.ReadAll(io.LimitReader(out, 13)); string(said) != "started <nil>" {
		t.Fatalf("%q, %v", said, rerr)
	}
	pid, ok := running(dir)
	if !ok {
		t.Fatal("no machine")
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err = runner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = runner.Wait()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20000); n != 1 || err != nil {
		t.Error("QEMU outlives its runner", n, err)
	}
}

func TestOldQEMU(t *testing.T) {
	l := Lab{t.TempDir()}
	loader := filepath.Join(l.dir, "qemu/usr/lib64/ld-linux-x86-64.so.2")
	if err := os.MkdirAll(filepath.Dir(loader), 0o755); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{
		"QEMU emulator version 10.0.13 (Debian)": "", "QEMU emulator version 9.2.0": "",
		"QEMU emulator version 7.2.9 (Debian)": "QEMU 7.2 is too old, the lab needs 9.2", "7.2": "expected a version",
	} {
		if err := os.WriteFile(loader, []byte("#!/bin/sh\necho '"+version+"'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := l.checkQEMU(t.Context()); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", version, err)
		}
	}
}
