package http

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// state is the state of a connection.
type state uint8

const (
	dead       state = iota // not open
	connecting              // the handshake is under way
	idle                    // waits for a request
	busy                    // waits for a reply
)

// conn is one connection.
type conn struct {
	fd       int
	state    state
	intended int64 // when its request should leave; in the closed loop, when it left
	first    int64 // when the first byte of the reply arrived; 0: not yet
	left     int   // missing bytes of the body
	head     []byte
}

// headRoom is how many bytes are read before the length of the body is known. Longer heads are rejected.
const headRoom = 4096

// errClosed says that the server closed a connection before the reply was complete.
var errClosed = errors.New("the server closed the connection before the reply was whole")

// dial starts to open a connection (connect(2), EINPROGRESS).
func dial(to netip.AddrPort) (int, error) {
	family := unix.AF_INET6
	var addr unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err == nil {
		err = unix.Connect(fd, addr)
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// failure returns the error of a connection that failed to open (SO_ERROR).
func failure(fd int) error {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

// recv and send are raw system calls. On these sockets they never sleep, so no other goroutine needs this
// thread's place in Go's scheduler (see probe/echo).
func recv(fd int, into *byte, n, flags int) (int, unix.Errno) {
	got, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(into)), uintptr(n),
		uintptr(flags|unix.MSG_DONTWAIT), 0, 0)
	return int(got), errno
}

func send(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])),
		uintptr(len(b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// head parses the head of a reply (RFC 9112). It returns its length, 0 if it is incomplete, and the length of
// the body. Only replies with status 200 and a Content-Length are accepted.
func head(b []byte) (n int, body uint64, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, 0, nil
	}
	n = end + 4
	status, fields, _ := bytes.Cut(b[:n], []byte("\r\n"))
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200")) {
		return n, 0, fmt.Errorf("reply %q, expected status 200", status)
	}
	const length = "content-length:"
	for len(fields) > 0 {
		line := fields
		if i := bytes.IndexByte(fields, '\n'); i >= 0 {
			line, fields = fields[:i], fields[i+1:]
		}
		if len(line) < len(length) || line[0]|0x20 != 'c' || !bytes.EqualFold(line[:len(length)], []byte(length)) {
			continue
		}
		body, err = strconv.ParseUint(string(bytes.TrimSpace(line[len(length):])), 10, 63)
		if err != nil {
			return n, 0, fmt.Errorf("reply with %q, expected a length", bytes.TrimSpace(line))
		}
		return n, body, nil
	}
	return n, 0, errors.New("reply without Content-Length")
}
