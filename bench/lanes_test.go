package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/express"
)

// BenchmarkLanes compares the path of a lane that is alone on its uplink with that of the last of a thousand, all with
// namespaces and devices of their own, in pairs of random order. A bridge has 1,024 ports at most.
func BenchmarkLanes(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.CPUs(2))
	hosttest.Need(b, hosttest.BPF)
	all := change.Ops("/")
	maps.Copy(all, express.Ops())
	b.Setenv("TMPDIR", "/dev/shm") // in memory, as a host's journal
	j, err := journal.Open(filepath.Join(b.TempDir(), "run"), "bench", all)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := errors.Join(j.Undo(context.Background()), j.Close()); err != nil {
			b.Error(err)
		}
	}()
	began := time.Now()
	one, many := onWire(b, j, 1, 1), onWire(b, j, 2, 1000)
	b.Logf("made in %.0f s", time.Since(began).Seconds())
	for b.Loop() {
		comparePairs(b, [2]string{"1000", "1"}, func() map[string]float64 { return many.measure(b) },
			func() map[string]float64 { return one.measure(b) })
	}
}

// lastLane is the way from a client behind an uplink to the last of its lanes.
type lastLane struct {
	client, lane string // namespaces
	addr         netip.Addr
}

// onWire makes a wire to a client, and lanes with it as their uplink.
func onWire(b *testing.B, j *journal.Journal, number byte, count int) lastLane {
	b.Helper()
	at := func(n int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 16*number + byte(n>>8), byte(n)}), 20)
	}
	wire := netpath.Wire{Uplink: fmt.Sprint("islw-", number), Netns: fmt.Sprint("isolane-bench-w", number),
		MAC: fmt.Sprintf("02:15:ff:00:00:%02x", number), Addresses: []netip.Prefix{at(4000)}}
	steps, err := wire.Steps(true)
	if err != nil {
		b.Fatal(err)
	}
	if _, err = j.Apply(b.Context(), steps); err != nil {
		b.Fatal(err)
	}
	var lanes []netpath.Lane
	for i := range count {
		lanes = append(lanes, netpath.Of(fstest.MapFS{}, fmt.Sprintf("bench-%d-%d", number, i), lane.Network{
			Path: "express", Device: wire.Uplink, Addresses: []lane.Address{{Prefix: at(i + 1)}}}))
	}
	if steps, err = (express.Path{}).Steps(lanes); err == nil {
		_, err = j.Apply(b.Context(), steps)
	}
	if err != nil {
		b.Fatal(err)
	}
	last := lastLane{wire.Netns, lanes[count-1].Netns(), at(count).Addr()}
	if err = wire.Reach(b.Context(), last.addr); err != nil {
		b.Fatal(err)
	}
	return last
}

// measure is a third of a second of TCP each way, in frames of a wire's size, and one of datagrams there and back.
func (l lastLane) measure(b *testing.B) map[string]float64 {
	b.Helper()
	found := map[string]float64{}
	for way, sends := range map[string]bool{"down": false, "up": true} {
		server, err := l.listen("tcp")
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan float64)
		go func() {
			c, aerr := server.(net.Listener).Accept()
			if aerr != nil {
				b.Error(aerr)
				done <- 0
				return
			}
			defer c.Close()
			done <- stream(c, sends)
		}()
		c, err := l.dial("tcp", server.(net.Listener).Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		got := stream(c, !sends)
		_ = c.Close() // all has been read
		found[way+"-Gbit/s"] = max(got, <-done)
		_ = server.Close()
	}
	found["datagrams/s"] = l.datagrams(b)
	return found
}

const third = time.Second / 3

// stream sends for a third of a second, or returns how many Gbit/s come until the other side ends.
func stream(c net.Conn, sends bool) float64 {
	buf, began := make([]byte, 128<<10), time.Now()
	if sends {
		for time.Since(began) < third {
			if _, err := c.Write(buf); err != nil {
				return 0
			}
		}
		_ = c.(*net.TCPConn).CloseWrite()
		return 0
	}
	var n int64
	for {
		m, err := c.Read(buf)
		if n += int64(m); err != nil {
			return float64(8*n) / float64(time.Since(began).Nanoseconds())
		}
	}
}

// datagrams is how many of 64 bytes come back in a second, one after the other.
func (l lastLane) datagrams(b *testing.B) float64 {
	b.Helper()
	server, err := l.listen("udp")
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, rerr := server.(net.PacketConn).ReadFrom(buf)
			if rerr != nil {
				return // closed
			}
			_, _ = server.(net.PacketConn).WriteTo(buf[:n], from) // the other side counts
		}
	}()
	c, err := l.dial("udp", server.(net.PacketConn).LocalAddr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	buf, n, began := make([]byte, 64), 0, time.Now()
	for time.Since(began) < third {
		_ = c.SetDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err = c.Write(buf); err == nil {
			_, err = c.Read(buf)
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // lost, or late: 20 ms are in the figure
		case err != nil:
			b.Fatal(err)
		default:
			n++
		}
	}
	return float64(n) / time.Since(began).Seconds()
}

func (l lastLane) listen(network string) (c io.Closer, err error) {
	err = netdev.In(l.lane, func() error {
		addr := netip.AddrPortFrom(l.addr, 0).String()
		if network == "udp" {
			c, err = net.ListenPacket(network, addr)
		} else {
			c, err = net.Listen(network, addr)
		}
		return err
	})
	return c, err
}

func (l lastLane) dial(network, to string) (c net.Conn, err error) {
	err = netdev.In(l.client, func() error {
		c, err = net.Dial(network, to)
		return err
	})
	return c, err
}
