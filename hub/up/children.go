package up

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// children are programs that run as long as this process, and are restarted if they end. One thread starts
// them all and lives as long, because the kernel ends a child (Pdeathsig) when the thread that started it
// ends.
type children struct {
	dir     string // of the records of which process each is
	calls   chan func()
	all     []child     // in the order of their start
	endings chan ending // read until the hub is ready
	cause   func(ending) string
	log     *slog.Logger
}

// child is one of these programs.
type child struct {
	end   context.CancelFunc
	ended chan struct{}
}

func newChildren(o Options) *children {
	c := &children{dir: o.file("log"), calls: make(chan func()), endings: make(chan ending, 2*maxEarlyEnds),
		cause: o.cause, log: o.Log}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread must end with this goroutine
		for call := range c.calls {
			call()
		}
	}()
	return c
}

// keep runs a program, and restarts it when it ends, until close: after a second, and after longer and longer
// if it ends by itself soon after each start. Its output goes to a file.
func (c *children) keep(log, program string, args ...string) error {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var from int64 // where the output of this process begins
	start := func() (*exec.Cmd, error) {
		if is, serr := out.Stat(); serr == nil {
			from = is.Size()
		}
		cmd := exec.Command(program, args...)
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Env = append(os.Environ(), "GOGC=50") // they keep most of what they allocate: leave less for garbage
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		failed := make(chan error)
		c.calls <- func() { failed <- cmd.Start() }
		if serr := <-failed; serr != nil {
			return nil, serr
		}
		if rerr := record(c.dir, program, cmd.Process.Pid); rerr != nil {
			c.log.Warn("after a kill the next hub does not know this program", "program", program, "error", rerr)
		}
		return cmd, nil
	}
	cmd, err := start()
	if err != nil {
		return errors.Join(err, out.Close())
	}
	ctx, end := context.WithCancel(context.Background())
	one := child{end, make(chan struct{})}
	c.all = append(c.all, one)
	go func() {
		defer close(one.ended)
		defer out.Close()
		const least, most = time.Second, 30 * time.Second
		pause, began := least, time.Now()
		for !c.wait(ctx, cmd) {
			c.tell(ending{filepath.Base(program), lastWord(log, from)}, cmd.ProcessState.String())
			if !cmd.ProcessState.Exited() || time.Since(began) > most { // killed, or it ran for a while
				pause = least
			}
			for cmd = nil; cmd == nil; {
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
				pause, began = min(2*pause, most), time.Now()
				next, err := start()
				if err != nil { // its file is gone, or there is no memory: that may pass
					c.log.Error("a program was not started", "program", program, "error", err)
					continue
				}
				cmd = next
			}
		}
	}()
	return nil
}

// tell reports the end of a program, to the log and to whoever waits for the hub to be ready.
func (c *children) tell(e ending, state string) {
	said := e.said
	if said == "" { // as where its disk is full
		said = "nothing that could be written"
	}
	more := []any{"program", e.program, "state", state, "said", said}
	if about := c.cause(e); about != "" {
		more = append(more, "cause", about)
	}
	c.log.Warn("a program has ended, and is started again", more...)
	select {
	case c.endings <- e:
	default: // nobody waits any more
	}
}

// wait waits until a program has ended, and reports whether it was meant to.
func (c *children) wait(ctx context.Context, cmd *exec.Cmd) bool {
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its state has the result
		close(ended)
	}()
	select {
	case <-ended:
		return false
	case <-ctx.Done():
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		_ = cmd.Process.Kill()
		<-ended
	}
	return true
}

// close ends all programs, the last first, and waits for each, so the store ends when nobody writes to it any
// more.
func (c *children) close() {
	for _, one := range slices.Backward(c.all) {
		one.end()
		<-one.ended
	}
	close(c.calls)
}
