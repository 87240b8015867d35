package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/probetest"
	"isolane.dev/isolane/probe/webserver"
	"isolane.dev/isolane/results"
)

func read(t *testing.T, settings string) Probe {
	t.Helper()
	p, err := Driver{}.Read([]byte(settings))
	if err != nil {
		t.Fatal(err)
	}
	return p.(Probe)
}

// serve runs the web server of the probe until the test ends.
func serve(t *testing.T, p Probe, ip string) probe.Conditions {
	t.Helper()
	program := webserver.Nginx
	if p.Software == webserver.Varnish {
		program = "varnishd"
	}
	hosttest.Need(t, hosttest.Program(program))
	c := probe.Conditions{Name: "test", Address: probetest.FreePort(t, ip), Dir: t.TempDir(),
		Warmup: 50 * time.Millisecond, Window: 300 * time.Millisecond}
	probetest.Serve(t, webserver.Ready, func(ctx context.Context, w io.Writer) error { return p.Serve(ctx, c, w) })
	return c
}

func measure(t *testing.T, p Probe, c probe.Conditions) results.Measurement {
	t.Helper()
	m, err := p.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v void %q facts %v", m.Values, m.Void, m.Facts)
	return m
}

func count(t *testing.T, s results.Samples) uint64 {
	t.Helper()
	h, err := s.Histogram.Decode()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("wanted %d lost %d P50 %s P99 %s max %s", s.Wanted, s.Lost, time.Duration(h.ValueAtQuantile(50)),
		time.Duration(h.ValueAtQuantile(99)), time.Duration(h.Max()))
	return uint64(h.TotalCount())
}

// With each server, both kinds of address and all loops, everything requested is carried, complete.
func TestServers(t *testing.T) {
	for _, server := range []string{webserver.Nginx, webserver.Varnish} {
		for _, ip := range []string{"127.0.0.1", "::1"} {
			t.Run(server+" "+ip, func(t *testing.T) {
				c := serve(t, read(t, "{server: "+server+"}"), ip)
				for _, size := range webserver.Sizes() {
					for _, load := range []string{"rate: 200, arrivals: paced", "rate: 200, wait: block", "rate: max, connections: 4"} {
						p := read(t, fmt.Sprintf("{server: %s, size: %s, %s}", server, size, load))
						m := measure(t, p, c)
						for range 5 {
							if m.Facts["overloaded"] == "" && m.Samples["test"].Wanted > 0 {
								break // otherwise this machine is busy with something else
							}
							m = measure(t, p, c)
						}
						s := m.Samples["test"]
						if n := count(t, s); n == 0 || n+s.Lost != s.Wanted || s.Lost > 0 || m.Values["test-errors"] > 0 {
							t.Errorf("%s %s: %d of %d requests, %d lost, %v", size, load, n, s.Wanted, s.Lost, m.Values)
						}
						if first := m.Samples["test-first-byte"]; count(t, first) != s.Wanted {
							t.Errorf("%s %s: first bytes of %d requests", size, load, count(t, first))
						}
						if p.Arrivals == Paced && (s.Wanted < 59 || s.Wanted > 61) {
							t.Errorf("%s %s: %d requests in 300 ms", size, load, s.Wanted)
						}
						if want := int(min(s.Wanted, 64)); len(m.Worst) != want || want > 0 && m.Worst[0].End <= m.Worst[0].Begin {
							t.Errorf("%s %s: the longest: %v", size, load, m.Worst)
						}
						rate := m.Values["test-rate"]
						if got := m.Values["test-goodput"]; got != rate*8*float64(size) {
							t.Errorf("goodput %g", got)
						}
						if hits, ok := m.Values["test-hit-rate"]; ok != (server == webserver.Varnish) || ok && hits != 100 {
							t.Errorf("hit rate %g, %t", hits, ok)
						}
					}
				}
			})
		}
	}
}

// worker returns nginx's worker process.
func worker(t *testing.T, c probe.Conditions) int {
	t.Helper()
	master, err := os.ReadFile(filepath.Join(c.Dir, "nginx", "nginx.pid"))
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(string(master))
	children, err := os.ReadFile(filepath.Join("/proc", id, "task", id, "children"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		t.Fatalf("expected one worker: %v", err)
	}
	return pid
}

// A server that is frozen for 500 ms at 1,000 requests/s makes about 500 requests late, and each of them is
// counted, even if no connection was free.
func TestFrozenServer(t *testing.T) {
	for _, connections := range []int{1000, 20} {
		p := read(t, fmt.Sprintf("{size: 1Ki, rate: 1000, arrivals: paced, workers: 1, connections: %d}", connections))
		c := serve(t, p, "127.0.0.1")
		c.Window = 2 * time.Second
		pid := worker(t, c)
		frozen := func() results.Measurement {
			var group sync.WaitGroup
			group.Go(func() {
				<-time.After(time.Second)
				stop := syscall.Kill(pid, syscall.SIGSTOP)
				<-time.After(500 * time.Millisecond)
				if err := errors.Join(stop, syscall.Kill(pid, syscall.SIGCONT)); err != nil {
					t.Error(err)
				}
			})
			defer group.Wait()
			return measure(t, p, c)
		}
		m := frozen()
		for range 5 {
			if m.Facts["overloaded"] == "" && (m.Facts["waitedForConnection"] == "" || connections < 1000) {
				break // otherwise this machine is busy with something else
			}
			m = frozen()
		}
		h, err := m.Samples["test"].Histogram.Decode()
		if err != nil {
			t.Fatal(err)
		}
		late := int64(0)
		for _, bar := range h.Distribution() {
			if bar.From >= int64(100*time.Millisecond) {
				late += bar.Count
			}
		}
		if late < 390 || h.TotalCount() < 2000 {
			t.Errorf("%d connections: %d of %d samples are late", connections, late, h.TotalCount())
		}
		if queued := m.Facts["waitedForConnection"]; (queued == "") != (connections == 1000) {
			t.Errorf("%d connections: %q", connections, queued)
		}
	}
}

// A load beyond capacity is reported as such, with what was carried, and without percentiles.
func TestOverload(t *testing.T) {
	p := read(t, "{rate: 200000, connections: 10, workers: 1}")
	c := serve(t, p, "127.0.0.1")
	m := measure(t, p, c)
	asked := m.Samples["test"]
	if asked.Histogram != "" || asked.Lost == 0 || asked.Lost >= asked.Wanted || !strings.Contains(strings.Join(m.Void, "\n"), "overloaded: carried ") || m.Values["test-rate"] <= 0 ||
		m.Values["test-goodput"] <= 0 || m.Facts["overloaded"] == "" {
		t.Errorf("%+v", m)
	}
}

// speak is a server that answers each request on a connection with the next reply, and then closes it.
func speak(t *testing.T, replies ...string) probe.Conditions {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer c.Close()
				request := make([]byte, 1024)
				for _, reply := range replies {
					if _, err := c.Read(request); err != nil {
						return
					}
					for part := range strings.SplitSeq(reply, "|") {
						if _, err := io.WriteString(c, part); err != nil {
							return
						}
						<-time.After(time.Millisecond)
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		group.Wait()
	})
	return probe.Conditions{Name: "test", Address: netip.MustParseAddrPort(l.Addr().String()), Window: 200 * time.Millisecond}
}

// Wrong replies count as failed, and the connection is reopened. Replies in pieces are right.
func TestReplies(t *testing.T) {
	whole := "HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n" + strings.Repeat("x", 1024)
	pieces := "HTTP/1.1 200 OK\r\nContent-|Length: 1024\r\n\r|\n" + strings.Repeat("x", 100) + "|" + strings.Repeat("x", 924)
	for name, c := range map[string]struct {
		load    string
		replies []string
		fail    string // "": most are right
	}{
		"pieces":    {"rate: max", slices.Repeat([]string{pieces}, 1000), ""},
		"closes":    {"rate: 100, arrivals: paced", []string{whole}, ""}, // between requests it may
		"status":    {"rate: max", []string{"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"}, "503 No"},
		"short":     {"rate: 100", []string{whole[:500]}, "closed the connection before"},
		"other":     {"rate: 100", []string{"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello, world"}, "with 12 bytes, expected 1024"},
		"nothing":   {"rate: 100", nil, ""},
		"long":      {"rate: max", []string{whole + "!"}, "longer than it says"},
		"long head": {"rate: max", []string{"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 2000)}, "head of a reply"},
	} {
		t.Run(name, func(t *testing.T) {
			var m results.Measurement
			var failed, done float64
			right := false
			for range 10 { // a busy machine may give client or server no CPU within 200 ms, or the client too late
				m = measure(t, read(t, "{size: 1Ki, connections: 4, "+c.load+"}"), speak(t, c.replies...))
				void := strings.Join(m.Void, "\n")
				failed, done = m.Values["test-errors"], m.Values["test-rate"]/5 // of 200 ms
				right = failed > done && strings.Contains(void, c.fail)
				if c.fail == "" && c.replies != nil {
					right = done > 2*failed
				}
				s := m.Samples["test"]
				right = right && count(t, s)+s.Lost == s.Wanted
				if right || failed+done > 0 && !strings.Contains(void, "the client could not keep up") {
					break
				}
			}
			if !right {
				t.Errorf("%g failed, %g done, void %q, %v", failed, done, m.Void, m.Facts)
			}
		})
	}
}

// If a server stops answering within the window, or on one connection, there are no latencies: those before
// were fast.
func TestSilence(t *testing.T) {
	whole := "HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n" + strings.Repeat("x", 1024)
	for load, replies := range map[string]int{"rate: 400, arrivals: paced": 14, "rate: max": 8} {
		t.Run(load, func(t *testing.T) {
			var m results.Measurement
			var s results.Samples
			for range 10 { // a busy machine may bring no reply within 200 ms, or too few, or carry less in both halves of them
				c := speak(t, append(slices.Repeat([]string{whole}, replies), "", "")...) // it reads on, and says nothing
				m = measure(t, read(t, "{size: 1Ki, connections: 4, "+load+"}"), c)
				if s = m.Samples["test"]; s.Lost > 0 && s.Lost < s.Wanted && m.Facts["overloaded"] == "" {
					break
				}
			}
			if len(m.Overloaded) != 1 || !strings.HasSuffix(m.Overloaded[0], " got no reply") || s.Histogram != "" || s.Lost == 0 || s.Lost >= s.Wanted {
				t.Errorf("overloaded %q, %+v", m.Overloaded, s)
			}
		})
	}
}

// Clients that are told when to begin do not begin earlier, and all report when their window began.
func TestStart(t *testing.T) {
	clock, err := probe.NewClock()
	if err != nil {
		t.Fatal(err)
	}
	for _, load := range []string{"rate: 400", "rate: max"} {
		c := speak(t, slices.Repeat([]string{"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n" + strings.Repeat("x", 1024)}, 1000)...)
		c.Start, c.Warmup, c.Window = clock.Now()+int64(100*time.Millisecond), 10*time.Millisecond, 50*time.Millisecond
		if m := measure(t, read(t, "{size: 1Ki, connections: 4, "+load+"}"), c); int64(m.Begin) < c.Start+int64(c.Warmup) {
			t.Errorf("%s: to start at %d, with a window from %d on", load, c.Start, m.Begin)
		}
	}
}

func TestNobodyThere(t *testing.T) {
	c := probe.Conditions{Name: "test", Address: probetest.FreePort(t, "127.0.0.1"), Window: time.Second}
	if _, err := read(t, "{rate: 10}").Run(t.Context(), c); !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), c.Address.String()) {
		t.Error(err)
	}
}

// A request allocates nothing, because garbage would not be collected within a run.
func TestNoAllocation(t *testing.T) {
	p := read(t, "{size: 1Ki, connections: 1}")
	c, err := newClient(p, serve(t, p, "127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := c.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.bounds = [phases]int64{0, 0, 1<<63 - 1, 1<<63 - 1}
	exchange := func() {
		c.ask(c.free.pop(), c.clock.Now())
		for c.free.n == 0 {
			n, err := c.sleep(int64(longestSleep))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range c.events[:n] {
				c.handle(e)
			}
		}
	}
	if n := testing.AllocsPerRun(200, exchange); n > 0 || c.window().done < 200 {
		t.Errorf("%v allocations per exchange, %d done", n, c.window().done)
	}
}
