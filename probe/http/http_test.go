package http

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/webserver"
	"isolane.dev/isolane/results"
)

// freePort finds a port that is free now.
func freePort(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Skipf("skipped: no %s loopback: %v", ip, err)
	}
	addr := netip.MustParseAddrPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return addr
}

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
	c := probe.Conditions{Name: "test", Address: freePort(t, ip), Dir: t.TempDir(), Warmup: 100 * time.Millisecond,
		Window: time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := p.Serve(ctx, c, w)
		_ = w.CloseWithError(fmt.Errorf("server: %w", err))
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	line := make([]byte, 256)
	n, err := r.Read(line)
	if err != nil || !strings.HasPrefix(string(line[:n]), webserver.Ready) {
		t.Fatalf("%q, %v", line[:n], err)
	}
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

// Each server, both addresses, all loops: what is asked is carried, whole.
func TestServers(t *testing.T) {
	for _, server := range []string{webserver.Nginx, webserver.Varnish} {
		for _, ip := range []string{"127.0.0.1", "::1"} {
			t.Run(server+" "+ip, func(t *testing.T) {
				c := serve(t, read(t, "{server: "+server+"}"), ip)
				for _, size := range webserver.Sizes() {
					for _, load := range []string{"rate: 200, arrivals: paced", "rate: 200, wait: block", "rate: max, connections: 4"} {
						p := read(t, fmt.Sprintf("{server: %s, size: %s, %s}", server, size, load))
						m := measure(t, p, c)
						s := m.Samples["test"]
						if n := count(t, s); n == 0 || n+s.Lost != s.Wanted || s.Lost > 0 || m.Values["test-errors"] > 0 {
							t.Errorf("%s %s: %d of %d requests, %d lost, %v", size, load, n, s.Wanted, s.Lost, m.Values)
						}
						first := m.Samples["test-first-byte"]
						count(t, first)
						rate := m.Values["test-rate"]
						if p.Rate != Max && (rate < 150 || rate > 250) {
							t.Errorf("%s %s: carried %g requests/s", size, load, rate)
						}
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
