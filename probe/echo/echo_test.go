package echo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/probetest"
	"isolane.dev/isolane/results"
)

// serve runs the application until the test ends.
func serve(t *testing.T, ip, wait string) netip.AddrPort {
	t.Helper()
	addr := probetest.FreePort(t, ip)
	probetest.Serve(t, Ready, func(ctx context.Context, w io.Writer) error { return Serve(ctx, addr, wait, w) })
	return addr
}

// short returns conditions with a window of 100 ms.
func short(addr netip.AddrPort) probe.Conditions {
	return probe.Conditions{Name: "test", Address: addr, Warmup: 10 * time.Millisecond, Window: 100 * time.Millisecond}
}

func small(protocol, mode string) Probe {
	p := Probe{Protocol: protocol, Mode: mode, Payload: 64}
	if mode == Open {
		p.Rate = 1000
	}
	return p
}

func latencies(t *testing.T, m results.Measurement) (n int64, low, high time.Duration) {
	t.Helper()
	h, err := m.Samples[m.Name].Histogram.Decode()
	if err != nil {
		t.Fatal(err)
	}
	return h.TotalCount(), time.Duration(h.Min()), time.Duration(h.Max())
}

func TestEcho(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		for _, waiting := range []string{Block, Spin} {
			addr := serve(t, ip, waiting)
			for _, protocol := range []string{UDP, TCP} {
				for _, mode := range []string{PingPong, Open} {
					p := small(protocol, mode)
					p.Wait, p.Payload = waiting, 1400
					var m results.Measurement
					for tries := 0; tries < 3 && m.Samples[m.Name].Wanted == 0; tries++ { // a busy machine may give no CPU within 0.1 s
						var err error
						if m, err = p.Run(t.Context(), short(addr)); err != nil {
							t.Fatalf("%s %s %s %s: %v", ip, protocol, mode, waiting, err)
						}
					}
					n, low, _ := latencies(t, m)
					if n == 0 || low <= 0 || uint64(n)+m.Samples[m.Name].Lost != m.Samples[m.Name].Wanted || mode == Open && m.Samples[m.Name].Wanted < 99 {
						t.Errorf("%s %s %s %s: %d samples of %d sent, %d lost, min %s", ip, protocol, mode, waiting, n, m.Samples[m.Name].Wanted, m.Samples[m.Name].Lost, low)
					}
				}
			}
		}
	}
}

// responder answers datagrams with what mangle makes of each message. Once it stalls for 500 ms.
func responder(t *testing.T, stall time.Duration, mangle func([]byte) [][]byte) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		buf := make([]byte, 2048)
		for i := 0; ; i++ {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if i == 100 && stall > 0 {
				<-time.After(stall)
			}
			for _, out := range mangle(buf[:n]) {
				if _, err := c.WriteToUDPAddrPort(out, from); err != nil {
					return
				}
			}
		}
	})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		group.Wait()
	})
	return netip.MustParseAddrPort(c.LocalAddr().String())
}

func same(b []byte) [][]byte { return [][]byte{b} }

// A demonstration of coordinated omission: a stall of 500 ms delays every message that should have left
// during it (as far as they fit into the socket's buffer: the rest is lost, and counted). The open loop
// counts them all; the closed loop sees one slow exchange.
func TestStall(t *testing.T) {
	const stall = 500 * time.Millisecond
	count := func(mode string) (late int64, worst time.Duration) {
		given := short(responder(t, stall, same))
		given.Warmup, given.Window = 0, 1500*time.Millisecond
		m, err := small(UDP, mode).Run(t.Context(), given)
		if err != nil {
			t.Fatal(err)
		}
		h, err := m.Samples[m.Name].Histogram.Decode()
		if err != nil {
			t.Fatal(err)
		}
		for _, bar := range h.Distribution() {
			if bar.From >= int64(stall/5) {
				late += bar.Count
			}
		}
		return late, time.Duration(h.Max())
	}
	if late, worst := count(Open); late < 200 || worst < stall*9/10 {
		t.Errorf("open loop: %d messages later than 100 ms, worst %s", late, worst)
	}
	if late, worst := count(PingPong); late > 20 || worst < stall*9/10 {
		t.Errorf("closed loop: %d messages later than 100 ms, worst %s", late, worst)
	}
}

// With duplicates, strangers and losses, no reply counts twice, and what is missing is counted.
func TestUnreliableResponder(t *testing.T) {
	n := 0
	addr := responder(t, 0, func(b []byte) [][]byte {
		n++
		if n%10 == 0 {
			return nil
		}
		return [][]byte{[]byte("who is there?"), b, b, bytes.Repeat([]byte{7}, 64)}
	})
	m, err := small(UDP, Open).Run(t.Context(), short(addr))
	if err != nil {
		t.Fatal(err)
	}
	got, _, _ := latencies(t, m)
	if uint64(got)+m.Samples[m.Name].Lost != m.Samples[m.Name].Wanted || m.Samples[m.Name].Lost < m.Samples[m.Name].Wanted/20 || len(m.Void) == 0 {
		t.Errorf("%d replies, %d lost of %d sent, void: %q", got, m.Samples[m.Name].Lost, m.Samples[m.Name].Wanted, m.Void)
	}
}

// A message that is due just before the end of the window is sent: at 10 a second, the one after 100 of 110 ms.
func TestSlow(t *testing.T) {
	p := small(UDP, Open)
	p.Rate = 10
	m, err := p.Run(t.Context(), short(serve(t, "127.0.0.1", Block)))
	if err != nil || m.Samples[m.Name].Wanted != 1 || m.Samples[m.Name].Lost != 0 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestNobodyThere(t *testing.T) {
	addr := probetest.FreePort(t, "127.0.0.1")
	for _, protocol := range []string{UDP, TCP} {
		if _, err := small(protocol, PingPong).Run(t.Context(), short(addr)); !errors.Is(err, unix.ECONNREFUSED) ||
			!strings.Contains(err.Error(), addr.String()) {
			t.Errorf("%s: %v", protocol, err)
		}
	}
}

// Signals, such as those of Go's scheduler, neither end a sleep early nor lose a message.
func TestSignals(t *testing.T) {
	addr := serve(t, "127.0.0.1", Block)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGURG)
			<-time.After(200 * time.Microsecond)
		}
	})
	m, err := small(UDP, Open).Run(t.Context(), short(addr))
	cancel()
	group.Wait()
	if err != nil || m.Samples[m.Name].Lost > 0 || m.Samples[m.Name].Wanted < 99 {
		t.Errorf("%+v, %v", m, err)
	}
	clock, err := probe.NewClock()
	if err != nil {
		t.Fatal(err)
	}
	from := clock.Now()
	if err := probe.SleepUntil(from + int64(20*time.Millisecond)); err != nil || clock.Now() < from+int64(20*time.Millisecond) {
		t.Errorf("slept %s of 20 ms, %v", time.Duration(clock.Now()-from), err)
	}
}

// An exchange allocates nothing.
func TestNoAllocation(t *testing.T) {
	addr := serve(t, "127.0.0.1", Block)
	fd, err := connect(addr, UDP)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.close()
	c, err := newClient(fd, small(UDP, PingPong), short(addr))
	if err != nil {
		t.Fatal(err)
	}
	seq := uint64(0)
	if n := testing.AllocsPerRun(200, func() {
		seq++
		if err := c.post(seq); err != nil {
			t.Fatal(err)
		}
		got, err := c.answer(seq, c.clock.Now()+int64(time.Second))
		if err != nil || got == 0 {
			t.Fatal(got, err)
		}
		probe.Record(c.latency, got)
	}); n > 0 {
		t.Errorf("%v allocations per exchange", n)
	}
}
