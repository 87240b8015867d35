package router

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/webserver"
)

// The test starts itself in a namespace to be a router, or to ask one for the server: Go's resolver would ask
// from threads outside of the namespace.
func TestMain(m *testing.M) {
	var err error
	switch words := strings.Fields(os.Getenv(rolePlayed)); {
	case len(words) == 0:
		hosttest.Main(m)
	case words[0] == "router":
		var p probe.Probe
		if p, err = (Driver{}).Read([]byte(words[2])); err == nil {
			err = p.(Probe).Serve(context.Background(), probe.Conditions{Dir: words[1],
				Address: netip.MustParseAddrPort(outsideAt + ":0")}, os.Stdout)
		}
	default:
		err = resolves(context.Background(), netip.MustParseAddr(outsideAt))
	}
	if err != nil {
		panic(err) // who has started it sees that
	}
}

const rolePlayed = "ISOLANE_ROUTER_TEST"

// play starts this program in a namespace.
func play(t *testing.T, ns, role string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ip", "netns", "exec", ns, self)
	cmd.Env = append(os.Environ(), rolePlayed+"="+role)
	return cmd
}

const outsideAt = "198.18.5.1"

// town makes a network outside, and routers 1 and 2, each with a customer who has the other end of the
// router's device. The namespaces are isolane-town, -router-N and -customer-N.
func town(t *testing.T) {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.Program("ip"), hosttest.Program(nft), hosttest.Program(dnsmasq))
	ip := func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %s", line, out)
		}
	}
	add := func(ns string) {
		ip("netns add %s", ns)
		t.Cleanup(func() { ip("netns del %s", ns) })
	}
	add("isolane-town")
	ip("-n isolane-town link add br0 type bridge")
	ip("-n isolane-town addr add %s/24 dev br0", outsideAt)
	ip("-n isolane-town link set br0 up")
	for n := 1; n <= 2; n++ {
		r, c := fmt.Sprintf("isolane-router-%d", n), fmt.Sprintf("isolane-customer-%d", n)
		add(r)
		add(c)
		ip("-n isolane-town link add p%d type veth peer name eth0 netns %s", n, r)
		ip("-n isolane-town link set p%d master br0 up", n)
		ip("-n %s addr add 198.18.5.%d/24 dev eth0", r, n+1)
		ip("-n %s link add eth1 type veth peer name eth0 netns %s", r, c)
		for _, device := range []string{"lo", "eth0", "eth1"} {
			ip("-n %s link set %s up", r, device)
		}
		ip("-n %s link set eth0 up", c)
		for netns, device := range map[string]string{"isolane-town": "br0", c: "eth0"} { // checksums as on a wire
			if _, err := netdev.Offload(netns, device, unix.ETHTOOL_STXCSUM, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// starter starts router n, whose customer gets no more than shape ("": no limit). A second one finds the files of the first.
type starter func(n int, shape string) (dir string, kill func())

// each runs a test with routers of each kind.
func each(t *testing.T, test func(t *testing.T, forwarding string, start starter)) {
	t.Helper()
	for _, forwarding := range []string{kernel, pollMode} {
		t.Run(forwarding, func(t *testing.T) {
			if forwarding == pollMode {
				hosttest.OpenVSwitch(t, "../../bin/programs/usr")
			}
			town(t)
			dir := t.TempDir()
			test(t, forwarding, func(n int, shape string) (string, func()) {
				own := filepath.Join(dir, strconv.Itoa(n))
				if err := os.MkdirAll(own, 0o700); err != nil {
					t.Fatal(err)
				}
				settings := map[string]string{"forwarding": forwarding}
				if shape != "" {
					settings["shape"] = shape
				}
				text, err := json.Marshal(settings)
				if err != nil {
					t.Fatal(err)
				}
				return own, router(t, n, own+" "+string(text))
			})
		})
	}
}

// router starts router n with a folder and settings.
func router(t *testing.T, n int, words string) (kill func()) {
	t.Helper()
	cmd := play(t, fmt.Sprintf("isolane-router-%d", n), "router "+words)
	said, err := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill() // dnsmasq ends with it
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	line := make([]byte, 64)
	if got, err := said.Read(line); err != nil || !strings.HasPrefix(string(line[:got]), webserver.Ready) {
		t.Fatalf("router %d: %q, %v", n, line[:got], err)
	}
	return kill
}

// customer gets an address for a customer, and then calls do there.
func customer(t *testing.T, n int, do func(netlink.Link, leased) error) {
	t.Helper()
	err := netdev.In(fmt.Sprintf("isolane-customer-%d", n), func() error {
		device, err := netlink.LinkByName(uplink)
		if err != nil {
			return err
		}
		got, err := ask(device.Attrs())
		if err == nil {
			err = got.use(device)
		}
		if err != nil {
			return err
		}
		if out, err := play(t, fmt.Sprintf("isolane-customer-%d", n), "resolves").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return do(device, got)
	})
	if err != nil {
		t.Errorf("customer %d: %v", n, err)
	}
}

// send sends frames unchanged.
func send(device netlink.Link, frames ...[]byte) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, f := range frames {
		for err = unix.ENOBUFS; err == unix.ENOBUFS; {
			err = unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: device.Attrs().Index})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// listens counts the frames with a tag at a device of a namespace, until it is asked.
func listens(t *testing.T, ns, device, tag string) (count func() int) {
	t.Helper()
	var fd int
	err := netdev.In(ns, func() error {
		l, err := netlink.LinkByName(device)
		if err == nil {
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0x0300) // ETH_P_ALL in network order
		}
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: l.Attrs().Index})
		}
		return errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() (n int) {
		defer unix.Close(fd)
		in := make([]byte, 2048)
		for {
			got, _, err := unix.Recvfrom(fd, in, unix.MSG_DONTWAIT)
			if err != nil {
				return n
			}
			// ICMP quotes what it is about
			if bytes.Contains(in[:got], []byte(tag)) && (in[23] == unix.IPPROTO_UDP || in[12] == 0x86) {
				n++
			}
		}
	}
}

// What an attacker sends, even from addresses of others and to everybody, leaves through its own router with
// the router's address, or not at all, and nothing of it reaches the other customer.
func TestAttacks(t *testing.T) {
	each(t, func(t *testing.T, forwarding string, start starter) {
		t.Helper()
		start(1, "1Gbit/s")
		start(2, "")
		for _, c := range []struct {
			attack attack
			leave  func(sent, out, other int) bool
		}{
			{flood, func(sent, out, other int) bool { return out == sent && other == 0 }},
			{spoof, func(sent, out, other int) bool { return out+other == 0 }},
			{scan, func(sent, out, other int) bool { // of the kernel to router 2, too; one that polls sends all to the server
				return out > 0 && out < sent && (other > 0) == (forwarding == kernel)
			}},
		} {
			attacked := func() (all, out, other int) {
				outside, sent := listens(t, "isolane-town", "p1", mark), listens(t, "isolane-customer-1", uplink, mark)
				behind, wan := listens(t, "isolane-customer-2", uplink, mark), listens(t, "isolane-router-2", "eth0", mark)
				customer(t, 2, func(device netlink.Link, got leased) error {
					if got.router != own() || !inside().Contains(got.address) {
						t.Errorf("leased %v", got)
					}
					watch, err := watchStrays(device.Attrs(), got)
					if err != nil {
						return err
					}
					defer watch.close()
					var fact string
					customer(t, 1, func(device netlink.Link, self leased) error {
						m, err := c.attack.run(t.Context(), probe.Conditions{Warmup: 1e8, Window: 2e8,
							Address: netip.MustParseAddrPort(outsideAt + ":80")}, device.Attrs(), self)
						fact = m.Facts["attack"]
						return err
					})
					<-time.After(200 * time.Millisecond) // what is under way
					if n, first, err := watch.count(); n != 0 || err != nil {
						t.Errorf("%s: %d frames of others at customer 2, the first %s, %v", c.attack, n, first, err)
					}
					all, out, other = sent(), outside(), wan()
					if want := fmt.Sprintf("%s by the last customer: %d frames", c.attack, all); all == 0 || !strings.HasPrefix(fact, want+" of 6000 at 20000 a second;") {
						t.Errorf("%d frames of customer 1: %s", all, fact)
					}
					if n := behind(); n != 0 {
						t.Errorf("%s: of %d frames %d came to the customer of router 2", c.attack, all, n)
					}
					return nil
				})
				return all, out, other
			}
			all, out, other := attacked()
			for tries := 0; c.attack == flood && out < all && tries < 5; tries++ { // on a busy machine some find no room on their way
				all, out, other = attacked()
			}
			if !c.leave(all, out, other) {
				t.Errorf("%s: of %d frames %d left, and %d came to router 2", c.attack, all, out, other)
			}
		}
	})
}

// A customer gets no more than the shape permits, except for the burst that an HTB class permits.
func TestShape(t *testing.T) {
	each(t, func(t *testing.T, forwarding string, start starter) {
		t.Helper()
		const size = 1 << 20
		start(1, "20Mbit/s")
		var from net.Listener
		if err := netdev.In("isolane-town", func() (err error) {
			from, err = net.Listen("tcp4", outsideAt+":0")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		go func() {
			c, err := from.Accept()
			if err == nil {
				_, err = c.Write(make([]byte, size))
				err = errors.Join(err, c.Close())
			}
			if err != nil {
				t.Error(err)
			}
		}()
		customer(t, 1, func(netlink.Link, leased) error {
			begin := time.Now()
			c, err := net.Dial("tcp4", from.Addr().String())
			if err != nil {
				return err
			}
			defer c.Close()
			n, err := io.Copy(io.Discard, c)
			if took := time.Since(begin); n != size || took < 300*time.Millisecond { // without: 1 ms
				t.Errorf("%d bytes in %s: 20 Mbit/s take 0.42 s", n, took)
			}
			return err
		})
	})
}

// Stray frames that reach a customer are counted; the customer's own, and its router's, are not.
func TestStrays(t *testing.T) {
	each(t, func(t *testing.T, forwarding string, start starter) {
		t.Helper()
		start(1, "")
		customer(t, 1, func(device netlink.Link, got leased) error {
			watch, err := watchStrays(device.Attrs(), got)
			if err != nil {
				return err
			}
			defer watch.close()
			out, err := play(t, "isolane-customer-1", "resolves").CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			n, first, err := watch.count()
			if n != 0 || err != nil {
				t.Errorf("%d frames of others, the first %s, %v", n, first, err)
			}
			me := device.Attrs().HardwareAddr
			if err = netdev.In("isolane-router-1", func() error {
				from, ferr := netlink.LinkByName(probe.Behind)
				if ferr != nil {
					return ferr
				}
				mac := from.Attrs().HardwareAddr
				stranger := net.HardwareAddr{2, 9, 9, 9, 9, 9}
				return send(from, frame(stranger, me, own(), got.address, discard, "a"), frame(mac, me, own(), got.address.Next(), discard, "b"),
					frame(mac, me, own(), got.address, discard, mark),
					frame(mac, me, own(), got.address, discard, "not astray"))
			}); err != nil {
				return err
			}
			n, first, err = allStrays(watch, 3)
			if n != 3 || !strings.Contains(first, "020909090909") || err != nil {
				t.Errorf("%d frames of others, the first %q, %v; expected 3", n, first, err)
			}
			return nil
		})
	})
}

// allStrays counts the frames of others, until so many have come: on a busy machine they may be on their way for a while.
func allStrays(watch stray, want uint64) (n uint64, first string, err error) {
	for end := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(end); <-time.After(time.Millisecond) {
		more, frame, cerr := watch.count()
		if n, err = n+more, cerr; first == "" {
			first = frame
		}
		if n >= want {
			break
		}
	}
	return n, first, err
}

// So are stray IPv6 frames: a router advertisement, another customer's search for neighbours, and anything
// that is not such traffic of its own router.
func TestStraysIPv6(t *testing.T) {
	town(t)
	router(t, 1, t.TempDir()+" {}")
	customer(t, 1, func(device netlink.Link, got leased) error {
		router, err := macOf(device.Attrs().Index, got.router)
		if err != nil {
			return err
		}
		stranger := net.HardwareAddr{2, 9, 9, 9, 9, 9}
		search := []byte{135, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1} // RFC 4861, 4.3
		udp := frame6(router, make([]byte, 12))
		udp[20] = unix.IPPROTO_UDP
		group := frame6(router, make([]byte, 36))
		group[20] = unix.IPPROTO_HOPOPTS
		for name, c := range map[string]struct {
			frame []byte
			want  uint64
		}{
			"a router that is another one's": {frame6(stranger, advertisement()), 1},
			"a search by a stranger":         {frame6(stranger, search), 1},
			"a search by its router":         {frame6(router, search), 0},
			"a report of its router":         {group, 0},
			"UDP that its router lets by":    {udp, 1},
			"a stranger's, cut short":        {frame6(stranger, search)[:14], 1},
		} {
			watch, err := watchStrays(device.Attrs(), got)
			if err != nil {
				return err
			}
			if err = netdev.In("isolane-router-1", func() error {
				from, ferr := netlink.LinkByName(probe.Behind)
				if ferr != nil {
					return ferr
				}
				return send(from, c.frame)
			}); err != nil {
				return err
			}
			if n, first, err := allStrays(watch, c.want); n != c.want || err != nil {
				t.Errorf("%s: %d frames of others, the first %q, %v", name, n, first, err)
			}
			watch.close()
		}
		return nil
	})
}

// The IPv6 checksum is correct: a host accepts the router of an advertisement.
func TestAdvertisement(t *testing.T) {
	town(t)
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		t.Skip("the kernel has no IPv6")
	}
	if err := netdev.In("isolane-router-1", func() error {
		from, err := netlink.LinkByName(probe.Behind)
		if err == nil {
			mac := from.Attrs().HardwareAddr
			for range 20 { // until the customer's own address is usable
				err = errors.Join(err, send(from, spoof.frame(6, nil, mac, own(), own())))
				<-time.After(200 * time.Millisecond)
				out, cerr := exec.Command("ip", "-n", "isolane-customer-1", "-6", "route", "show", "default").CombinedOutput()
				if err = errors.Join(err, cerr); strings.Contains(string(out), "via fe80::") || err != nil {
					return err
				}
			}
			t.Error("nobody took it for a router")
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// A router that is restarted after a kill has each rule once, knows nothing of earlier connections, and
// serves its customer again.
func TestRestart(t *testing.T) {
	each(t, func(t *testing.T, forwarding string, start starter) {
		t.Helper()
		dir, kill := start(1, "1Gbit/s")
		customer(t, 1, func(device netlink.Link, got leased) error {
			router, err := macOf(device.Attrs().Index, got.router)
			if err != nil {
				return err
			}
			return send(device, frame(device.Attrs().HardwareAddr, router, got.address, netip.MustParseAddr(outsideAt), discard, mark))
		})
		known := func() (n int) {
			if forwarding == pollMode {
				said, err := exec.Command("ovs-appctl", "--timeout=10", "--target="+dir+"/switch.ctl", "dpctl/dump-conntrack").Output()
				if err != nil {
					t.Fatal(err)
				}
				return strings.Count(string(said), "dst="+outsideAt)
			}
			if err := netdev.In("isolane-router-1", func() error {
				all, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
				for _, f := range all {
					if f.Forward.DstIP.String() == outsideAt {
						n++
					}
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if known() == 0 {
			t.Error("it knows of no connection")
		}
		kill()
		if out, err := exec.Command("ip", "-n", "isolane-router-1", "link", "set", "eth1", "down").CombinedOutput(); err != nil {
			t.Fatalf("%s", out)
		}
		start(1, "1Gbit/s")
		out, err := exec.Command("ip", "netns", "exec", "isolane-router-1", nft, "list", "ruleset").CombinedOutput()
		if n := strings.Count(string(out), "masquerade"); err != nil || n != 1 {
			t.Errorf("%d times masquerade, %v: %s", n, err, out)
		}
		if n := known(); n > 0 {
			t.Errorf("it knows of %d connections", n)
		}
		customer(t, 1, func(netlink.Link, leased) error { return nil })
	})
}

// A router without its uplink or its device to the customer, or whose customer hears nothing, says so.
func TestMissing(t *testing.T) {
	town(t)
	err := netdev.In("isolane-customer-1", func() error {
		device, err := netlink.LinkByName(uplink)
		if err == nil {
			_, err = ask(device.Attrs())
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "the router did not answer within 5s") {
		t.Errorf("without a router: %v", err)
	}
	err = netdev.In("isolane-customer-1", func() error {
		return Probe{}.Serve(t.Context(), probe.Conditions{Dir: t.TempDir()}, io.Discard)
	})
	if err == nil || !strings.Contains(err.Error(), "eth1, the device to the customer") {
		t.Errorf("a router without a device to its customer: %v", err)
	}
}
