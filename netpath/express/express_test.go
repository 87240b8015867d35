package express

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

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

	layout1 = "testdata/layout-1.o" // of the version before, whose table has no lengths of frames
)

// bed is an uplink with a wire behind it, and lanes.
type bed struct {
	journal *journal.Journal
	lanes   []netpath.Lane
	before  bool // with the table of an earlier version
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
	ip(t, "link add "+uplink+" mtu 9000 type veth peer name "+wire+" netns "+wire)
	t.Cleanup(func() { ip(t, "link del "+uplink) })
	ip(t, "link set "+uplink+" up")
	ip(t, "-n "+wire+" link set "+wire+" mtu 9000 up")
	ip(t, "-n "+wire+" addr add 198.18.11.200/24 dev "+wire)
	all := change.Ops("/")
	maps.Copy(all, Ops())
	all[kindTable] = tablesOf{}
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
		n.Device, n.MTU = uplink, 9000
		b.lanes = append(b.lanes, netpath.Of(fstest.MapFS{}, fmt.Sprintf("islx-%c", 'a'+i), n))
	}
	b.reconcile(t, b.lanes)
	return b
}

// tablesOf makes tables of layout 1 as the version did that had them.
type tablesOf struct{ tables }

func (tablesOf) of(s journal.Step) tables {
	if isOurs(s.Target) {
		return tables{func() (*ebpf.CollectionSpec, error) { return ebpf.LoadCollectionSpec("bpf/express.o") }}
	}
	return tables{func() (*ebpf.CollectionSpec, error) { return ebpf.LoadCollectionSpec(layout1) }}
}

func (o tablesOf) Read(ctx context.Context, s journal.Step) (string, error) {
	return o.of(s).Read(ctx, s)
}

func (o tablesOf) Write(ctx context.Context, s journal.Step, value string) error {
	return o.of(s).Write(ctx, s, value)
}

func (b *bed) reconcile(t *testing.T, lanes []netpath.Lane) {
	t.Helper()
	steps, err := Path{}.Steps(lanes)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range steps {
		if now := tableName(""); b.before && (s.Kind == kindTable || s.Kind == kindPort) {
			steps[i].Target = strings.Replace(s.Target, now, "isolane-express-1", 1)
			steps[i].After = strings.Replace(s.After, now, "isolane-express-1", 1)
		}
	}
	if _, left, err := b.journal.Reconcile(t.Context(), steps, false); err != nil || len(left) > 0 {
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
	h, err := netdev.OpenHook(device)
	if err != nil || h == nil || own(h) == nil {
		t.Fatalf("%s has no program: %v", device, err)
	}
	h.Close()
	return ebpf.ProgramID(own(h).Id)
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
	var value [2]uint32
	for i := m.Iterate(); i.Next(&key, &value); {
		n++
	}
	return n
}

// frames opens a packet socket at a device in a namespace, for frames of a protocol.
func frames(t *testing.T, netns, device string, protocol uint16) int {
	t.Helper()
	protocol = binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, protocol)) // in network order
	var fd int
	err := netdev.In(netns, func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(protocol)); err != nil {
			return err
		}
		d, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: d.Index}),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// count is how many of the frames that came to a socket before the last one are equal to one of these.
func count(t *testing.T, fd int, frame, last []byte) (n int) {
	t.Helper()
	buf := make([]byte, 10000)
	for {
		length, err := unix.Read(fd, buf)
		switch {
		case err != nil:
			t.Fatal("the last frame has not come: ", err)
		case bytes.Equal(buf[:length], last):
			return n
		case bytes.Equal(buf[:length], frame):
			n++
		}
	}
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
// a version with another program, or another table, puts that in place of its own; no datagram is lost, and at no moment
// passes a frame that the lane may not send: meanwhile the bridge would bring both.
func TestReplacedUnderTraffic(t *testing.T) {
	b := setUp(t, lane.Network{Addresses: address(1)}, lane.Network{Addresses: address(2)})
	a := netpath.Port(b.lanes[0].Name)
	server := packets(t, b.lanes[0].Netns(), "198.18.11.1:7007")
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
	stop, counted := make(chan struct{}), make(chan error, 2)
	go func() { counted <- pingPong(client, stop) }()
	forbidden, came := []byte("\xff\xff\xff\xff\xff\xff\x02\x15\x00\x00\x00\x01\x88\xb5"), frames(t, wire, wire, 0x88b5)
	from := frames(t, b.lanes[0].Netns(), netpath.Device, 0x88b5)
	sent := make(chan int, 1)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				sent <- n
				return
			case <-time.After(10 * time.Microsecond):
				_, _ = unix.Write(from, forbidden)
			}
		}
	}()

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
	go func() { counted <- pingPong(packets(t, b.lanes[1].Netns(), "198.18.11.2:0"), stop) }()
	first := object
	defer func() { object = first }()
	earlier, err := os.ReadFile(layout1)
	if err != nil {
		t.Fatal(err)
	}
	for version := range 20 {
		before = program(t, a)
		object = append(slices.Clone(first), byte(version)) // behind the sections
		if b.before = version%4 == 1; b.before {
			object = earlier
		}
		b.reconcile(t, b.lanes)
		if program(t, a) == before {
			t.Error("the program of another version stays")
		}
		old, oerr := openTable("isolane-express-1-" + uplink)
		if (old != nil) != b.before || oerr != nil {
			t.Errorf("version %d: the earlier table: %v, %v", version, old, oerr)
		}
		_ = old.Close() // nil too
	}
	close(stop)
	for range 2 {
		if err := <-counted; err != nil {
			t.Error(err)
		}
	}
	n, passed := <-sent, 0
	for {
		if got, _, err := unix.Recvfrom(came, make([]byte, 100), unix.MSG_DONTWAIT); got <= 0 {
			if !errors.Is(err, unix.EAGAIN) {
				t.Error(err)
			}
			break
		}
		passed++
	}
	if n < 1000 || passed > 0 {
		t.Errorf("%d of %d frames that a lane may not send have passed", passed, n)
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

// What is left where the kernel took a program with its device, or a crash came between a hook and its program, is
// taken back as well.
func TestPartsAreTakenBack(t *testing.T) {
	b := setUp(t, lane.Network{Addresses: address(1)}, lane.Network{Addresses: address(2)})
	ip(t, "link del "+netpath.Port(b.lanes[1].Name))
	b.reconcile(t, b.lanes[:1])
	if n := entries(t); n != 2 {
		t.Errorf("%d entries for one lane and the uplink", n)
	}
	h, err := netdev.OpenHook(uplink)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err = h.FilterDel(own(h)); err != nil {
		t.Fatal(err)
	}
	b.reconcile(t, nil)
	after, err := netdev.OpenHook(uplink)
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	if after.Qdisc != "" {
		t.Errorf("the uplink keeps a qdisc %s", after.Qdisc)
	}
}

// The table has the MTU of a lane's device, and puts another one back; an uplink may have another without a word.
func TestAnotherMTU(t *testing.T) {
	b := setUp(t, lane.Network{Addresses: address(1)})
	steps, err := Path{}.Steps(b.lanes)
	if err != nil {
		t.Fatal(err)
	}
	for device, want := range map[string]int{uplink: 0, netpath.Port(b.lanes[0].Name): 1} {
		ip(t, "link set "+device+" mtu 9001")
		if missing, merr := b.journal.Missing(t.Context(), steps); merr != nil || len(missing) != want {
			t.Errorf("%s has another MTU: missing %v, %v", device, missing, merr)
		}
		b.reconcile(t, b.lanes)
		if missing, merr := b.journal.Missing(t.Context(), steps); merr != nil || len(missing) > 0 {
			t.Errorf("%s, put back: missing %v, %v", device, missing, merr)
		}
	}
}

// A program of somebody else's by TCX, which has frames before ours and lets none go on to that, is no place for a new
// lane; a lane in force waits for its end, and its drift says so.
func TestOvertaken(t *testing.T) {
	b := setUp(t, lane.Network{Addresses: address(1)})
	d, err := net.InterfaceByName(uplink)
	if err != nil {
		t.Fatal(err)
	}
	const pass = 0 // TCX_PASS: to the stack
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	on, err := link.AttachTCX(link.TCXOptions{Interface: d.Index, Program: prog, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, link.ErrNotSupported) {
		t.Skip("skipped: this kernel has no TCX")
	}
	if err != nil {
		t.Fatal(err)
	}
	steps, err := Path{}.Steps(b.lanes)
	if err != nil {
		t.Fatal(err)
	}
	const want = uplink + " has an eBPF program of somebody else (TCX)"
	err = Path{}.Possible(b.lanes[0])
	if err == nil || !strings.HasPrefix(err.Error(), "spec.network.device: "+want) {
		t.Error("a new lane: ", err)
	}
	b.reconcile(t, b.lanes)
	if w := b.journal.Waiting(); len(w) != 1 || w[0].Step.Target != uplink || !strings.HasPrefix(w[0].Err.Error(), want) {
		t.Errorf("%+v waits", w)
	}
	missing, err := b.journal.Missing(t.Context(), steps)
	if err != nil || len(missing) != 1 {
		t.Fatal(missing, err)
	}
	if _, found := (ports{}).DescribeDrift(missing[0]); !strings.HasPrefix(found, want) {
		t.Error(found)
	}
	if err = on.Close(); err != nil {
		t.Fatal(err)
	}
	b.reconcile(t, b.lanes)
	missing, err = b.journal.Missing(t.Context(), steps)
	if err != nil || len(missing) > 0 || (Path{}).Possible(b.lanes[0]) != nil {
		t.Error("without it: ", missing, err)
	}
}

// From a lane come frames in its own name only, counted at the wire and in another lane; what is kept out is counted
// as refused. A lane that routes may send for others too, and one without declared addresses for everybody.
func TestGuard(t *testing.T) {
	router := lane.Network{Addresses: address(2), Sources: []lane.Prefix{{Prefix: netip.MustParsePrefix("10.1.0.0/16")},
		{Prefix: netip.MustParsePrefix("2001:db8::/32")}}}
	b := setUp(t, lane.Network{Addresses: address(1)}, router, lane.Network{}, lane.Network{})
	ears := b.listen(t)
	const mine, his = "c6120b01", "c6120b09" // 198.18.11.1 is the first lane's
	const mine6, his6 = "fd150011000000000000000000000001", "fd150011000000000000000000000009"
	const none6, all6 = "00000000000000000000000000000000", "ff020000000000000000000000000001"
	link6 := func(mac string) string { return "fe80000000000000" + "00" + mac[2:6] + "fffe" + mac[6:] }
	ipv4 := func(from, fragment, rest string) string {
		head := fmt.Sprintf("4500%04x0001%s40110000%sc6120bc8", 20+len(rest)/2, fragment, from)
		return "0800" + head[:20] + checksum(t, head) + head[24:] + rest
	}
	ipv6 := func(from, next, rest string) string {
		return "86dd60000000" + fmt.Sprintf("%04x", len(rest)/2) + next + "ff" + from + all6 + rest
	}
	arp := func(mac, from, target string) string {
		return "0806" + "0001080006040001" + mac + from + "000000000000" + target
	}
	nd := func(kind, target string) string { return kind + "000000" + "00000000" + target }
	for _, c := range []struct {
		name       string
		frame      func(mac string) string // behind the source MAC address
		from, all  bool                    // whether it passes from the lane, and from the one without addresses
		fromRouter bool
	}{
		{"its IPv4 address", func(string) string { return ipv4(mine, "0000", "") }, true, true, false},
		{"a fragment", func(string) string { return ipv4(mine, "00b9", "") }, true, true, false},
		{"another IPv4 address", func(string) string { return ipv4(his, "0000", "") }, false, true, false},
		{"a fragment of another", func(string) string { return ipv4(his, "00b9", "") }, false, true, false},
		{"no IPv4 address", func(string) string { return ipv4("00000000", "0000", "") }, false, true, false},
		{"an address behind a router", func(string) string { return ipv4("0a010203", "0000", "") }, false, true, true},
		{"a runt", func(m string) string { return arp(m, mine, his)[:40] }, false, true, false},
		{"more than a page", func(string) string { return ipv4(his, "0000", strings.Repeat("00", 8000)) }, false, true, false},
		{"its IPv6 address", func(string) string { return ipv6(mine6, "11", "") }, true, true, false},
		{"another IPv6 address", func(string) string { return ipv6(his6, "11", "") }, false, true, false},
		{"behind a router, IPv6", func(string) string { return ipv6("20010db8000000000000000000000001", "11", "") }, false, true, true},
		{"its address on the link", func(m string) string { return ipv6(link6(m), "11", "") }, true, true, true},
		{"another on the link", func(string) string { return ipv6(link6("021500000001"), "11", "") }, false, true, false},
		{"ARP", func(m string) string { return arp(m, mine, his) }, true, true, false},
		{"ARP of another address", func(m string) string { return arp(m, his, mine) }, false, true, false},
		{"ARP of another MAC address", func(string) string { return arp("021500000001", mine, his) }, false, true, false},
		{"ARP probe", func(m string) string { return arp(m, "00000000", mine) }, true, true, false},
		{"ARP probe of another", func(m string) string { return arp(m, "00000000", his) }, false, true, false},
		{"solicitation", func(string) string { return ipv6(mine6, "3a", nd("87", his6)) }, true, true, false},
		{"duplicate address detection", func(string) string { return ipv6(none6, "3a", nd("87", mine6)) }, true, true, false},
		{"detection of another", func(string) string { return ipv6(none6, "3a", nd("87", his6)) }, false, true, false},
		{"advertisement", func(string) string { return ipv6(mine6, "3a", nd("88", mine6)) }, true, true, false},
		{"advertisement of another", func(string) string { return ipv6(mine6, "3a", nd("88", his6)) }, false, true, false},
		{"advertisement behind options", func(string) string {
			return ipv6(mine6, "3c", "3a00010400000000"+nd("88", his6))
		}, false, true, false},
		{"many options", func(string) string { return ipv6(mine6, "3c", strings.Repeat("3c00010400000000", 9)) }, false, true, false},
		{"router", func(m string) string { return ipv6(link6(m), "3a", nd("86", none6)) }, false, true, true},
		{"listener report", func(string) string { return ipv6(none6, "00", "3a00050200000000"+nd("8f", none6)) }, true, true, true},
		{"other ICMPv6 of nobody", func(string) string { return ipv6(none6, "3a", nd("80", none6)) }, false, true, false},
		{"another protocol", func(string) string { return "9100" + "00010800" + mine }, false, true, false},
		{"a tag", func(string) string { return "81000064" + ipv4(mine, "0000", "") }, false, false, false},
		{"two tags", func(string) string { return "88a8006481000007" + ipv4(mine, "0000", "") }, false, false, false},
		{"another MAC address", nil, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, passes := range []bool{c.from, c.fromRouter, c.all} {
				m := strings.ReplaceAll(b.lanes[i].MAC, ":", "")
				frame := "021500000001" + ipv4(mine, "0000", "")
				if c.frame != nil {
					frame = m + c.frame(m)
				}
				ears.hear(t, b.lanes[i], frame, 1, passes)
			}
		})
	}
	t.Run("a storm", func(t *testing.T) {
		m := strings.ReplaceAll(b.lanes[0].MAC, ":", "")
		ears.hear(t, b.lanes[0], m+arp(m, his, mine), 2000, false)
	})
}

// checksum is that of an IPv4 header (RFC 1071), in hexadecimal.
func checksum(t *testing.T, head string) string {
	t.Helper()
	data, err := hex.DecodeString(head)
	if err != nil {
		t.Fatal(err)
	}
	var sum uint32
	for ; len(data) > 0; data = data[2:] {
		sum += uint32(binary.BigEndian.Uint16(data))
	}
	return fmt.Sprintf("%04x", ^uint16(sum>>16+sum&0xffff))
}

// ears are packet sockets where the frames of lanes come.
type ears struct {
	wire, other int
	mac         string // of the wire
	sent        uint32
}

func (b *bed) listen(t *testing.T) *ears {
	t.Helper()
	e := &ears{wire: frames(t, wire, wire, unix.ETH_P_ALL),
		other: frames(t, b.lanes[3].Netns(), netpath.Device, unix.ETH_P_ALL)}
	err := netdev.In(wire, func() error {
		d, err := net.InterfaceByName(wire)
		if err == nil {
			e.mac = hex.EncodeToString(d.HardwareAddr)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// hear sends a frame so many times from a lane to all and to the wire alone, and looks whether it comes there, or
// is counted as refused.
func (e *ears) hear(t *testing.T, l netpath.Lane, frame string, times int, passes bool) {
	t.Helper()
	before, err := netpath.TrafficOf(t.Context(), nil, l)
	if err != nil {
		t.Fatal(err)
	}
	own := "c6120b63" // any
	if len(l.Addresses) > 0 {
		own = hex.EncodeToString(l.Addresses[0].Addr().AsSlice())
	}
	m := strings.ReplaceAll(l.MAC, ":", "")
	from := frames(t, l.Netns(), netpath.Device, unix.ETH_P_ALL)
	defer unix.Close(from)
	for _, to := range []string{"ffffffffffff", e.mac} {
		raw, derr := hex.DecodeString(to + frame)
		if derr != nil {
			t.Fatal(derr)
		}
		for done := 0; done < times; {
			for range min(times, 100) { // a veth holds 256
				if _, err = unix.Write(from, raw); err != nil {
					t.Fatal(err)
				}
				done++
			}
			// A lane may always ask for an address, and what it sends does not change its order.
			e.sent++
			last, _ := hex.DecodeString("ffffffffffff" + m + "08060001080006040001" + m + own + "000000000000" + fmt.Sprintf("%08x", e.sent))
			if _, err = unix.Write(from, last); err != nil {
				t.Fatal(err)
			}
			atWire, atOther := count(t, e.wire, raw, last), count(t, e.other, raw, last)
			if came := atWire > 0; came != passes || (to != e.mac && passes) != (atOther > 0) {
				t.Errorf("%s to %s: came to the wire %d times and to another lane %d times", l.Name, to, atWire, atOther)
			}
		}
	}
	after, err := netpath.TrafficOf(t.Context(), nil, l)
	if err != nil {
		t.Fatal(err)
	}
	want := uint64(2 * times)
	if passes {
		want = 0
	}
	if refused := after.Refused - before.Refused; refused != want {
		t.Errorf("%s: %d refused, expected %d", l.Name, refused, want)
	}
}

// BenchmarkTable runs the program of a lane's port by BPF_PROG_TEST_RUN, with one lane in the table and with a
// thousand: a TCP segment of 64 bytes for another lane, with and without the guard, in nanoseconds of the kernel.
func BenchmarkTable(b *testing.B) {
	hosttest.Need(b, hosttest.Root)
	hosttest.Need(b, hosttest.BPF)
	from := netpath.Of(fstest.MapFS{}, "bench", lane.Network{Addresses: address(1)})
	m := strings.ReplaceAll(from.MAC, ":", "")
	for _, lanes := range []int{1, 1000} {
		for _, guard := range []bool{false, true} {
			b.Run(fmt.Sprintf("lanes=%d/guard=%v", lanes, guard), func(b *testing.B) {
				spec, err := collection()
				if err != nil {
					b.Fatal(err)
				}
				table, err := ebpf.NewMap(spec.Maps["table"])
				if err != nil {
					b.Fatal(err)
				}
				defer table.Close()
				for i := range lanes {
					if err = table.Put(mac{2, 0x15, 9, 0, byte(i >> 8), byte(i)}, [2]uint32{1, 1514}); err != nil {
						b.Fatal(err)
					}
				}
				p := guarded(from, tableName(""))
				if !guard {
					p.Sources = nil
				}
				prog, err := p.load(table)
				if err != nil {
					b.Fatal(err)
				}
				defer prog.Close()
				last := fmt.Sprintf("02150900%04x", lanes-1)
				frame, err := hex.DecodeString(last + m + "0800450000320000400040060000" + "c6120b01c6120b02" + strings.Repeat("00", 44))
				if err != nil {
					b.Fatal(err)
				}
				const handedOver = 7 // TC_ACT_REDIRECT
				did, took, err := prog.Benchmark(frame, max(b.N, 1e6), b.ResetTimer)
				if did != handedOver || err != nil {
					b.Fatal(did, err)
				}
				b.ReportMetric(float64(took.Nanoseconds()), "ns/op")
			})
		}
	}
}
