package webserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
)

// Ready begins the line that a server prints once it serves every object.
const Ready = "ready "

// How long a server may take to start (Varnish compiles its configuration), and to end when asked to.
const (
	startTime = 30 * time.Second
	endTime   = 5 * time.Second
)

// Inside returns false: the clients of all HTTP probes measure from outside.
func (Settings) Inside() bool { return false }

// Ready returns what Serve prints when the server answers.
func (Settings) Ready() string { return Ready }

// Server returns the command line at the application: the same for all probes of the same server.
func (s Settings) Server(self string, c probe.Conditions) []string {
	settings, err := json.Marshal(s)
	if err != nil {
		panic(err) // plain data
	}
	c.Warmup, c.Window = 0, time.Second // these are the clients': a server has none
	return probe.Command(self, Kind, c, "--serve", string(settings))
}

// Serve runs the server for a probe, at the address of the conditions, with Port if that has none.
func (s Settings) Serve(ctx context.Context, c probe.Conditions, stdout io.Writer) error {
	return serve(ctx, s, c.At(s.Port()), c.Dir, stdout)
}

// serve runs the server at the address until ctx ends, with its files in dir, and prints Ready when it
// answers. If this process is killed, the server gets SIGTERM.
func serve(ctx context.Context, s Settings, addr netip.AddrPort, dir string, stdout io.Writer) error {
	if dir == "" {
		return fmt.Errorf("%s: expected a directory for its files, give --dir", s.Software)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	argv, err := s.prepare(addr, dir)
	if err != nil {
		return err
	}
	// Otherwise somebody else's server would be measured in place of this one.
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr.String())
	if err != nil {
		return err
	}
	if err = l.Close(); err != nil {
		return err
	}
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started the server ends
	defer runtime.UnlockOSThread()
	said := &tail{}
	running, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(running, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(dir, s.Software), said, said
	// On SIGTERM nginx's master ends its workers. Varnish's child notices that its parent has gone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endTime
	if err = cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = await(ctx, addr, ended)
	if err == nil {
		fmt.Fprintf(stdout, "%s%s\n", Ready, addr)
		err = itself(<-ended)
	} else {
		stop()
		if end := <-ended; errors.Is(end, exec.ErrWaitDelay) {
			err = errors.Join(err, end)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s at %s: %w%s", s.program(), addr, err, said)
}

// itself is the error of a server that ended without having been asked to.
func itself(end error) error {
	if end == nil {
		return errors.New("it ended by itself")
	}
	return end
}

// await requests the objects until all are there. If the server ends first, await puts its end back into
// ended.
func await(ctx context.Context, addr netip.AddrPort, ended chan error) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := get(ctx, addr)
		if err == nil {
			return nil
		}
		select {
		case end := <-ended:
			ended <- end
			return itself(end)
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s: %w", startTime, err)
		case <-again.C:
		}
	}
}

// get requests each object.
func get(ctx context.Context, addr netip.AddrPort) error {
	for _, size := range Sizes() {
		if err := whole(ctx, addr, size); err != nil {
			return fmt.Errorf("GET %s: %w", Path(size), err)
		}
	}
	return nil
}

// ask requests an object on its own connection, without a proxy.
func ask(ctx context.Context, addr netip.AddrPort, size quantity.Bytes) (*http.Response, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr.String()+Path(size), nil)
	if err != nil {
		return nil, err
	}
	return client.Do(r)
}

// whole checks that the answer is an object of that size.
func whole(ctx context.Context, addr netip.AddrPort, size quantity.Bytes) error {
	response, err := ask(ctx, addr, size)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || n != int64(size)) {
		err = fmt.Errorf("%s with %d bytes, expected %d", response.Status, n, size)
	}
	return err
}

// tail keeps the end of a server's output, for an error.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// tailLength is enough for the reason of a failed start, in bytes.
const tailLength = 400

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailLength):]
	return len(p), nil
}

// String returns the output in one line after ": ", or "" if there is none.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	words := strings.Join(strings.Fields(string(t.text)), " ")
	if words == "" {
		return ""
	}
	return ": " + words
}
