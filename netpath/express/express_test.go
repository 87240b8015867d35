package express

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cilium/ebpf"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

const (
	uplink = "islx-up"
	wire   = "islx-wire" // the device at its other end, and the namespace of that
)

// bed is an uplink with a wire behind it, and lanes.
type bed struct {
	journal *journal.Journal
	lanes   []netpath.Lane
}

func ip(t *testing.T, command string) {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %s", command, out)
	}
}

// setUp makes the path of a lane for each of the networks, the first with the address 198.18.11.1.
func setUp(t *testing.T, networks ...lane.Network) *bed {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	hosttest.Need(t, hosttest.BPF)
	ip(t, "netns add "+wire)
	t.Cleanup(func() { ip(t, "netns del "+wire) })
	ip(t, "link add "+uplink+" type veth peer name "+wire+" netns "+wire)
	ip(t, "link set "+uplink+" up")
	ip(t, "-n "+wire+" link set "+wire+" up")
	ip(t, "-n "+wire+" addr add 198.18.11.200/24 dev "+wire)
	all := change.Ops("/")
	maps.Copy(all, Ops())
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(j.Undo(context.Background()), j.Close()); err != nil {
			t.Error(err)
		}
	})
	b := &bed{journal: j}
	for i, n := range networks {
		n.Device = uplink
		b.lanes = append(b.lanes, netpath.Of(fstest.MapFS{}, fmt.Sprintf("islx-%c", 'a'+i), n))
	}
	b.reconcile(t, b.lanes)
	return b
}

func (b *bed) reconcile(t *testing.T, lanes []netpath.Lane) {
	t.Helper()
	steps, err := Path{}.Steps(lanes)
	if err != nil {
		t.Fatal(err)
	}
	if _, left, err := b.journal.Reconcile(t.Context(), steps); err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
}

func address(n int) []lane.Address {
	return []lane.Address{
		{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 11, byte(n)}), 24)},
		{Prefix: netip.MustParsePrefix(fmt.Sprintf("fd15:11::%x/64", n))}}
}

// program is the one that is attached to a device.
func program(t *testing.T, device string) ebpf.ProgramID {
	t.Helper()
	h, err := openHook(device)
	if err != nil || h == nil || h.own() == nil {
		t.Fatalf("%s has no program: %v", device, err)
	}
	h.Close()
	return ebpf.ProgramID(h.own().Id)
}

// entries is how many a table has.
func entries(t *testing.T) int {
	t.Helper()
	m, err := openTable(tableName(uplink))
	if err != nil || m == nil {
		t.Fatal(m, err)
	}
	defer m.Close()
	var n int
	var key mac
	var device uint32
	for i := m.Iterate(); i.Next(&key, &device); {
		n++
	}
	return n
}

// packets opens a UDP socket in a namespace.
func packets(t *testing.T, netns, addr string) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	err := netdev.In(netns, func() (err error) {
		c, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Under traffic in both directions lanes come and go, by one entry and without touching a program of others, and
// a version with another program puts that in place of its own; no datagram is lost.
func TestReplacedUnderTraffic(t *testing.T) {
	b := setUp(t, lane.Network{Addresses: address(1)}, lane.Network{Addresses: address(2)})
	a := netpath.Port(b.lanes[0].Name)
	server := packets(t, netpath.Namespace(b.lanes[0].Name), "198.18.11.1:7007")
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(buf[:n], from)
		}
	}()
	client := packets(t, wire, "198.18.11.200:0")
	stop, counted := make(chan struct{}), make(chan error, 1)
	go func() { counted <- pingPong(client, stop) }()

	before := program(t, a)
	for range 10 {
		b.reconcile(t, b.lanes[:1])
		if n := entries(t); n != 2 {
			t.Errorf("%d entries for one lane and the uplink", n)
		}
		b.reconcile(t, b.lanes)
	}
	if program(t, a) != before || entries(t) != 3 {
		t.Errorf("%d entries for two lanes and the uplink, or the first lane's program is another one", entries(t))
	}
	first := object
	defer func() { object = first }()
	for version := range 20 {
		before = program(t, a)
		object = append(slices.Clone(first), byte(version)) // behind the sections
		b.reconcile(t, b.lanes)
		if program(t, a) == before {
			t.Error("the program of another version stays")
		}
	}
	close(stop)
	if err := <-counted; err != nil {
		t.Error(err)
	}
}

// pingPong sends numbered datagrams, 16 on their way at a time, until it is told to stop, and fails where not
// each has come back once, in its order.
func pingPong(c net.PacketConn, stop chan struct{}) error {
	to := &net.UDPAddr{IP: net.IPv4(198, 18, 11, 1), Port: 7007}
	buf := make([]byte, 64)
	var sent, got uint64
	for going := true; going || got < sent; {
		select {
		case <-stop:
			going = false
		default:
		}
		for going && sent < got+16 {
			if _, err := c.WriteTo(binary.BigEndian.AppendUint64(nil, sent), to); err != nil {
				return err
			}
			sent++
		}
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		n, _, err := c.ReadFrom(buf)
		if err != nil || !bytes.Equal(buf[:n], binary.BigEndian.AppendUint64(nil, got)) {
			return fmt.Errorf("%d datagrams sent, %d came back, then %x: %w", sent, got, buf[:n], err)
		}
		got++
	}
	if got < 1000 {
		return fmt.Errorf("only %d datagrams", got)
	}
	return nil
}
