package netpath_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/netpath/macvlan"
	"isolane.dev/isolane/quantity"
)

// measured is a path that measurements take.
type measured interface {
	netpath.Path
	WireGRO() bool
}

func ops() map[string]journal.Op {
	all := change.Ops("/")
	maps.Copy(all, express.Ops())
	return all
}

// end is a namespace with addresses.
type end struct {
	netns     string
	addresses [2]netip.Addr // IPv4, IPv6
}

func addressesOf(n byte) [2]netip.Addr {
	return [2]netip.Addr{netip.AddrFrom4([4]byte{198, 18, 7, n}), netip.AddrFrom16([16]byte{0xfd, 0x15, 7, 15: n})}
}

func prefixes(of [2]netip.Addr) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(of[0], 24), netip.PrefixFrom(of[1], 64)}
}

// testWire has names of its own, so that a measurement may run beside the test.
func testWire() netpath.Wire {
	return netpath.Wire{Uplink: "isl-test-w", Netns: "isolane-test-client", MAC: "02:15:07:00:00:01",
		Addresses: prefixes(addressesOf(1))}
}

// in calls f in the namespace of that name.
func in(t *testing.T, netns string, f func() error) {
	t.Helper()
	if err := netdev.In(netns, f); err != nil {
		t.Fatalf("in %s: %v", netns, err)
	}
}

func present(name string) bool {
	_, err := os.Stat(filepath.Join(netdev.Dir, name))
	_, lerr := net.InterfaceByName(name)
	return err == nil || lerr == nil
}

// Each path resolves addresses by ARP and neighbour discovery, carries IPv4 and IPv6, datagrams and streams between
// a lane and a client behind the uplink, and is gone after undo, also when the process that made it was killed.
func TestPaths(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, p := range []measured{bridge.Path{}, bridge.Path{GRO: true}, macvlan.Path{}, express.Path{}} {
		t.Run(p.Name(), func(t *testing.T) {
			if p.Name() == "express" {
				hosttest.Need(t, hosttest.BPF)
			}
			dir := filepath.Join(t.TempDir(), "run")
			j, err := journal.Open(dir, "test", ops())
			if err != nil {
				t.Fatal(err)
			}
			wire := testWire()
			client := end{wire.Netns, addressesOf(1)}
			application := end{"isolane-test-app", addressesOf(2)}
			network := lane.Network{Path: p.Name(), Device: wire.Uplink}
			for _, a := range prefixes(application.addresses) {
				network.Addresses = append(network.Addresses, lane.Address{Prefix: a})
			}
			steps, err := wire.Steps(p.WireGRO())
			if err != nil {
				t.Fatal(err)
			}
			more, err := p.Steps([]netpath.Lane{netpath.Of(fstest.MapFS{}, "test-app", network)})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				// As after a SIGKILL: the journal is read again from its file.
				if err = j.Close(); err != nil {
					t.Error(err)
				}
				if _, _, err = journal.Recover(context.Background(), dir, ops()); err != nil {
					t.Error(err)
				}
				for _, left := range []string{client.netns, application.netns, wire.Uplink, netpath.Port("test-app")} {
					if present(left) {
						t.Errorf("%s is still there", left)
					}
				}
			}()
			if _, err = j.Apply(t.Context(), append(steps, more...)); err != nil {
				t.Fatal(err)
			}
			for _, a := range application.addresses {
				echo(t, client.netns, application.netns, "udp", a)
				echo(t, client.netns, application.netns, "tcp", a)
			}
			both := [2]end{client, application}
			for family := range client.addresses {
				for _, to := range []int{0, 1} {
					addr := both[to].addresses[family]
					got := stream(t, both[1-to].netns, both[to].netns, addr)
					if p.WireGRO() != (got < frames/5) || !p.WireGRO() && got < frames*9/10 {
						t.Errorf("%d frames to %s came as %d packets", frames, addr, got)
					}
				}
			}
			_, polled := p.(netpath.Polled)
			if id := receiveQueue(t, client.netns, application.netns, application.addresses[0]); (id > 0) != polled {
				t.Errorf("frames came by receive queue %d, so sockets poll: expected %v", id, polled)
			}
			unreachable(t, client.netns)
			rate := netdev.RateStep(application.netns, netpath.Device, 20e6)
			if _, err = j.Apply(t.Context(), []journal.Step{rate}); err != nil {
				t.Fatal(err)
			}
			limited(t, application.netns, client.netns, client.addresses[0], 20e6)
		})
	}
}

func echo(t *testing.T, client, server, network string, addr netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	target := netip.AddrPortFrom(addr, 7007).String()
	served := make(chan error, 1)
	in(t, server, func() error {
		var lc net.ListenConfig
		if network == "udp" {
			c, err := lc.ListenPacket(ctx, network, target)
			if err == nil {
				go func() {
					buf := make([]byte, 2048)
					n, from, rerr := c.ReadFrom(buf)
					if rerr == nil {
						_, rerr = c.WriteTo(buf[:n], from)
					}
					served <- errors.Join(rerr, c.Close())
				}()
			}
			return err
		}
		l, err := lc.Listen(ctx, network, target)
		if err == nil {
			go func() {
				c, aerr := l.Accept()
				if aerr == nil {
					buf := make([]byte, 2048)
					var n int
					if n, aerr = c.Read(buf); aerr == nil {
						_, aerr = c.Write(buf[:n])
					}
					aerr = errors.Join(aerr, c.Close())
				}
				served <- errors.Join(aerr, l.Close())
			}()
		}
		return err
	})
	in(t, client, func() error {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, target)
		if err != nil {
			return err
		}
		defer c.Close()
		if err = c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err = c.Write([]byte("ping")); err != nil {
			return err
		}
		buf := make([]byte, 16)
		n, err := c.Read(buf)
		if err == nil && string(buf[:n]) != "ping" {
			err = fmt.Errorf("%s %s: read %q", network, target, buf[:n])
		}
		return err
	})
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// receiveQueue is the NAPI id of a connection on which something has come, at the address of the second
// namespace; 0 where the kernel does not know which queue to look at.
func receiveQueue(t *testing.T, from, to string, addr netip.Addr) (id int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var l net.Listener
	in(t, to, func() (err error) {
		l, err = new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(addr, 7009).String())
		return err
	})
	defer l.Close()
	in(t, from, func() error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
		if err == nil {
			_, err = c.Write([]byte("ping"))
			defer c.Close()
		}
		return err
	})
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		_, err = c.Read(make([]byte, 4))
	}
	if err == nil {
		cerr := raw.Control(func(fd uintptr) {
			id, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_INCOMING_NAPI_ID)
		})
		err = errors.Join(err, cerr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// frames are what stream needs on a wire with an MTU of 1,500 bytes.
const frames = 2000

// stream sends so many bytes by TCP from a namespace to the address of another one, and returns how many
// packets IP got there.
func stream(t *testing.T, from, to string, addr netip.Addr) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	before := received(t, to, addr)
	target := netip.AddrPortFrom(addr, 7008).String()
	got := make(chan int64, 1)
	in(t, to, func() error {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", target)
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { _ = l.Close() })
		go func() {
			var n int64
			if c, aerr := l.Accept(); aerr == nil {
				n, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
			got <- n
		}()
		return nil
	})
	sent := frames * 1440
	in(t, from, func() error {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", target)
		if err != nil {
			return err
		}
		_, err = c.Write(make([]byte, sent))
		return errors.Join(err, c.Close())
	})
	if n := <-got; n != int64(sent) {
		t.Fatalf("%d of %d bytes came to %s", n, sent, addr)
	}
	return received(t, to, addr) - before
}

// received is how many packets IP of that family got in a namespace.
func received(t *testing.T, netns string, family netip.Addr) int {
	t.Helper()
	file, field := "snmp", regexp.MustCompile(`(?m)^Ip: \d+ \d+ (\d+)`)
	if family.Is6() {
		file, field = "snmp6", regexp.MustCompile(`(?m)^Ip6InReceives\s+(\d+)`)
	}
	var n int
	in(t, netns, func() error {
		data, err := os.ReadFile("/proc/thread-self/net/" + file)
		if err != nil {
			return err
		}
		m := field.FindSubmatch(data)
		if m == nil {
			return fmt.Errorf("no packets in %s", data)
		}
		n, err = strconv.Atoi(string(m[1]))
		return err
	})
	return n
}

// limited sends by TCP for a second from a namespace, and checks what comes to the address of another one: not more
// than the rate with what a queue lets through at once, and at least half of it. The rate is a hundredth of what
// these paths carry on the slowest machine that was seen, so it is the limit and not the machine that is measured.
func limited(t *testing.T, from, to string, addr netip.Addr, rate quantity.BitRate) {
	t.Helper()
	target := netip.AddrPortFrom(addr, 7009).String()
	got := make(chan float64, 1)
	in(t, to, func() error {
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", target)
		if err != nil {
			return err
		}
		go func() {
			defer l.Close()
			c, err := l.Accept()
			if err != nil {
				got <- 0
				return
			}
			begin := time.Now()
			n, _ := io.Copy(io.Discard, c)
			got <- 8 * float64(n) / time.Since(begin).Seconds()
		}()
		return nil
	})
	in(t, from, func() error {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", target)
		if err != nil {
			return err
		}
		if err = c.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		_, err = io.Copy(c, neverEnding{})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
		return errors.Join(err, c.Close())
	})
	if ratio := <-got / float64(rate); ratio < 0.5 || ratio > 1.1 {
		t.Errorf("%s sends %.2f times its rate", from, ratio)
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

// unreachable checks that a namespace leads nowhere else.
func unreachable(t *testing.T, netns string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", "-n", netns, "route", "show", "default").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("default route: %q, %v", out, err)
	}
}

// The steps of lanes' paths are taken back wherever a crash has cut them off, and the uplink is as before.
func TestLanesAreTakenBack(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	const uplink = "islt-upl"
	ip := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("ip %s: %s", strings.Join(args, " "), out)
		}
		return string(out)
	}
	ip("link", "add", uplink, "type", "veth", "peer", "name", "islt-wire")
	defer ip("link", "del", uplink)
	ip("link", "set", uplink, "up", "mtu", "9000")
	before := ip("-d", "-o", "link", "show", uplink)
	for _, p := range []netpath.Path{bridge.Path{}, macvlan.Path{}, express.Path{}} {
		var lanes []netpath.Lane
		for i, name := range []string{"islt-a", "islt-with-a-long-name"} {
			address := lane.Address{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 9, byte(1 + i)}), 24)}
			lanes = append(lanes, netpath.Of(fstest.MapFS{}, name, lane.Network{Device: uplink, Rate: 2e9, Addresses: []lane.Address{address}}))
		}
		steps, err := p.Steps(lanes)
		if err != nil || lanes[0].MAC == lanes[1].MAC {
			t.Fatal(lanes, err)
		}
		for made := range len(steps) + 1 {
			dir := filepath.Join(t.TempDir(), "run")
			j, err := journal.Open(dir, "test", ops())
			if err != nil {
				t.Fatal(err)
			}
			if _, err = j.Apply(t.Context(), steps[:made]); err != nil {
				t.Error(err)
			}
			if err = errors.Join(p.Possible(lanes[0]), p.Possible(lanes[1])); err != nil {
				t.Errorf("%s after %d steps: %v", p.Name(), made, err)
			}
			if made == len(steps) {
				if is := ip("-o", "-n", "isolane-islt-a", "link", "show", netpath.Device); !strings.Contains(is, " mtu 9000 ") {
					t.Errorf("%s: without an MTU of its own a lane has not that of the uplink: %s", p.Name(), is)
				}
				if port := netpath.Port(lanes[0].Name); present(port) { // as a crash leaves it that was to take it away with others
					ip("link", "set", port, "group", "1073741823")
				}
			}
			if err = j.Close(); err != nil {
				t.Error(err)
			}
			if _, _, err = journal.Recover(context.Background(), dir, ops()); err != nil {
				t.Error(err)
			}
			for _, l := range lanes {
				if present(l.Netns()) || present(netpath.Port(l.Name)) {
					t.Errorf("%s after %d steps: something of %s is left", p.Name(), made, l.Name)
				}
			}
			if after := ip("-d", "-o", "link", "show", uplink); after != before || present("islbr-"+uplink) {
				t.Fatalf("%s after %d steps: the uplink was\n%sand is\n%s", p.Name(), made, before, after)
			}
		}
	}
}

func TestDeviceOfSomebodyElseIsNotTaken(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	add := exec.CommandContext(t.Context(), "ip", "link", "add", "isl-test-w", "type", "bridge")
	if out, err := add.CombinedOutput(); err != nil {
		t.Skipf("skipped: this kernel has no bridges: %s", out)
	}
	defer func() {
		if out, err := exec.CommandContext(context.Background(), "ip", "link", "del", "isl-test-w").CombinedOutput(); err != nil {
			t.Errorf("their device is gone: %s", out)
		}
	}()
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
	if err != nil {
		t.Fatal(err)
	}
	steps, err := testWire().Steps(false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = j.Apply(t.Context(), steps); err == nil {
		t.Error("took over a device that it did not make")
	}
	if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
}

// A lane's tags are devices on its uplink, once for all lanes that have them; without 8021q they are refused.
func TestTags(t *testing.T) {
	var lanes []netpath.Lane
	for _, v := range []lane.VLAN{{}, {Outer: 100}, {Outer: 100, Inner: 7}, {Outer: 100}, {Outer: 100, Inner: 8}} {
		lanes = append(lanes, netpath.Of(fstest.MapFS{}, "a", lane.Network{Device: "eth1", VLAN: v}))
	}
	steps, err := netpath.Tags(nil, lanes)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		got = append(got, s.Target+" "+s.After)
	}
	want := []string{
		`islv-eth1.100 {"type":"vlan","parent":"eth1","tag":100}`,
		`islv-eth1.s100 {"type":"vlan","parent":"eth1","tag":100,"service":true}`,
		`islv-eth1.100.7 {"type":"vlan","parent":"islv-eth1.s100","tag":7}`,
		`islv-eth1.100.8 {"type":"vlan","parent":"islv-eth1.s100","tag":8}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if lanes[0].Uplink != "eth1" || lanes[1].Uplink != "islv-eth1.100" || lanes[2].Uplink != "islv-eth1.100.7" {
		t.Error(lanes)
	}
	release := &fstest.MapFile{Data: []byte("6.12.0\n")}
	without := fstest.MapFS{"proc/sys/kernel/osrelease": release}
	with := fstest.MapFS{"proc/sys/kernel/osrelease": release, "lib/modules/6.12.0/modules.dep": &fstest.MapFile{
		Data: []byte("kernel/net/8021q/8021q.ko.xz: kernel/net/802/garp.ko.xz\n")}}
	if err = netpath.PossibleTags(without, nil, lanes[1]); err == nil || !strings.Contains(err.Error(), "8021q is missing") {
		t.Error(err)
	}
	if err = errors.Join(netpath.PossibleTags(with, nil, lanes[1]), netpath.PossibleTags(without, nil, lanes[0])); err != nil {
		t.Error(err)
	}
}
