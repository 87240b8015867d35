package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
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

// The test starts itself in a namespace to be a router, or to ask one for the server: the resolver of Go asks
// from other threads than that which is in there.
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

// town makes a network outside, and routers 1 and 2 with a customer each behind them, who has the other end of
// the router's device. The namespaces are isolane-town, -router-N and -customer-N.
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
	}
}

func router(t *testing.T, n int, settings string) {
	t.Helper()
	cmd := play(t, fmt.Sprintf("isolane-router-%d", n), "router "+t.TempDir()+" "+settings)
	said, err := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // dnsmasq goes with it
		_ = cmd.Wait()
	})
	line := make([]byte, 64)
	if got, err := said.Read(line); err != nil || !strings.HasPrefix(string(line[:got]), webserver.Ready) {
		t.Fatalf("router %d: %q, %v", n, line[:got], err)
	}
}

// customer gets an address, and then does something there.
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

// frame is one of UDP from a MAC address and an IPv4 address, to those of others, with a tag in it.
func frame(from, to net.HardwareAddr, source, destination netip.Addr, tag string) []byte {
	f := append(append(append([]byte{}, to...), from...), 8, 0)
	size := 28 + len(tag)
	s, d := source.As4(), destination.As4()
	header := append(append([]byte{0x45, 0, byte(size >> 8), byte(size), 0, 0, 0, 0, 64, 17, 0, 0}, s[:]...), d[:]...)
	var check uint32
	for i := 0; i < len(header); i += 2 {
		check += uint32(header[i])<<8 | uint32(header[i+1])
	}
	check = ^(check>>16 + check&0xffff)
	header[10], header[11] = byte(check>>8), byte(check)
	udp := []byte{0x1b, 0x61, 0, 9, 0, byte(8 + len(tag)), 0, 0} // from port 7009 to that which discards
	return append(append(append(f, header...), udp...), tag...)
}

// send sends frames as they are.
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

// listens counts the frames with a tag at a device of a namespace until it is asked.
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
			if bytes.Contains(in[:got], []byte(tag)) && in[23] == unix.IPPROTO_UDP { // ICMP quotes what it is about
				n++
			}
		}
	}
}

// What a customer sends in a flood, with addresses of others and to all, leaves by its own router with the
// router's address, or not at all, and nothing of it comes to the other customer.
func TestIsolation(t *testing.T) {
	town(t)
	router(t, 1, `{"shape":"1Gbit/s"}`)
	router(t, 2, "{}")
	const tag, flood = "from customer 1", 2000
	outside := listens(t, "isolane-town", "br0", tag)
	sent := listens(t, "isolane-router-1", "eth1", tag)
	other, wan := listens(t, "isolane-customer-2", uplink, tag), listens(t, "isolane-router-2", "eth1", tag)
	customer(t, 2, func(device netlink.Link, got leased) error {
		if got.router != own() || !inside().Contains(got.address) {
			t.Errorf("leased %v", got)
		}
		watch, err := watchStrays(device.Attrs(), got)
		if err != nil {
			return err
		}
		defer watch.close()
		customer(t, 1, func(device netlink.Link, self leased) error {
			mac, err := macOf(device.Attrs().Index, own())
			if err != nil {
				return err
			}
			me, all := device.Attrs().HardwareAddr, net.HardwareAddr{255, 255, 255, 255, 255, 255}
			a := netip.MustParseAddr
			var frames [][]byte
			for range flood {
				frames = append(frames,
					frame(me, mac, self.address, a(outsideAt), tag),           // as it should be
					frame(me, mac, a("10.9.9.9"), a(outsideAt), tag),          // from nobody's address
					frame(me, mac, a("198.18.5.3"), a(outsideAt), tag),        // from router 2's
					frame(me, mac, self.address, got.address, tag),            // to the other customer, who has the same address
					frame(me, mac, self.address, a("198.18.5.3"), tag),        // to router 2
					frame(me, all, a("192.168.1.1"), a("192.168.1.255"), tag), // as its own router, to all
					frame(mac, all, self.address, a("255.255.255.255"), tag))
			}
			return send(device, frames...)
		})
		<-time.After(200 * time.Millisecond) // what is under way
		if n, first, err := watch.count(); n != 0 || err != nil {
			t.Errorf("%d frames of others at customer 2, the first %s, %v", n, first, err)
		}
		return nil
	})
	if n := other(); n != 0 {
		t.Errorf("%d frames of customer 1 at customer 2", n)
	}
	if n := wan(); n != 0 {
		t.Errorf("%d frames of customer 1 behind router 2", n)
	}
	if n := sent(); n != 7*flood {
		t.Errorf("router 1 got %d of %d frames: nothing is shown", n, 7*flood)
	}
	if n := outside(); n != flood {
		t.Errorf("%d frames left, expected %d: those with the customer's own address to the server", n, flood)
	}
}

// Frames of somebody else that do come to a customer are counted; its own, and its router's, are not.
func TestStrays(t *testing.T) {
	town(t)
	router(t, 1, "{}")
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
			return send(from, frame(stranger, me, own(), got.address, "a"), frame(mac, me, own(), got.address.Next(), "b"),
				frame(mac, me, own(), got.address, "not astray"))
		}); err != nil {
			return err
		}
		n, first, err = watch.count()
		if n != 2 || !strings.Contains(first, "020909090909") || err != nil {
			t.Errorf("%d frames of others, the first %q, %v; expected 2", n, first, err)
		}
		return nil
	})
}

// A router whose uplink or device to the customer is missing, or whose customer hears nothing, says so.
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
