package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
)

const (
	readers = 100
	changes = 2 // of which a run is the mean
	webLane = "apiVersion: isolane.dev/v1alpha1\nkind: Lane\nmetadata: {name: web}\nspec: {cpus: {count: 1}}\n"
)

// served is an agent at work, and the program that it is.
type served struct{ isolane, socket, lane string }

func serve(b *testing.B) served {
	b.Helper()
	hosttest.Need(b, hosttest.Root, hosttest.CPUs(2), hosttest.CgroupCpuset, hosttest.BPF)
	dir := b.TempDir()
	s := served{filepath.Join(dir, "isolane"), filepath.Join(dir, "socket"), filepath.Join(dir, "lane.yaml")}
	if out, err := exec.Command("go", "build", "-o", s.isolane, "../cmd/isolane").CombinedOutput(); err != nil {
		b.Fatalf("%s%v", out, err)
	}
	if err := os.WriteFile(s.lane, []byte(webLane), 0o600); err != nil {
		b.Fatal(err)
	}
	b.Setenv("ISOLANE_HISTORY", filepath.Join(dir, "history"))
	agent := exec.Command(s.isolane, "agent", "--socket", s.socket)
	if err := agent.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := agent.Process.Signal(syscall.SIGTERM); err != nil {
			b.Error(err)
		}
		if err := agent.Wait(); err != nil {
			b.Error(err)
		}
	})
	for end := time.Now().Add(10 * time.Second); s.ask(b.Context(), s.client(), "GET", "readings", "") != nil; <-time.After(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatal("no agent answers")
		}
	}
	return s
}

// client has a connection of its own.
func (s served) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	}}}
}

func (s served) ask(ctx context.Context, c *http.Client, method, what, body string) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://agent/v1/"+what, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	a, err := c.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", a.Status, text)
	}
	return err
}

// read has all readers ask for the status, each again after a pause, until end is called, which says how many answers they had.
func (s served) read(b *testing.B, pause time.Duration) (end func() float64) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	var answers atomic.Int64
	for range readers {
		all.Go(func() {
			c := s.client()
			defer c.CloseIdleConnections()
			for next := time.After(rand.N(pause + 1)); ; next = time.After(pause) {
				select {
				case <-ctx.Done():
					return
				case <-next:
				}
				if err := s.ask(ctx, c, "GET", "status", ""); err == nil {
					answers.Add(1)
				} else if ctx.Err() == nil {
					b.Error(err)
					return
				}
			}
		})
	}
	began := time.Now()
	return func() float64 {
		cancel()
		all.Wait()
		return float64(answers.Load()) / time.Since(began).Seconds()
	}
}

// change puts the lane in force and takes it back.
func (s served) change(b *testing.B, byAPI bool) (apply, release time.Duration) {
	b.Helper()
	do := func(method, what, body string, argv ...string) time.Duration {
		began := time.Now()
		var err error
		if byAPI {
			err = s.ask(b.Context(), s.client(), method, what, body)
		} else {
			var out []byte
			if out, err = exec.Command(s.isolane, argv...).CombinedOutput(); err != nil {
				err = fmt.Errorf("%s%w", out, err)
			}
		}
		if err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	apply = do("POST", "apply", webLane, "apply", "-f", s.lane)
	return apply, do("POST", "release?lane=web", "", "release", "web")
}

// BenchmarkReaders measures how long a lane takes to come in force and to be taken back while 100 clients ask the agent
// for its status, to the same while nobody asks, in pairs of random order. Each asks once a second, as somebody's
// page would, or again at once, which takes all the CPUs.
func BenchmarkReaders(b *testing.B) {
	s := serve(b)
	for _, pause := range []time.Duration{time.Second, 0} {
		for name, byAPI := range map[string]bool{"command": false, "API": true} {
			b.Run(fmt.Sprint(name, "-", pause), func(b *testing.B) {
				run := func() map[string]float64 {
					var applied, released time.Duration
					<-time.After(300 * time.Millisecond) // of the run before
					for range changes {
						a, r := s.change(b, byAPI)
						applied, released = applied+a, released+r
					}
					return map[string]float64{"apply-ms": applied.Seconds() * 1000 / changes, "release-ms": released.Seconds() * 1000 / changes}
				}
				for b.Loop() {
					comparePairs(b, [2]string{"readers", "none"}, func() map[string]float64 {
						end := s.read(b, pause)
						figures := run()
						figures["answers/s"] = end()
						return figures
					}, run)
				}
			})
		}
	}
}
