package echo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/probe"
)

// Ready begins the line that Serve prints when both sockets listen.
const Ready = "ready "

// Serve is the edge application: it sends back datagrams and streams that reach the address, until ctx ends.
// With Spin it polls its sockets instead of sleeping.
func Serve(ctx context.Context, addr netip.AddrPort, wait string, stdout io.Writer) error {
	done, err := probe.HotLoop()
	if err != nil {
		return err
	}
	defer done()
	datagrams, err := newSocket(addr.Addr(), UDP)
	if err != nil {
		return err
	}
	if err = unix.Bind(int(datagrams), sockaddr(addr)); err != nil {
		datagrams.close()
		return fmt.Errorf("udp %s: %w", addr, err)
	}
	listener, err := listen(addr)
	if err != nil {
		datagrams.close()
		return err
	}
	s := &server{ctx: ctx, streams: map[socket]bool{}}
	var group sync.WaitGroup
	if wait == Spin {
		group.Go(func() { s.report(s.spin(datagrams, listener)) })
	} else {
		group.Go(func() { s.report(s.datagrams(datagrams)) })
		group.Go(func() { s.report(s.accept(listener)) })
		group.Go(func() {
			<-ctx.Done()
			// A blocked call returns when its socket is shut down.
			_ = unix.Shutdown(int(datagrams), unix.SHUT_RDWR)
			_ = unix.Shutdown(int(listener), unix.SHUT_RDWR)
			s.closeStreams()
		})
	}
	fmt.Fprintf(stdout, "%s%s\n", Ready, addr)
	group.Wait()
	datagrams.close()
	listener.close()
	return s.err
}

func listen(addr netip.AddrPort) (socket, error) {
	l, err := newSocket(addr.Addr(), TCP)
	if err != nil {
		return -1, err
	}
	if err = unix.SetsockoptInt(int(l), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		if err = unix.Bind(int(l), sockaddr(addr)); err == nil {
			err = unix.Listen(int(l), 16)
		}
	}
	if err != nil {
		l.close()
		return -1, fmt.Errorf("tcp %s: %w", addr, err)
	}
	return l, nil
}

type server struct {
	ctx     context.Context // lives exactly as long as Serve
	mu      sync.Mutex
	err     error
	streams map[socket]bool
	group   sync.WaitGroup
}

// report keeps the first error. Errors after the end of ctx are how the loops end.
func (s *server) report(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.ctx.Err() == nil {
		s.err = err
	}
}

// datagrams sends each datagram back to its sender, and sleeps in between.
func (s *server) datagrams(fd socket) error {
	done, err := probe.HotLoop()
	if err != nil {
		return err
	}
	defer done()
	d := newDatagram()
	for s.ctx.Err() == nil {
		if err := d.echo(fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// datagram is the buffer and the address of one message.
type datagram struct {
	buf  []byte
	from unix.RawSockaddrAny
	size uint32
}

func newDatagram() *datagram { return &datagram{buf: make([]byte, maxPayload+1)} }

// echo sends one datagram back. With flags MSG_DONTWAIT it returns at once if there is none. unix.Recvfrom
// and Sendto would allocate the address of each message.
func (d *datagram) echo(fd socket, flags int) error {
	call := unix.Syscall6
	if flags == unix.MSG_DONTWAIT {
		call = unix.RawSyscall6 // see socket.poll
	}
	d.size = unix.SizeofSockaddrAny
	n, _, errno := call(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&d.buf[0])), uintptr(len(d.buf)),
		uintptr(flags), uintptr(unsafe.Pointer(&d.from)), uintptr(unsafe.Pointer(&d.size)))
	switch {
	case idle(errno) || errno == unix.ECONNREFUSED: // the latter is about an earlier reply
		return nil
	case errno != 0:
		return errno
	case d.size == 0: // the socket was shut down
		return io.EOF
	}
	_, _, errno = call(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&d.buf[0])), n,
		uintptr(flags), uintptr(unsafe.Pointer(&d.from)), uintptr(d.size))
	if errno != 0 && errno != unix.ECONNREFUSED && errno != unix.EINTR && errno != unix.EAGAIN {
		return errno
	}
	return nil
}

// spin serves everything from one thread that never sleeps. Several would compete for one CPU.
func (s *server) spin(datagrams, listener socket) error {
	done, err := probe.HotLoop()
	if err != nil {
		return err
	}
	defer done()
	if err := unix.SetNonblock(int(listener), true); err != nil {
		return err
	}
	var streams []socket
	defer func() {
		for _, c := range streams {
			c.close()
		}
	}()
	d, buf, accepted := newDatagram(), make([]byte, streamBuffer), time.Now()
	for round := 0; ; round++ {
		if err := d.echo(datagrams, unix.MSG_DONTWAIT); err != nil {
			return err
		}
		for i := 0; i < len(streams); i++ {
			n, errno := streams[i].poll(buf)
			if idle(errno) {
				continue
			}
			if errno != 0 || n == 0 || streams[i].send(buf[:n]) != nil {
				streams[i].close()
				streams = append(streams[:i], streams[i+1:]...)
				i--
			}
		}
		if round%tickEvery != 0 || time.Since(accepted) < acceptEvery {
			continue
		}
		if s.ctx.Err() != nil {
			return nil
		}
		accepted = time.Now()
		if c, err := acceptStream(listener); err == nil {
			streams = append(streams, c)
		}
	}
}

// acceptEvery is how often a spinning server looks for new connections and for its end. Each look takes as
// long as several polls of a socket, and delays a message that arrives then, so that must happen to fewer
// than one message in a hundred.
const acceptEvery = 4 * time.Millisecond

// streamBuffer is how many bytes of a stream are read at once.
const streamBuffer = 64 << 10

// acceptStream accepts the next connection. unix.Accept4 would allocate an address even if there is none.
func acceptStream(l socket) (socket, error) {
	fd, _, errno := unix.Syscall6(unix.SYS_ACCEPT4, uintptr(l), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		socket(fd).close()
		return -1, err
	}
	return socket(fd), nil
}

func (s *server) accept(l socket) error {
	defer s.group.Wait()
	for {
		c, err := acceptStream(l)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		case err != nil:
			return err
		}
		s.mu.Lock()
		s.streams[c] = true
		s.mu.Unlock()
		s.group.Go(func() {
			s.stream(c)
			s.mu.Lock()
			delete(s.streams, c)
			s.mu.Unlock()
			c.close()
		})
		if s.ctx.Err() != nil {
			s.closeStreams()
		}
	}
}

func (s *server) closeStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.streams {
		_ = unix.Shutdown(int(c), unix.SHUT_RDWR)
	}
}

// stream sends back what arrives on a connection, until the other side ends it.
func (s *server) stream(c socket) {
	done, err := probe.HotLoop()
	if err != nil {
		return
	}
	defer done()
	buf := make([]byte, streamBuffer)
	for {
		n, err := c.recv(buf, 0)
		if err != nil || n == 0 || c.send(buf[:n]) != nil {
			return
		}
	}
}
