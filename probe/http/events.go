package http

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/probe"
)

// wait waits for events until a request is due. With Spin it polls while a reply or a request is near, and
// counts the time in which there was nothing.
func (c *client) wait() (int, error) {
	now := c.clock.Now()
	wake := c.deadline
	switch {
	case c.Rate != probe.Max && c.due < c.end && c.free.n > 0:
		wake = c.due
	case c.phase != after:
		wake = c.end
	}
	if c.Wait == Spin {
		if wake -= int64(probe.SpinMargin); c.busy > 0 || wake <= now {
			n, err := c.look()
			if n == 0 {
				c.unused += min(c.clock.Now()-now, int64(emptyLook))
			}
			return n, err
		}
	}
	if wake <= now {
		return c.look()
	}
	return c.sleep(min(wake-now, int64(longestSleep)))
}

// emptyLook is longer than a vain look takes. If one takes longer, another thread or an interrupt had the
// CPU.
const emptyLook = 2 * time.Microsecond

// look polls for events.
func (c *client) look() (int, error) { return c.sleep(0) }

// sleep waits for events, with a timeout in nanoseconds (epoll_pwait2, Linux 5.11). It is a raw system call
// although it may sleep: from a thread in a normal one, Go's monitor takes the place in the scheduler after
// 20 us, and for that wakes up every 20 us, on the client's CPU. No goroutine waits long for this thread: its
// sleeps are short, and a signal of the monitor ends one after 10 ms.
func (c *client) sleep(timeout int64) (int, error) {
	t := unix.NsecToTimespec(timeout)
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(c.epoll),
		uintptr(unsafe.Pointer(&c.events[0])), uintptr(len(c.events)), uintptr(unsafe.Pointer(&t)), 0, 0)
	return events(n, errno)
}

func events(n uintptr, errno unix.Errno) (int, error) {
	if errno == unix.EINTR {
		return 0, nil
	}
	if errno != 0 {
		return 0, fmt.Errorf("epoll: %w", errno)
	}
	return int(n), nil
}

// handle handles an event.
func (c *client) handle(e unix.EpollEvent) {
	k := &c.conns[e.Fd]
	switch k.state {
	case connecting:
		if e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			c.drop(e.Fd, failure(k.fd))
		} else if e.Events&unix.EPOLLOUT != 0 {
			c.connected(e.Fd)
		}
	case idle:
		if e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			c.free.remove(e.Fd)
			c.drop(e.Fd, nil) // a server may close idle connections
		}
	case busy:
		if e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			c.receive(e.Fd)
		}
	case dead: // an event from the round in which the connection died
	}
}

// receive takes what has arrived of a reply. It does not copy the body: with MSG_TRUNC, TCP discards it
// (tcp(7)).
func (c *client) receive(i int32) {
	k := &c.conns[i]
	for {
		want, flags := len(c.in), 0
		if k.left > 0 {
			want, flags = min(k.left, chunk), unix.MSG_TRUNC
		}
		n, errno := recv(k.fd, &c.in[0], want, flags)
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
			return
		case errno != 0:
			c.fail(i, errno)
			return
		case n == 0:
			c.fail(i, errClosed)
			return
		}
		now := c.clock.Now()
		if k.left > 0 {
			k.left -= n
		} else if !c.starts(i, c.in[:n], now) {
			return
		}
		if k.left == 0 && len(k.head) == 0 {
			c.finish(i, now)
			return
		}
		if n < want {
			return // the socket is empty (epoll(7), question 9)
		}
		c.dispatch(now)
	}
}

// starts parses the first bytes of a reply, and reports whether to go on.
func (c *client) starts(i int32, in []byte, now int64) bool {
	k := &c.conns[i]
	if k.first == 0 {
		k.first = now
	}
	all := in
	if len(k.head) > 0 {
		k.head = append(k.head, in...)
		all = k.head
	}
	n, body, err := head(all)
	switch {
	case err != nil:
	case n == 0 && len(all) > headRoom:
		err = fmt.Errorf("head of a reply of more than %d bytes", headRoom)
	case n == 0:
		k.head = append(k.head[:0], all...)
		return true
	case body != uint64(c.Size):
		err = fmt.Errorf("reply with %d bytes, expected %d", body, c.Size)
	case len(all)-n > int(body):
		err = errors.New("reply longer than it says")
	}
	if err != nil {
		c.fail(i, err)
		return false
	}
	k.left, k.head = int(body)-(len(all)-n), k.head[:0]
	return true
}

// finish counts a complete reply, and gives its connection the next request.
func (c *client) finish(i int32, now int64) {
	k := &c.conns[i]
	c.count[c.when(now)].done++
	if k.intended >= c.begin && k.intended < c.end {
		probe.Record(c.start, k.first-k.intended)
		if c.when(k.intended) == secondHalf {
			probe.Record(c.later, now-k.intended)
		} else {
			probe.Record(c.last, now-k.intended)
		}
		c.longest.Add(k.intended, now)
	}
	c.busy--
	c.release(i, now)
}

// release gives a connection its next request, or appends it to the idle connections.
func (c *client) release(i int32, now int64) {
	if c.Rate == probe.Max && now < c.end {
		c.ask(i, now)
		return
	}
	c.conns[i].state = idle
	if c.free.n == 0 {
		c.freed = now
	}
	c.free.push(i)
	c.dispatch(now)
}

// connected makes a connection usable. From now on only input matters.
func (c *client) connected(i int32) {
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET, Fd: i}
	if err := unix.EpollCtl(c.epoll, unix.EPOLL_CTL_MOD, c.conns[i].fd, &e); err != nil {
		c.drop(i, fmt.Errorf("epoll: %w", err))
		return
	}
	c.release(i, c.clock.Now())
}

// fail counts a failed request, and reopens its connection.
func (c *client) fail(i int32, why error) {
	c.count[c.when(c.clock.Now())].failed++
	c.busy--
	c.drop(i, why)
}

// drop closes a connection and reopens it, at once if the server is there.
func (c *client) drop(i int32, why error) {
	if c.why == nil {
		c.why = why
	}
	opening := c.conns[i].state == connecting
	_ = unix.Close(c.conns[i].fd)
	c.conns[i].state = dead
	if !opening {
		if err := c.reopen(i); err == nil {
			return
		}
	}
	c.dead++
}

// revive reopens connections that could not be reopened at once.
func (c *client) revive() {
	if c.dead == 0 || c.clock.Now() < c.retry {
		return
	}
	c.retry = c.clock.Now() + int64(reopenWait)
	for i := range c.conns {
		if c.conns[i].state == dead && c.reopen(int32(i)) == nil {
			c.dead--
		}
	}
}

// queue is a ring buffer of connections.
type queue struct {
	ring     []int32
	first, n int
}

func newQueue(size int) queue { return queue{ring: make([]int32, size)} }

func (q *queue) push(i int32) {
	q.ring[(q.first+q.n)%len(q.ring)] = i
	q.n++
}

func (q *queue) pop() int32 {
	i := q.ring[q.first]
	q.first, q.n = (q.first+1)%len(q.ring), q.n-1
	return i
}

// remove removes a connection anywhere in the queue.
func (q *queue) remove(i int32) {
	for range q.n {
		if other := q.pop(); other != i {
			q.push(other)
		}
	}
}
