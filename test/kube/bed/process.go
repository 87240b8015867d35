package bed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// starter starts processes from one thread that lives as long as this process, because the kernel ends a
// child when the thread that started it ends. The thread is in its own network namespace, and so are its
// children.
type starter struct{ calls chan func() }

func newStarter() *starter {
	s := &starter{calls: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread must end with this goroutine
		for call := range s.calls {
			call()
		}
	}()
	return s
}

// do calls a function on the thread.
func (s *starter) do(call func() error) error {
	done := make(chan error)
	s.calls <- func() { done <- call() }
	return <-done
}

func (s *starter) unshare() error {
	return s.do(func() error { return unix.Unshare(unix.CLONE_NEWNET) })
}

// end ends the thread, and with it its children.
func (s *starter) end() { close(s.calls) }

// process is a process that this one has started.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when it has ended
}

// start starts a command. Its output goes to a file.
func (s *starter) start(name, log string, cmd *exec.Cmd) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // an interrupt from the terminal is for this process
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err = s.do(cmd.Start); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // it was killed, or its log says why
		close(p.ended)
	}()
	return p, nil
}

// kill ends a process, and waits until it has.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.ended
	return err
}

// err says how a process has ended; nil: it runs.
func (p *process) err() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended: %s: %s", p.name, p.cmd.ProcessState, lastLine(p.log))
	default:
		return nil
	}
}

func lastLine(log string) string {
	data, err := os.ReadFile(log)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if last := lines[len(lines)-1]; err == nil && last != "" {
		return last
	}
	return "it said nothing"
}
