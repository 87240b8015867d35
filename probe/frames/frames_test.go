package frames

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/probetest"
	"isolane.dev/isolane/results"
)

func TestMain(m *testing.M) { hosttest.Main(m) }

const (
	generatorNetns = "isolane-frames-a"
	forwarderNetns = "isolane-frames-b"
)

func forwarderAt() netip.AddrPort { return netip.MustParseAddrPort("198.18.4.2:7009") }

// network makes two namespaces with a pair of devices between them.
func network(t *testing.T) {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.Program("ip"))
	ip := func(args string) {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %s", args, out)
		}
	}
	for _, ns := range []string{generatorNetns, forwarderNetns} {
		ip("netns add " + ns)
		t.Cleanup(func() { ip("netns del " + ns) })
	}
	ip("-n isolane-frames-a link add eth0 type veth peer name eth0 netns isolane-frames-b")
	for ns, addr := range map[string]string{generatorNetns: "198.18.4.1", forwarderNetns: "198.18.4.2"} {
		ip("-n " + ns + " addr add " + addr + "/24 dev eth0")
		ip("-n " + ns + " link set eth0 up")
	}
}

// measured returns a measurement over the pair, with a window of half a second.
func measured(t *testing.T, p Probe) (m results.Measurement) {
	t.Helper()
	if err := netdev.In(generatorNetns, func() (err error) {
		m, err = p.Run(t.Context(), probe.Conditions{Name: "f", Address: forwarderAt(), Window: 500 * time.Millisecond})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return m
}

// value returns a value of a measurement.
func value(m results.Measurement, word string) int { return int(m.Values["f"+word]) }

// Our forwarder returns all sizes, with both kinds of socket, sleeping and polling.
func TestForward(t *testing.T) {
	for socket, how := range map[string]string{xdp: "AF_XDP", packets: "AF_PACKET"} {
		for _, wait := range []string{spin, block, adaptive} {
			t.Run(socket+"-"+wait, func(t *testing.T) {
				network(t)
				p := Probe{Size: Mix, Rate: 1000, Forwarder: ours, Socket: socket, Wait: wait}
				probetest.Serve(t, readyLine, func(ctx context.Context, w io.Writer) error {
					return netdev.In(forwarderNetns, func() error { return p.Serve(ctx, probe.Conditions{Address: forwarderAt()}, w) })
				})
				m := measured(t, p)
				got := m.Samples["f"+latency]
				if got.Wanted != 500 || got.Lost != 0 || value(m, lost)+value(m, doubled)+value(m, reordered)+value(m, foreign) != 0 ||
					!strings.HasPrefix(m.Facts["generator"], how) || !strings.HasPrefix(m.Facts["forwarder"], "isolane, "+how) {
					t.Errorf("%d of %d lost, %v, %v", got.Lost, got.Wanted, m.Values, m.Facts)
				}
			})
		}
	}
}

// The kernel routes all frames back, and counts them correctly however often it is asked. Afterwards the
// network is no router.
func TestKernel(t *testing.T) {
	for socket, how := range map[string]string{xdp: "AF_XDP", packets: "AF_PACKET"} {
		t.Run(socket, func(t *testing.T) {
			network(t)
			p := Probe{Size: Mix, Rate: 1000, Forwarder: kernel, Socket: socket}
			t.Run("once", func(t *testing.T) {
				probetest.Serve(t, readyLine, func(ctx context.Context, w io.Writer) error {
					return netdev.In(forwarderNetns, func() error { return p.Serve(ctx, probe.Conditions{Address: forwarderAt()}, w) })
				})
				for range 2 {
					m := measured(t, p)
					got := m.Samples["f"+latency]
					if got.Wanted != 500 || got.Lost != 0 || value(m, doubled)+value(m, reordered)+value(m, foreign) != 0 ||
						!strings.HasPrefix(m.Facts["generator"], how) || m.Facts["forwarder"] != "kernel, its routes" ||
						m.Facts["forwarded"] != "it took 500 frames, 0 of them again, and sent 500 back" {
						t.Errorf("%d of %d lost, %v, %v", got.Lost, got.Wanted, m.Values, m.Facts)
					}
				}
				p.Rate = probe.Max
				if m := measured(t, p); value(m, "") == 0 || value(m, unnamed) != 0 {
					t.Errorf("%v, %v", m.Values, m.Facts)
				}
			})
			out, err := exec.Command("ip", "netns", "exec", forwarderNetns, "cat", "/proc/sys/net/ipv4/ip_forward").Output()
			if err != nil || strings.TrimSpace(string(out)) != "0" {
				t.Errorf("ip_forward is left as %s: %v", out, err)
			}
		})
	}
}

// bad is an unreliable forwarder.
type bad struct {
	forwarder
	held []byte
}

func (f *bad) send(b []byte) { f.port.push(copy(f.port.buffer(), b)) }

// take drops every tenth frame, sends one twice, two in the wrong order, and three that nobody asked for.
func (f *bad) take(b []byte) {
	s, ok := read(b)
	if !ok || !turn(b) {
		return
	}
	switch {
	case s.magic == isQuestion:
	case s.number%10 == 9:
		return
	case s.number == 5:
		f.send(b)
	case s.number == 20:
		f.held = append(f.held, b...)
		return
	case s.number == 21:
		f.send(b)
		b = f.held
	case s.number == 30:
		f.send(b)
		stamp(b, isFrame, s.number, s.at+1) // not its time
		f.send(b)
		stamp(b, isFrame, 1<<40, s.at) // not its number
		f.send(b)
		binary.BigEndian.PutUint32(b[atMagic:], 1)
	}
	f.send(b)
}

// Everything that a bad forwarder does to frames is counted, frame by frame.
func TestCounts(t *testing.T) {
	for _, socket := range []string{xdp, packets} {
		t.Run(socket, func(t *testing.T) {
			network(t)
			forwarding(t, socket, func(f *forwarder) func([]byte) { return (&bad{forwarder: *f}).take })
			m := measured(t, Probe{Size: 64, Rate: 1000, Forwarder: testpmd, Socket: socket})
			got := m.Samples["f"+latency]
			if got.Wanted != 500 || got.Lost != 50 || value(m, lost) != 50 || value(m, unnamed) != 50 || value(m, doubled) != 1 ||
				value(m, reordered) != 1 || value(m, foreign) != 3 || len(m.Overloaded) != 1 {
				t.Errorf("%d of %d lost, %v, %v", got.Lost, got.Wanted, m.Values, m.Overloaded)
			}
		})
	}
}

// Frames that find no room at a forwarder that does not look are all accounted for.
func TestConservation(t *testing.T) {
	for _, socket := range []string{xdp, packets} {
		t.Run(socket, func(t *testing.T) {
			network(t)
			asleep := false
			forwarding(t, socket, func(f *forwarder) func([]byte) {
				return func(b []byte) {
					if s, ok := read(b); ok && s.magic == isFrame && !asleep {
						asleep = true
						<-time.After(time.Second)
					}
					f.take(b)
				}
			})
			m := measured(t, Probe{Size: 64, Rate: 60000, Forwarder: ours, Socket: socket})
			if value(m, lost) == 0 || value(m, lostThere) != value(m, lost) || value(m, unnamed) != 0 ||
				!strings.Contains(m.Facts["lost"], "no room at the forwarder's socket") {
				t.Errorf("%v, %v", m.Values, m.Facts)
			}
		})
	}
}

// forwarding runs a forwarder with a modified take, until the test ends.
func forwarding(t *testing.T, socket string, of func(*forwarder) func([]byte)) {
	t.Helper()
	probetest.Serve(t, readyLine, func(ctx context.Context, w io.Writer) error {
		return netdev.In(forwarderNetns, func() error {
			device, err := deviceOf(forwarderAt().Addr())
			if err != nil {
				return err
			}
			l, err := reserve(device, forwarderAt())
			if err != nil {
				return err
			}
			defer l.close()
			f := &forwarder{local: l, heard: newTally()}
			if f.port, err = open(l, socket); err != nil {
				return err
			}
			defer f.port.close()
			fmt.Fprintln(w, readyLine)
			for take := of(f); ctx.Err() == nil; {
				n, perr := f.port.pull(take)
				if err = errors.Join(perr, f.port.flush()); err != nil {
					return err
				}
				if n == 0 { // the generator may share the CPU
					<-time.After(20 * time.Microsecond)
				}
			}
			return nil
		})
	})
}

// Impossible settings are rejected before a frame is sent.
func TestRefused(t *testing.T) {
	network(t)
	if out, err := exec.Command("ip", "-n", generatorNetns, "link", "set", "eth0", "mtu", "1400").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	for _, c := range []struct {
		p    Probe
		to   netip.AddrPort
		want string
	}{
		{Probe{Size: 64, Socket: auto, Forwarder: kernel}, netip.MustParseAddrPort("198.18.4.1:7009"), "forwarder: kernel: expected a neighbour, found 198.18.4.1"},
		{Probe{Size: 1518, Socket: auto}, forwarderAt(), "size: frames of 1518 bytes need an MTU of 1500, eth0 has 1400"},
		{Probe{Size: Mix, Socket: auto}, forwarderAt(), "need an MTU of 1500"},
		{Probe{Size: 64, Socket: auto}, forwarderAt(), "no answer from a forwarder"},
	} {
		err := netdev.In(generatorNetns, func() error {
			_, err := c.p.Run(t.Context(), probe.Conditions{Address: c.to, Window: time.Second})
			return err
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
