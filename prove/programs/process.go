// Package programs starts the programs of a run, waits until they are ready, and ends them; and runs commands
// to their end.
package programs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/terminal"
)

// Process is a process of a run. Its cgroup is in the journal, so recover ends it after a crash.
type Process struct {
	Dir    string // of the virtual machine that it is; "": it is none
	name   string
	cmd    *exec.Cmd
	stdout *output
	stderr *output
	ended  chan struct{} // closed when the process has ended and err is set
	err    error
}

// output collects what a process prints, up to a limit, and signals when a text has appeared.
type output struct {
	mu    sync.Mutex
	data  bytes.Buffer
	await string
	seen  chan struct{} // closed when await was printed; nil if nobody waits
}

const maxOutput = 16 << 20

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.data.Len()
	if before+len(p) <= maxOutput {
		o.data.Write(p)
	}
	if o.seen != nil && bytes.Contains(o.data.Bytes()[max(0, before-len(o.await)):], []byte(o.await)) {
		close(o.seen)
		o.seen = nil
	}
	return len(p), nil
}

func (o *output) bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.data.Bytes())
}

// readiness is how long a server may take until it listens; the web servers give up after 30 s.
const readiness = 40 * time.Second

// Ready is what a process prints when it can be used ("" for nothing), and how much longer than usual that
// may take.
type Ready struct {
	Text string
	More time.Duration
}

// held is how long children may hold the output of a process open after its end.
const held = time.Second

// Start starts argv in its confines, with env added to its environment, and waits until it is ready.
func Start(ctx context.Context, self, name string, c process.Lane, env, argv []string,
	ready Ready) (*Process, error) {
	p := &Process{name: name, cmd: process.Command(ctx, lanes.Self(self), c, argv...), stdout: &output{},
		stderr: &output{},
		ended:  make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = p.stdout, p.stderr, append(os.Environ(), env...)
	p.cmd.WaitDelay = held
	seen := make(chan struct{})
	if ready.Text == "" {
		close(seen)
	} else {
		p.stdout.await, p.stdout.seen = ready.Text, seen
	}
	if err := process.Start(p.cmd, c.Cgroup); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	limit := readiness + ready.More
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-seen:
		return p, nil
	case <-p.ended:
		if err := p.failure(); err != nil {
			return nil, fmt.Errorf("ended before it was ready: %w", err)
		}
		return nil, fmt.Errorf("ended before it was ready: expected %q on standard output", ready.Text)
	case <-timeout.C:
		return nil, errors.Join(fmt.Errorf("not ready after %s", limit), p.Stop(syscall.SIGKILL, time.Second))
	}
}

// OS returns the process itself.
func (p *Process) OS() *os.Process { return p.cmd.Process }

// PID returns its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Wait waits for the end of the process and returns what it printed.
func (p *Process) Wait() ([]byte, error) {
	<-p.ended
	return p.stdout.bytes(), p.failure()
}

// Ended says how a process has ended that should still run; nil: it runs.
func (p *Process) Ended() error {
	select {
	case <-p.ended:
		why := cmp.Or(p.failure(), errors.New("exit status 0"))
		return fmt.Errorf("%s: ended while it was needed: %w", p.name, why)
	default:
		return nil
	}
}

// failure says how the process ended, with the last line that it printed as the reason.
func (p *Process) failure() error {
	if errors.Is(p.err, exec.ErrWaitDelay) {
		return fmt.Errorf("it ended, and a process that it had started held its output for %s more", held)
	}
	return reason(p.err, p.stderr)
}

// reason adds the last printed line to err, shortened to fit on a line of a terminal.
func reason(err error, said *output) error {
	if err == nil {
		return nil
	}
	text := bytes.TrimSpace(said.bytes())
	if last := printable(text[bytes.LastIndexByte(text, '\n')+1:]); last != "" {
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}

// mostShown is how many bytes of a program's output are shown.
const mostShown = 200

// printable returns the end of a line of another program, without control characters.
func printable(line []byte) string {
	kept := line[max(0, len(line)-mostShown):]
	return strings.Join(strings.Fields(terminal.Clean(string(kept))), " ")
}

// Stop asks the process to end, and kills it if it has not ended within patience.
func (p *Process) Stop(signal syscall.Signal, patience time.Duration) error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		// It ended between the two calls.
		<-p.ended
		return nil // an ended process is what was wanted
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timeout.C:
	}
	err := process.Kill(p.cmd)
	<-p.ended
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return fmt.Errorf("%s did not end within %s and was killed", p.name, patience)
}

// ReadSome reads at most maxOutput bytes of a file that another program has written.
func ReadSome(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxOutput))
}
