package http

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/webserver"
)

// The phases of a run: before the window, its two halves, and after it.
const (
	before = iota
	firstHalf
	secondHalf
	after
	phases
)

const (
	stragglers = 2 * time.Second // how long to wait for replies after the window
	openTime   = 5 * time.Second // how long opening the connections may take
	reopenWait = 100 * time.Millisecond

	// longestSleep bounds epoll's own delay, a thousandth of its timeout (fs/select.c,
	// select_estimate_accuracy).
	longestSleep = 10 * time.Millisecond
	chunk        = 256 << 10 // bytes of a body read at once, so that a due request need not wait long
	tickEvery    = 256       // rounds between looks at rare things
)

// client is the client. One thread does everything.
type client struct {
	Probe
	to      netip.AddrPort
	clock   probe.Clock
	epoll   int
	conns   []conn
	free    queue // idle connections, the one idle longest first
	request []byte
	in      []byte
	events  []unix.EpollEvent
	round   int

	arrivals                  // of the open loop
	begin, end  int64         // of the window; 0 while the connections open
	phase       int           // the present one
	bounds      [phases]int64 // ends of the phases
	freed       int64         // when a connection became free after there was none
	queued      uint64        // requests of the window that found no connection free
	deadline    int64         // when missing replies are given up
	busy, dead  int           // connections
	retry       int64         // when dead connections are reopened
	unused      int64         // nanoseconds in which polling found nothing
	usage       [phases]cpuTime
	last, start *hdrhistogram.Histogram // to the last and to the first byte
	later       *hdrhistogram.Histogram // as last, for the second half of the window; at the end last has all
	lag         *hdrhistogram.Histogram
	longest     probe.Longest // to the last byte
	count       [phases]counts
	why         error // of the first request that failed
}

// counts are those of one phase.
type counts struct {
	due    uint64 // requests that should leave in it; in the closed loop, that left in it
	done   uint64 // complete replies in it
	failed uint64 // requests that failed in it
}

// cpuTime is the CPU time that this thread had used at a moment.
type cpuTime struct{ at, ran, unused int64 }

func newClient(p Probe, given probe.Conditions) (*client, error) {
	clock, err := probe.NewClock()
	if err != nil {
		return nil, err
	}
	to := given.At(p.Port())
	c := &client{Probe: p, to: to, clock: clock, conns: make([]conn, p.Connections),
		free: newQueue(p.Connections), in: make([]byte, headRoom),
		events: make([]unix.EpollEvent, 128),
		last:   probe.NewHistogram(), later: probe.NewHistogram(), start: probe.NewHistogram(),
		lag: probe.NewHistogram()}
	c.request = fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", webserver.Path(p.Size), to)
	if c.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return c, nil
}

// close closes everything that is open. It may be called again.
func (c *client) close() {
	for i := range c.conns {
		if c.conns[i].state != dead {
			_ = unix.Close(c.conns[i].fd)
			c.conns[i].state = dead
		}
	}
	if c.epoll >= 0 {
		_ = unix.Close(c.epoll)
		c.epoll = -1
	}
}

// open opens all connections before anything is measured.
func (c *client) open(ctx context.Context) error {
	for i := range c.conns {
		if err := c.reopen(int32(i)); err != nil {
			return err
		}
	}
	deadline := c.clock.Now() + int64(openTime)
	for c.free.n < len(c.conns) {
		n, err := c.sleep(int64(longestSleep))
		if err != nil {
			return err
		}
		for _, e := range c.events[:n] {
			c.handle(e)
		}
		switch {
		case c.why != nil:
			return c.why
		case ctx.Err() != nil:
			return ctx.Err()
		case c.clock.Now() > deadline:
			return fmt.Errorf("%d of %d connections open after %s", c.free.n, len(c.conns), openTime)
		}
	}
	return nil
}

// reopen starts to open a connection. Edge-triggered events save system calls: a socket that was read empty
// reports what arrives next.
func (c *client) reopen(i int32) error {
	k := &c.conns[i]
	fd, err := dial(c.to)
	if err != nil {
		return err
	}
	e := unix.EpollEvent{Events: unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: i}
	if err := unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return errors.Join(fmt.Errorf("epoll: %w", err), unix.Close(fd))
	}
	*k = conn{fd: fd, state: connecting, head: k.head[:0]}
	return nil
}

// run goes through the warm-up and the window, from start on, or at once if that is past.
func (c *client) run(ctx context.Context, start int64, warmup, window time.Duration) error {
	if err := probe.SleepUntil(start); err != nil {
		return err
	}
	first := c.clock.Now() + int64(time.Millisecond)
	begin := first + int64(warmup)
	end := begin + int64(window)
	c.begin, c.end = begin, end
	c.bounds = [phases]int64{begin, begin + int64(window)/2, end, 1<<63 - 1}
	c.deadline = end + int64(stragglers)
	if c.Rate == probe.Max {
		for range c.conns {
			c.ask(c.free.pop(), c.clock.Now())
		}
	} else {
		c.arrivals = newArrivals(c.Probe, first)
	}
	for {
		now := c.clock.Now()
		c.pass(now)
		c.dispatch(now)
		if now >= c.deadline || c.phase == after && c.busy == 0 && (c.Rate == probe.Max || c.due >= end) {
			break
		}
		n, err := c.wait()
		if err != nil {
			return err
		}
		for _, e := range c.events[:n] {
			c.handle(e)
		}
		if c.round++; c.round%tickEvery == 0 || n == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.revive()
		}
	}
	if c.Rate != probe.Max {
		for ; c.due < end; c.next() { // requests that never left
			c.count[c.when(c.due)].due++
		}
	}
	return nil
}

// pass records what this thread has used, at the end of a phase.
func (c *client) pass(now int64) {
	for now >= c.bounds[c.phase] {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err == nil {
			c.usage[c.phase] = cpuTime{at: now, ran: t.Nano(), unused: c.unused}
		}
		c.phase++
	}
}

// when returns the phase of a moment.
func (c *client) when(t int64) int {
	phase := before
	for t >= c.bounds[phase] {
		phase++
	}
	return phase
}

// dispatch sends the due requests of the open loop while connections are free. The others wait: arrivals
// stays at the first of them, so they leave in order, and the queue needs no memory.
func (c *client) dispatch(now int64) {
	if c.Rate == probe.Max {
		return
	}
	for c.due <= now && c.due < c.end && c.free.n > 0 {
		if c.due >= c.begin {
			probe.Record(c.lag, now-max(c.due, c.freed))
			if c.due < c.freed {
				c.queued++
			}
		}
		c.ask(c.free.pop(), c.due)
		c.next()
		now = c.clock.Now()
	}
}

// ask sends a request that should have left at the intended time.
func (c *client) ask(i int32, intended int64) {
	k := &c.conns[i]
	k.state, k.intended, k.first = busy, intended, 0
	c.busy++
	c.count[c.when(intended)].due++
	if n, errno := send(k.fd, c.request); errno != 0 {
		c.fail(i, errno)
	} else if n < len(c.request) {
		c.fail(i, errors.New("the socket took a part of the request only"))
	}
}
