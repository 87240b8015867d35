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

// message is a line on the wire between the runner and the agent in the guest, as JSON.
type message struct {
	Ping string   `json:"ping,omitempty"` // answered with the same: whoever connects finds the start of the stream
	Pong string   `json:"pong,omitempty"`
	Argv []string `json:"argv,omitempty"` // to run
	Out  []byte   `json:"out,omitempty"`
	Err  []byte   `json:"err,omitempty"`
	Code *int     `json:"code,omitempty"` // the command has ended
}

// wire writes messages of several goroutines one after the other.
type wire struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *wire) send(m message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.w.Write(append(data, '\n'))
	return err
}

// writer makes messages of what is written.
type writer func(p []byte) error

func (w writer) Write(p []byte) (int, error) { return len(p), w(p) }

// Guest is the agent: it runs in the machine and takes commands from a virtio-serial port, one after
// the other, for ever.
func Guest(port string) error {
	f, err := os.OpenFile(port, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	w := &wire{w: f}
	in := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil { // nobody is connected
			in.Reset(f)
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // the port has no event for it
			continue
		}
		var m message
		if json.Unmarshal(line, &m) != nil {
			continue // half a line of a runner that is gone
		}
		switch { // what cannot be sent has nobody to read it
		case m.Ping != "":
			_ = w.send(message{Pong: m.Ping})
		case len(m.Argv) > 0:
			code := run(w, m.Argv)
			_ = w.send(message{Code: &code})
		}
	}
}

// run runs one command to its end, and returns its exit code as a shell would.
func run(w *wire, argv []string) int {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // the runner ends the machine, and so all in it
	cmd.Stdout = writer(func(p []byte) error { return w.send(message{Out: p}) })
	cmd.Stderr = writer(func(p []byte) error { return w.send(message{Err: p}) })
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal())
		}
		return exit.ExitCode()
	}
	_ = w.send(message{Err: fmt.Appendf(nil, "isolane-lab: %v\n", err)})
	return 127
}
