// Package echo measures round-trip times. It has the edge application, which sends back what it gets, and the
// client, which measures how long that takes.
//
// Both are written as one would in C: a locked thread, no garbage collection, no allocation per message, and
// system calls on plain descriptors rather than Go's network poller, whose timers have a resolution of a
// millisecond.
package echo

import (
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a plain file descriptor.
type socket int

func newSocket(addr netip.Addr, protocol string) (socket, error) {
	family, kind := unix.AF_INET6, unix.SOCK_STREAM
	if addr.Is4() {
		family = unix.AF_INET
	}
	if protocol == UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%s socket: %w", protocol, err)
	}
	return socket(fd), nil
}

func (s socket) close() { _ = unix.Close(int(s)) }

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// connect returns a socket that is connected to the application, also for UDP: then the kernel looks up the
// route only once, and reports a refused port.
func connect(a netip.AddrPort, protocol string) (socket, error) {
	s, err := newSocket(a.Addr(), protocol)
	if err != nil {
		return -1, err
	}
	if err = unix.Connect(int(s), sockaddr(a)); err == nil && protocol == TCP {
		err = unix.SetsockoptInt(int(s), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err != nil {
		s.close()
		return -1, fmt.Errorf("%s %s: %w", protocol, a, err)
	}
	return s, nil
}

// recv reads into b, with the flags of recvfrom(2). unix.Recvfrom would allocate an address.
func (s socket) recv(b []byte, flags int) (int, error) {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(s), uintptr(unsafe.Pointer(&b[0])),
			uintptr(len(b)), uintptr(flags), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		return int(n), nil
	}
}

// poll reads into b without waiting. Only here a raw system call is right: it never sleeps, so no other
// goroutine needs this thread's place in Go's scheduler, and a call through the scheduler costs more than the
// look itself.
func (s socket) poll(b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s), uintptr(unsafe.Pointer(&b[0])),
		uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// tickEvery is how often a loop of raw system calls makes a normal one. Then Go's monitor sees that the
// thread moves, and does not preempt it for keeping its processor.
const tickEvery = 256

// offer sends a datagram without ever waiting, so the call may be raw, as in poll.
func (s socket) offer(b []byte) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s), uintptr(unsafe.Pointer(&b[0])),
		uintptr(len(b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// send writes all of b.
func (s socket) send(b []byte) error {
	for len(b) > 0 {
		n, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(s), uintptr(unsafe.Pointer(&b[0])),
			uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return errno
		}
		b = b[n:]
	}
	return nil
}

// wait waits up to timeout nanoseconds for something to read (ppoll(2)). A negative timeout waits for ever.
func (s socket) wait(timeout int64) error {
	fds := [1]unix.PollFd{{Fd: int32(s), Events: unix.POLLIN}}
	var ts *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(timeout)
		ts = &t
	}
	_, err := unix.Ppoll(fds[:], ts, nil)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}

// idle reports whether an error of poll only means that there is nothing to read. errors.Is would take a
// tenth of the time of a poll.
func idle(errno unix.Errno) bool { return errno == unix.EAGAIN || errno == unix.EINTR }
