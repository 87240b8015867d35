package echo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// magic begins each message, so that a stray datagram does not count as a reply.
const magic = 0x49534f4c414e4531 // "ISOLANE1"

// stragglers is how long the client waits for replies after the window.
const stragglers = time.Second

// timeout is when a message of the closed loop counts as lost.
const timeout = time.Second

// Run measures round-trip times against the application.
//
// One thread does everything. While replies are outstanding it polls for them (or, with Block, sleeps in the
// kernel until one arrives). Between messages it sleeps, so that others can use the CPU. In the open loop a
// message that could not leave in time leaves late, and its latency counts from when it should have left;
// none is left out.
func (p Probe) Run(ctx context.Context, given probe.Conditions) (results.Measurement, error) {
	given.Address = given.At(port)
	m := results.Measurement{Name: given.Name, Window: results.Nanoseconds(given.Window)}
	fd, err := connect(given.Address, p.Protocol)
	if err != nil {
		return m, err
	}
	defer fd.close()
	done, err := probe.HotLoop()
	if err != nil {
		return m, err
	}
	defer done()
	c, err := newClient(fd, p, given)
	if err != nil {
		return m, err
	}
	if p.Mode == Open {
		err = c.openLoop(ctx)
	} else {
		err = c.pingPong(ctx)
	}
	if err != nil {
		return m, fmt.Errorf("%s %s: %w", p.Protocol, given.Address, err)
	}
	probe.AddTrend(&m, c.latency, c.later)
	c.latency.Merge(c.later)
	trips := results.Samples{Wanted: c.sent, Lost: c.lost}
	if trips.Histogram, err = results.Encode(c.latency); err != nil {
		return m, err
	}
	if trips.Lag, err = results.Encode(c.lag); err != nil {
		return m, err
	}
	m.Samples = map[string]results.Samples{given.Name: trips}
	m.Worst = c.longest.Samples()
	c.object(&m)
	return m, nil
}

type client struct {
	socket
	Probe
	probe.Conditions
	size  int // of a message
	clock probe.Clock
	// For the first half of the window (at its end, for all of it), and for the second half.
	latency, later *hdrhistogram.Histogram
	half           int64 // when the second half begins
	lag            *hdrhistogram.Histogram
	longest        probe.Longest
	sent, lost     uint64 // within the window
	out            []byte // the message
	in             []byte
	filled         int // bytes in in, for a stream
}

func newClient(fd socket, p Probe, given probe.Conditions) (*client, error) {
	clock, err := probe.NewClock()
	if err != nil {
		return nil, err
	}
	size := int(min(p.Payload, maxPayload))
	c := &client{clock: clock, socket: fd, Probe: p, Conditions: given, size: size,
		latency: probe.NewHistogram(), later: probe.NewHistogram(), lag: probe.NewHistogram(),
		out: make([]byte, size), in: make([]byte, max(size, 2048))}
	binary.LittleEndian.PutUint64(c.out, magic)
	return c, nil
}

// post sends message seq.
func (c *client) post(seq uint64) error {
	binary.LittleEndian.PutUint64(c.out[8:], seq)
	if c.Protocol == TCP || seq%tickEvery == 0 {
		return c.send(c.out)
	}
	if errno := c.offer(c.out); errno != 0 && errno != unix.ENOBUFS && errno != unix.EAGAIN {
		return errno
	}
	return nil // a message lost on the way out counts as a missing reply
}

// reply looks for a reply without waiting, and returns its number. It skips anything else that arrives.
func (c *client) reply() (seq uint64, ok bool, err error) {
	size := c.size
	into := c.in
	if c.Protocol == TCP {
		into = c.in[c.filled:size]
	}
	n, errno := c.poll(into)
	switch {
	case idle(errno):
		return 0, false, nil
	case errno != 0:
		return 0, false, errno
	case n == 0 && c.Protocol == TCP:
		return 0, false, errors.New("the application closed the connection")
	}
	if c.Protocol == TCP {
		if c.filled += n; c.filled < size {
			return 0, false, nil
		}
		c.filled, n = 0, size
	}
	if n != size || binary.LittleEndian.Uint64(c.in) != magic {
		return 0, false, nil
	}
	return binary.LittleEndian.Uint64(c.in[8:]), true, nil
}

// await polls, or sleeps, until a reply arrives or the clock shows deadline. It reads the clock once per
// `every` polls.
func (c *client) await(deadline int64, every int) (seq uint64, ok bool, err error) {
	for polls := 1; ; polls++ {
		if seq, ok, err = c.reply(); ok || err != nil {
			return seq, ok, err
		}
		if polls%every != 0 && c.Wait != Block {
			continue
		}
		left := deadline - c.clock.Now()
		if left <= 0 {
			return 0, false, nil
		}
		if c.Wait == Block {
			if err = c.wait(left); err != nil {
				return 0, false, err
			}
		}
	}
}

func (c *client) pingPong(ctx context.Context) error {
	begin := c.clock.Now() + int64(c.Warmup)
	end := begin + int64(c.Window)
	c.half = begin + int64(c.Window)/2
	for seq := uint64(1); ; seq++ {
		sent := c.clock.Now()
		if sent >= end {
			return nil
		}
		if seq%64 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		counts := sent >= begin
		if counts {
			c.sent++
		}
		if err := c.post(seq); err != nil {
			return err
		}
		got, err := c.answer(seq, sent+int64(timeout))
		if err != nil {
			return err
		}
		switch {
		case counts && got == 0:
			c.lost++
		case counts:
			c.measured(sent, got)
		}
		if c.Gap > 0 {
			if err := probe.SleepUntil(c.clock.Now() + int64(c.Gap)); err != nil {
				return err
			}
		}
	}
}

// answer waits for the reply to seq, and returns when it arrived, or 0. It skips replies to messages that
// were given up.
func (c *client) answer(seq uint64, deadline int64) (int64, error) {
	for {
		got, ok, err := c.await(deadline, 64)
		if err != nil || !ok {
			return 0, err
		}
		if got == seq {
			return c.clock.Now(), nil
		}
	}
}

// measured counts a round trip of the window.
func (c *client) measured(begin, end int64) {
	if begin < c.half {
		probe.Record(c.latency, end-begin)
	} else {
		probe.Record(c.later, end-begin)
	}
	c.longest.Add(begin, end)
}

// openLoop sends message n at begin + n×interval. It stores no times of sending: the number tells when a
// message should have left.
func (c *client) openLoop(ctx context.Context) error {
	interval := 1e9 / c.Rate
	first := c.clock.Now() + int64(time.Millisecond)
	begin := first + int64(c.Warmup)
	c.half = begin + int64(c.Window)/2
	total := uint64(math.Ceil(float64(c.Warmup+c.Window)/interval - 1e-6)) // but for rounding
	due := func(seq uint64) int64 { return first + int64(float64(seq)*interval) }
	seen := make([]bool, total)
	outstanding := 0
	take := func(seq uint64) {
		if seq >= total || seen[seq] { // from an earlier connection, or a duplicate
			return
		}
		seen[seq] = true
		outstanding--
		if due(seq) >= begin {
			c.measured(due(seq), c.clock.Now())
		}
	}
	for seq := range total {
		if seq%64 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := c.collect(due(seq), &outstanding, take); err != nil {
			return err
		}
		if due(seq) >= begin {
			c.sent++
			probe.Record(c.lag, c.clock.Now()-due(seq))
		}
		if err := c.post(seq); err != nil {
			return err
		}
		outstanding++
	}
	deadline := max(due(total), c.clock.Now()) + int64(stragglers)
	for outstanding > 0 && c.clock.Now() < deadline {
		seq, ok, err := c.await(deadline, 1)
		if err != nil {
			return err
		}
		if ok {
			take(seq)
		}
	}
	for seq, came := range seen {
		if !came && due(uint64(seq)) >= begin {
			c.lost++
		}
	}
	return nil
}

// collect takes replies until the clock shows next. It watches for them while some are outstanding, and
// otherwise sleeps.
func (c *client) collect(next int64, outstanding *int, take func(uint64)) error {
	for *outstanding > 0 {
		now := c.clock.Now()
		if now >= next {
			return nil
		}
		seq, ok, err := c.await(next, 1)
		if err != nil {
			return err
		}
		if ok {
			take(seq)
		}
	}
	return c.clock.WaitUntil(next)
}

// object says why the figures of this measurement must not be used.
func (c *client) object(m *results.Measurement) {
	if c.latency.TotalCount() == 0 {
		m.NotCarried("no replies")
		return
	}
	if c.lost*100 > c.sent {
		m.NotCarried(fmt.Sprintf("%d of %d messages lost", c.lost, c.sent))
	}
	if c.Mode != Open {
		return
	}
	lag, p99 := results.Percentile(c.lag, 0.999, 0), results.Percentile(c.latency, 0.99, 0)
	if lag*10 > p99 {
		m.ClientLate(fmt.Sprintf("the client could not keep up: send lag P99.9 %s, latency P99 %s",
			time.Duration(lag), time.Duration(p99)))
	}
}
