package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// message is a line of JSON between the runner and the agent in the guest.
type message struct {
	Ping string   `json:"ping,omitempty"` // answered with a Pong: a new runner so finds the start of the stream
	Pong string   `json:"pong,omitempty"`
	Argv []string `json:"argv,omitempty"` // command to run
	Out  []byte   `json:"out,omitempty"`
	Err  []byte   `json:"err,omitempty"`
	Code *int     `json:"code,omitempty"` // the command has ended
}

// wire writes the messages of several goroutines, one after the other.
type wire struct {
	mu sync.Mutex
	w  io.Writer
}

// send also writes a line break before the message: a runner that was killed may have left half a line.
func (w *wire) send(m message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.w.Write(fmt.Appendf(nil, "\n%s\n", data))
	return err
}

// writer turns what is written into messages.
type writer func(p []byte) error

func (w writer) Write(p []byte) (int, error) { return len(p), w(p) }

// forgotten is how long a machine waits for a runner before it shuts itself down.
const forgotten = time.Hour

// Guest is the agent: it runs in the machine and takes commands from a virtio-serial port, one after the
// other. It ends a command whose runner has gone, and shuts a machine without a runner down.
func Guest(port string) error {
	f, err := os.OpenFile(port, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	idle := time.AfterFunc(forgotten, func() { _ = os.WriteFile("/proc/sysrq-trigger", []byte("o"), 0) })
	return serve(f, func(connected bool) {
		if connected {
			idle.Stop()
		} else {
			idle.Reset(forgotten)
		}
	})
}

// serve takes commands until a read fails, except if nobody is connected. It calls connected when somebody
// connects, and when nobody is connected any more.
func serve(f io.ReadWriter, connected func(bool)) error {
	w := &wire{w: f}
	in := bufio.NewReaderSize(f, 1<<16)
	end := func() {}
	somebody := false
	for {
		line, err := in.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF): // nobody is connected
			if somebody {
				end()
				connected(false)
			}
			somebody = false
			in.Reset(f)
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // the port has no event for it
			continue
		case err != nil:
			return err
		case !somebody:
			somebody = true
			connected(true)
		}
		var m message
		if json.Unmarshal(line, &m) != nil {
			continue // an empty line, or half a line of a runner that has gone
		}
		switch {
		case m.Ping != "":
			end() // what follows the answer is from the runner that asked
			_ = w.send(message{Pong: m.Ping})
		case len(m.Argv) > 0:
			end()
			end = start(w, m.Argv)
		}
	}
}

// start runs a command, and reports its exit code when it has ended. It returns a function that ends the
// command with everything that it has started, and waits for that.
func start(w *wire, argv []string) (end func()) {
	cmd := exec.Command(argv[0], argv[1:]...) // ended by the returned function
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// If sending fails, nobody reads it.
	cmd.Stdout = writer(func(p []byte) error { _ = w.send(message{Out: p}); return nil })
	cmd.Stderr = writer(func(p []byte) error { _ = w.send(message{Err: p}); return nil })
	cmd.WaitDelay = time.Second // a process that it leaves behind may keep its output open
	if err := cmd.Start(); err != nil {
		code := 127
		_ = w.send(message{Err: fmt.Appendf(nil, "isolane-lab: %v\n", err), Code: &code})
		return func() {}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		code := exitCode(cmd.Wait())
		_ = w.send(message{Code: &code})
	}()
	return func() {
		select {
		case <-ended:
		default:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	}
}

// exitCode returns the exit code that a shell would give.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal())
		}
		return exit.ExitCode()
	}
	return 127
}
