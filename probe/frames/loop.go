package frames

import (
	"context"
	"fmt"
	"math"
	"sort"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// measure asks the forwarder, sends frames for the warm-up and the window, waits for those under way, and
// asks again.
func (g *generator) measure(ctx context.Context, m *results.Measurement) error {
	before, err := g.look()
	if err == nil && !before.came {
		err = fmt.Errorf("no answer from a forwarder: expected isolane probe frames --serve there, or testpmd")
	}
	if err == nil {
		err = g.run(ctx)
	}
	if err != nil {
		return err
	}
	after, err := g.look()
	if err != nil {
		return err
	}
	return g.report(m, before, after)
}

// look asks the forwarder for its counts, and reads the generator's own.
func (g *generator) look() (r reply, err error) {
	if r, err = g.ask(); err != nil {
		return r, err
	}
	if r.own.noRoom, err = g.port.drops(); err != nil {
		return r, err
	}
	r.own.in, r.own.out, err = dropped(g.device.Index)
	return r, err
}

// How many times a question is asked at most, and how long to wait for each answer.
const (
	questions = 10
	patience  = 100 * time.Millisecond
)

func (g *generator) ask() (reply, error) {
	g.answered = reply{}
	for range questions {
		b := g.port.buffer()
		if b != nil {
			g.question++
			copy(b, g.asking)
			stamp(b, isQuestion, g.question, 0)
			g.port.push(len(g.asking))
		}
		for end := g.clock.Now() + int64(patience); g.clock.Now() < end && !g.answered.came; {
			if _, err := g.exchange(); err != nil {
				return reply{}, err
			}
		}
		if g.answered.came {
			break
		}
	}
	return g.answered, nil
}

// exchange hands pushed frames to the kernel, and takes those that have arrived.
func (g *generator) exchange() (came int, err error) {
	if err = g.port.flush(); err != nil {
		return 0, err
	}
	g.now = 0 // the first frame taken reads the clock, after the system call that brought it
	return g.port.pull(g.take)
}

// run sends frame n at first + n × interval, or as fast as the device accepts them. A frame that could not
// leave in time leaves late, and its latency counts from when it should have left.
func (g *generator) run(ctx context.Context) error {
	g.first = g.clock.Now() + int64(time.Millisecond)
	g.begin = g.first + int64(g.Warmup)
	g.end = g.begin + int64(g.Window)
	if g.Rate != probe.Max {
		g.interval = 1e9 / float64(g.Rate)
		g.total = uint64(math.Ceil(float64(g.Warmup+g.Window)/g.interval - 1e-6)) // but for rounding
	}
	if err := g.clock.WaitUntil(g.first); err != nil {
		return err
	}
	now := g.clock.Now()
	for round := 0; ; round++ {
		if round%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		left, more := g.send(now)
		if !more {
			break
		}
		came, err := g.exchange()
		if err == nil && left+came == 0 && g.sent == g.came {
			err = g.clock.WaitUntil(g.due(g.sent))
		}
		if err != nil {
			return err
		}
		next := g.clock.Now()
		if left+came > 0 && !g.full && g.within(now) {
			g.free.frames, g.free.time = g.free.frames+left, g.free.time+next-now
		}
		now = next
	}
	for end := g.clock.Now() + int64(stragglers); g.came < g.sent && g.clock.Now() < end; {
		if _, err := g.exchange(); err != nil {
			return err
		}
	}
	return nil
}

func (g *generator) due(n uint64) int64 { return g.first + int64(float64(n)*g.interval) }

// send pushes the frames that are due, at most a batch. more is false when all have left, or their time is
// over.
func (g *generator) send(now int64) (left int, more bool) {
	paced := g.Rate != probe.Max
	if !paced && now >= g.end || paced && (g.sent == g.total || now >= g.end+int64(stragglers)) {
		return 0, false
	}
	for ; left < batch; left++ {
		at := now
		if paced {
			if at = g.due(g.sent); at > now || g.sent == g.total {
				break
			}
		}
		b := g.port.buffer()
		if b == nil {
			g.full = true
			break
		}
		if g.full {
			g.full, g.freed = false, now
		}
		n := g.number()
		ready := g.ready[n%uint64(len(g.ready))]
		copy(b, ready)
		stamp(b, isFrame, n, at)
		g.port.push(len(ready))
		if g.within(at) {
			g.sentIn++
			if paced {
				probe.Record(g.lag, now-max(at, g.freed))
			}
		}
	}
	return left, true
}

// neverLeft returns how many frames that were due in the window had not left when their time was over.
func (g *generator) neverLeft() uint64 {
	first := sort.Search(int(g.total), func(n int) bool { return g.due(uint64(n)) >= g.begin })
	return g.total - max(g.sent, uint64(first))
}

// within reports whether a time is in the window.
func (g *generator) within(at int64) bool { return at >= g.begin && at < g.end }

// take counts a frame that has arrived at our port.
func (g *generator) take(b []byte) {
	if g.now == 0 {
		g.now = g.clock.Now()
	}
	s, ok := read(b)
	switch {
	case ok && (s.magic == isAnswer || s.magic == isQuestion):
		if s.number == g.question && !g.answered.came {
			g.answered.came = true
			if g.answered.known = s.magic == isAnswer; g.answered.known {
				g.answered.counts, g.answered.how = readAnswer(b)
			}
		}
	case !ok || s.magic != isFrame || !g.sentAs(s):
		g.foreign++
	case g.arrived(s.number):
		if g.within(g.now) {
			g.cameIn++
		}
		if g.within(s.at) {
			g.cameOf++
			if g.Rate != probe.Max {
				probe.Record(g.latency, g.now-s.at)
			}
		}
	}
}

// sentAs reports whether a frame has the size and the time with which its number was sent.
func (g *generator) sentAs(s stamped) bool {
	if s.size != len(g.ready[s.number%uint64(len(g.ready))])+fcs {
		return false
	}
	if g.Rate == probe.Max {
		return s.at >= g.first && s.at <= g.now
	}
	return s.at == g.due(s.number)
}
