package netpath_test

import (
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
)

// Each CPU of a lane sends by a queue of its own, and what goes by one queue comes out of the same at the host's end.
func TestQueues(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2))
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
	if err != nil {
		t.Fatal(err)
	}
	l := netpath.Of(fstest.MapFS{}, "test-q", lane.Network{Path: "bridge-gro", Queues: 2,
		Addresses: []lane.Address{{Prefix: netip.MustParsePrefix("198.18.7.1/24")}}})
	l.CPUs = cpuset.Of(0, 1)
	steps, err := bridge.Path{GRO: true}.Steps([]netpath.Lane{l})
	if err == nil {
		_, err = j.Apply(t.Context(), steps)
	}
	defer func() {
		if uerr := errors.Join(j.Undo(t.Context()), j.Close()); uerr != nil {
			t.Error(uerr)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	for cpu := range 2 {
		count := byQueue(t, netpath.Port(l.Name), 2)
		in(t, l.Netns(), func() error { return datagrams(cpu, 100) })
		for queue, n := range count() {
			if (n >= 100) != (queue == cpu) { // the kernel sends some by itself
				t.Errorf("CPU %d: %d of 100 frames by queue %d", cpu, n, queue)
			}
		}
	}
	off := steps[len(steps)-1]
	if _, err = j.Set(t.Context(), journal.Step{Kind: off.Kind, Target: off.Target}); err != nil {
		t.Fatal(err)
	}
	if is, now, err := j.InForce(t.Context(), off); is || err != nil {
		t.Errorf("one queue again: found %q, %v", now, err)
	}
}

// datagrams sends some from one CPU, to nobody.
func datagrams(cpu, n int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
		return err
	}
	for range n {
		if err = unix.Sendto(fd, []byte("test"), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{198, 18, 7, 255}}); err != nil {
			return err
		}
	}
	return nil
}

// byQueue counts the frames that come from now on into a device of the host, by queue.
func byQueue(t *testing.T, device string, queues int) func() []uint32 {
	t.Helper()
	d, err := net.InterfaceByName(device)
	if err != nil {
		t.Fatal(err)
	}
	sockets := make([]int, queues)
	for i := range sockets {
		const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00 // in network order
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: d.Index})
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, unix.PACKET_FANOUT_QM<<16|d.Index&0xffff)
		}
		if err != nil {
			t.Fatal(err)
		}
		sockets[i] = fd
	}
	return func() (counts []uint32) {
		for _, fd := range sockets {
			s, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
			if err != nil {
				t.Fatal(err)
			}
			counts = append(counts, s.Packets)
			_ = unix.Close(fd)
		}
		return counts
	}
}
