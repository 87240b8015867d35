package netpath_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
)

// On the wire and in the lane are frames of the client and of the lane only: neither the bridge nor the host's
// ends of devices say anything, not even on a host that is a router (and so asks for groups of routers).
func TestBridgeIsSilent(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, p := range []measured{bridge.Path{}, express.Path{}} {
		t.Run(p.Name(), func(t *testing.T) {
			router(t)
			l, ends := segment(t, p)
			until := time.Now().Add(4 * time.Second) // what is said at first is said again within two
			for netns, fd := range ends {
				from := senders(t, fd, until)
				if from[l.MAC] == 0 || from[testWire().MAC] == 0 {
					t.Errorf("%s has not seen the lane or the client: %v", netns, from)
				}
				delete(from, l.MAC)
				delete(from, testWire().MAC)
				if len(from) > 0 {
					t.Errorf("%s has frames of %v", netns, from)
				}
			}
		})
	}
}

// Somebody outside sends from a lane's MAC address, or a card hands the lane's own broadcast back: what comes
// for the lane still comes to it.
func TestAddressStaysAtItsPort(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, p := range []measured{bridge.Path{}, bridge.Path{GRO: true}, express.Path{}} {
		t.Run(p.Name(), func(t *testing.T) {
			router(t)
			l, ends := segment(t, p)
			var index int
			in(t, testWire().Netns, func() error {
				d, err := net.InterfaceByName(netpath.Device)
				index = d.Index
				return err
			})
			send := func(from, to string) {
				var frame []byte
				for _, text := range []string{to, from} {
					mac, err := net.ParseMAC(text)
					if err != nil {
						t.Fatal(err)
					}
					frame = append(frame, mac...)
				}
				frame = append(frame, 0x88, 0xb5) // for experiments (IEEE 802): nobody answers
				err := unix.Sendto(ends[testWire().Netns], append(frame, make([]byte, 46)...), 0,
					&unix.SockaddrLinklayer{Ifindex: index})
				if err != nil {
					t.Fatal(err)
				}
			}
			const client = "02:15:07:00:00:09"
			senders(t, ends[l.Netns()], time.Now().Add(2*time.Second)) // what the lane says at first is over
			send(l.MAC, "ff:ff:ff:ff:ff:ff")
			send(client, l.MAC)
			if from := senders(t, ends[l.Netns()], time.Now().Add(500*time.Millisecond)); from[client] != 1 {
				t.Errorf("1 frame for the lane, came: %v", from)
			}
		})
	}
}

// segment puts a lane in force on the wire of tests, until the test ends, and opens sockets that have all
// frames of both ends from the beginning, by namespace.
func segment(t *testing.T, p measured) (l netpath.Lane, ends map[string]int) {
	t.Helper()
	if p.Name() == "express" {
		hosttest.Need(t, hosttest.BPF)
	}
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if uerr := errors.Join(j.Undo(context.Background()), j.Close()); uerr != nil {
			t.Error(uerr)
		}
	})
	wire := testWire()
	network := lane.Network{Path: p.Name(), Device: wire.Uplink}
	for _, a := range prefixes(addressesOf(2)) {
		network.Addresses = append(network.Addresses, lane.Address{Prefix: a})
	}
	l = netpath.Of(fstest.MapFS{}, "test-app", network)
	steps, err := wire.Steps(p.WireGRO())
	if err != nil {
		t.Fatal(err)
	}
	more, err := p.Steps([]netpath.Lane{l})
	if err != nil {
		t.Fatal(err)
	}
	named := []journal.Step{{Kind: netdev.KindNamespace, Target: wire.Netns, After: netdev.Present},
		{Kind: netdev.KindNamespace, Target: l.Netns(), After: netdev.Present}}
	if _, err = j.Apply(t.Context(), named); err != nil {
		t.Fatal(err)
	}
	ends = map[string]int{wire.Netns: everything(t, wire.Netns), l.Netns(): everything(t, l.Netns())}
	if _, err = j.Apply(t.Context(), append(steps, more...)); err != nil {
		t.Fatal(err)
	}
	return l, ends
}

// alone has the test run in a network namespace of its own.
func alone(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

// router has the test run in one whose devices forward, as those of a router do.
func router(t *testing.T) {
	t.Helper()
	alone(t)
	for _, name := range []string{"ipv6/conf/all/forwarding", "ipv4/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// everything opens a packet socket that gets the frames of all devices of a namespace.
func everything(t *testing.T, netns string) (fd int) {
	t.Helper()
	in(t, netns, func() (err error) {
		all := uint16(unix.ETH_P_ALL)
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all<<8|all>>8))
		return err
	})
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// senders counts the frames of each sender, without those of the loopback.
func senders(t *testing.T, fd int, until time.Time) map[string]int {
	t.Helper()
	from, frame := map[string]int{}, make([]byte, 10000)
	for {
		wait := unix.NsecToTimeval(max(time.Until(until), time.Millisecond).Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
			t.Fatal(err)
		}
		n, err := unix.Read(fd, frame)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return from // after the time, what has come already has been read
		}
		if mac := net.HardwareAddr(frame[6:12]).String(); n >= 14 && mac != "00:00:00:00:00:00" {
			from[mac]++
		}
	}
}
