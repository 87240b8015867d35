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
	"slices"
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
	"isolane.dev/isolane/netpath/ovs"
	"isolane.dev/isolane/netpath/sriov"
	"isolane.dev/isolane/netpath/vpp"
	"isolane.dev/isolane/quantity"
)

// measured is a path that measurements take.
type measured interface {
	netpath.Path
	WireGRO() bool
}

func ops() map[string]journal.Op {
	all := change.Ops("/")
	for _, more := range []map[string]journal.Op{express.Ops(), ovs.Ops(), sriov.Ops(), vpp.Ops()} {
		maps.Copy(all, more)
	}
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

// The steps of lanes' paths are taken back wherever a crash has cut them off, between two or within one, and the
// uplink is as before, and a switch.
func TestLanesAreTakenBack(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	none := func(*testing.T) switched { return switched{} }
	two := lane.VLAN{Outer: 100, Inner: 7}
	for _, c := range []struct {
		name string
		netpath.Path
		vlan  lane.VLAN
		begin func(*testing.T) switched
	}{
		{"bridge", bridge.Path{}, lane.VLAN{}, none},
		{"macvlan", macvlan.Path{}, lane.VLAN{}, none},
		{"express", express.Path{}, lane.VLAN{}, none},
		{"ovs", ovs.Path{}, lane.VLAN{}, openVSwitch},
		{"ovs with two tags", ovs.Path{}, two, openVSwitch},
		{"ovs-dpdk", ovs.Path{DPDK: true}, lane.VLAN{Outer: 100}, openVSwitchDPDK},
		{"vpp", vpp.Path{}, lane.VLAN{Outer: 100}, standInVPP},
		{"vpp with a card", vpp.Path{}, lane.VLAN{}, standInVPP},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := cut{Path: c.Path, uplink: "islt-upl", vlan: c.vlan}
			if c.name == "vpp with a card" {
				b.uplink = vppCard
				b.run(t, c.begin(t))
				return
			}
			command(t, "ip", "link", "add", b.uplink, "type", "veth", "peer", "name", "islt-wire")
			defer command(t, "ip", "link", "del", b.uplink)
			command(t, "ip", "link", "set", b.uplink, "up", "mtu", "9000")
			b.run(t, c.begin(t))
		})
	}
	t.Run("sriov", func(t *testing.T) {
		b := cut{Path: sriov.Path{}, uplink: os.Getenv("ISOLANE_TEST_CARD")}
		if b.uplink == "" {
			t.Skip("skipped: needs a card with virtual functions (ISOLANE_TEST_CARD), as in the lab")
		}
		address, err := filepath.EvalSymlinks("/sys/class/net/" + b.uplink + "/device")
		if err != nil {
			t.Fatal(err)
		}
		b.functions = func(i int) netpath.PlacedFunctions {
			return netpath.PlacedFunctions{Card: filepath.Base(address), Numbers: []int{i}, Pool: 2}
		}
		b.run(t, switched{shown: func() string {
			// Its link goes down and comes again with functions that come or go.
			for begun := time.Now(); time.Since(begun) < 20*time.Second; <-time.After(10 * time.Millisecond) {
				if is, _ := os.ReadFile("/sys/class/net/" + b.uplink + "/carrier"); string(is) == "1\n" {
					break
				}
			}
			return command(t, "cat", address+"/sriov_numvfs")
		}})
	})
}

// command runs one, and fails with what it says.
func command(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", argv, err, out)
	}
	return string(out)
}

// cut puts two lanes in force by a path and is cut off on the way.
type cut struct {
	netpath.Path
	uplink    string
	vlan      lane.VLAN
	functions func(i int) netpath.PlacedFunctions // of a lane by its number, where the path needs some
}

func (c cut) networks() (lanes map[string]lane.Network) {
	lanes = map[string]lane.Network{}
	for i, name := range []string{"islt-a", "islt-with-a-long-name"} {
		n := lane.Network{Path: c.Name(), Device: c.uplink, VLAN: c.vlan, Rate: 2e9, Addresses: []lane.Address{
			{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 9, byte(1 + i)}), 24)}}}
		switch c.Name() {
		case "ovs-dpdk":
			n.Rate = 0
		case "sriov":
			n.Rate, n.VF.Trust = 5e8, true // below its link's
		}
		lanes[name] = n
	}
	return lanes
}

func (c cut) run(t *testing.T, with switched) {
	t.Helper()
	shown := func() (text string) {
		if with.shown != nil {
			text = with.shown()
		}
		text += command(t, "ip", "netns") + command(t, "ls", "/sys/class/net") + besides(t)
		if present(c.uplink) {
			text += command(t, "ip", "-d", "-o", "link", "show", c.uplink) + command(t, "bridge", "fdb", "show", "dev", c.uplink)
		}
		return text
	}
	before := shown()
	all := c.networks()
	functions := map[string]netpath.PlacedFunctions{}
	var lanes []netpath.Lane
	for i, name := range slices.Sorted(maps.Keys(all)) {
		l := netpath.Of(fstest.MapFS{}, name, all[name])
		if c.functions != nil {
			functions[name] = c.functions(i)
			l.Functions = functions[name]
		}
		lanes = append(lanes, l)
	}
	steps, err := c.Steps(lanes)
	if err != nil || lanes[0].MAC == lanes[1].MAC {
		t.Fatal(lanes, err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	back := func(where string) {
		t.Helper()
		if _, _, err = journal.Recover(context.Background(), dir, ops()); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		if after := settled(before, shown); after != before {
			t.Fatalf("%s: the host was\n%sand is\n%s", where, before, after)
		}
	}
	for made := range len(steps) + 1 {
		j, err := journal.Open(dir, "test", ops())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = j.Apply(t.Context(), steps[:made]); err != nil {
			t.Error(err)
		}
		if err = errors.Join(c.Possible(lanes[0]), c.Possible(lanes[1])); err != nil {
			t.Errorf("after %d steps: %v", made, err)
		}
		if made == len(steps) {
			c.whole(t, lanes[0])
		}
		if err = j.Close(); err != nil {
			t.Error(err)
		}
		back(fmt.Sprintf("after %d steps", made))
	}
	w := wanted{dir, all, functions}
	if len(with.tools) > 0 {
		c.within(t, fmt.Sprint(with.tools), byTools(t, with.tools), phase(*everyChange), *everyChange, w, back)
		return
	}
	t.Run("within steps", func(t *testing.T) { c.within(t, "system calls", byCalls(t), phase(*every), *every, w, back) })
}

// whole looks at a lane that is in force.
func (c cut) whole(t *testing.T, l netpath.Lane) {
	t.Helper()
	if c.Name() == "ovs-dpdk" {
		return // it has no device
	}
	want := " mtu 9000 "
	if c.Name() == "ovs" || c.Name() == "vpp" || c.Name() == "sriov" {
		want = " mtu 1500 "
	}
	if is := command(t, "ip", "-o", "-n", l.Netns(), "link", "show", netpath.Device); !strings.Contains(is, want) {
		t.Errorf("without an MTU of its own a lane has not%s: %s", want, is)
	}
	if is := besides(t); c.Name() == "express" && (!strings.Contains(is, "filter protocol all") || !strings.Contains(is, "qdisc clsact")) {
		t.Errorf("what express has in the kernel is not seen: %s", is)
	}
	if port := netpath.Port(l.Name); present(port) { // as a crash leaves it that was to take it away with others
		command(t, "ip", "link", "set", port, "group", "1073741823")
	}
}

// within kills programs that put lanes in force, change them and take them back, with changes that they make: from that
// number on each of so many, which kinds of change is for what is said.
func (c cut) within(t *testing.T, kinds string, kill killer, first, each int, w wanted, back func(where string)) {
	t.Helper()
	other := wanted{w.Dir, map[string]lane.Network{}, w.Functions}
	for name, n := range w.Lanes {
		if c.Name() == "bridge" || c.Name() == "macvlan" || c.Name() == "express" {
			n.MTU = 1400
		} else { // which put tags on themselves
			n.VLAN.Outer += 7
		}
		other.Lanes[name] = n
	}
	inForce := func(w wanted, where string) {
		t.Helper()
		if missing, err := w.reconcile(t.Context()); err != nil || len(missing) > 0 {
			t.Fatalf("%s: %v, not in force: %v", where, err, missing)
		}
	}
	none := wanted{Dir: w.Dir}
	for _, way := range []struct {
		name     string
		from, to wanted
	}{{"put in force", none, w}, {"changed", w, other}, {"released", w, none}} {
		kills := 0
		for at, killed := first, true; killed; at += each {
			where := fmt.Sprintf("%s, killed at change %d by %s", way.name, at, kinds)
			inForce(way.from, where)
			if killed = kill(at, way.to); killed {
				kills++
			}
			if way.name == "changed" {
				inForce(way.to, where)
			}
			back(where)
		}
		t.Logf("%s: killed %d times", way.name, kills)
		if kills == 0 || each == 1 && kills < 2 {
			t.Errorf("%s: %d kills with changes by %s", way.name, kills, kinds)
		}
	}
}

// replaced puts a program in the place of a tool. The one that makes the change of the number in a file kills who called
// it, once it has made it. What only reads is not counted.
func replaced(t *testing.T, dir, tool, number, limit string) {
	t.Helper()
	real, err := exec.LookPath(tool)
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`#!/bin/bash
[ -e %s ] || exec -a %s %s "$@"
case " $* " in *" --format=json "*|*dump-*|*" version "*|*" show "*) exec -a %[2]s %[3]s "$@";; esac
(exec -a %[2]s %[3]s "$@")
code=$?
n=$(($(cat %[4]s) + 1))
echo $n > %[4]s
[ $n = $(cat %[1]s) ] && kill -9 $PPID
exit $code
`, limit, tool, real, number)
	if err = os.WriteFile(filepath.Join(dir, tool), []byte(script), 0o700); err != nil {
		t.Fatal(err)
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
