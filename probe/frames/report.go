package frames

import (
	"fmt"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// report stores the result. The counts of lost, doubled, reordered and foreign frames include the warm-up,
// because the other end does not know the window.
func (g *generator) report(m *results.Measurement, before, after reply) error {
	found := g.balance(before, after)
	seconds := g.Window.Seconds()
	m.Values = map[string]float64{}
	for word, v := range map[string]float64{"": float64(g.cameIn) / seconds, sent: float64(g.sentIn) / seconds,
		lost: float64(g.sent - g.came), unnamed: float64(found.unnamed()), doubled: float64(found.doubled),
		reordered: float64(g.reordered), foreign: float64(g.foreign)} {
		m.Values[m.Name+word] = v
	}
	g.limit(m, found.noRoom)
	m.Facts = map[string]string{"generator": g.port.how, "forwarder": g.Forwarder}
	if found.known {
		m.Facts["forwarder"] += ", " + after.how
		m.Facts["forwarded"] = found.said
		for k, word := range []string{lostThere, lostWithin, lostBack} {
			m.Values[m.Name+word] = float64(found.parts[k].lost)
		}
	}
	if g.sent > g.came {
		m.Facts["lost"] = fmt.Sprintf("%d of %d frames with the warm-up: %s", g.sent-g.came, g.sent, found)
	}
	if g.Rate != probe.Max {
		due := g.sentIn + g.neverLeft()
		trips := results.Samples{Wanted: due, Lost: due - g.cameOf}
		var err error
		if trips.Histogram, err = results.Encode(g.latency); err != nil {
			return err
		}
		if trips.Lag, err = results.Encode(g.lag); err != nil {
			return err
		}
		m.Samples = map[string]results.Samples{m.Name + latency: trips}
	}
	g.object(m, found.String())
	return nil
}

// limit says what the generator can do, and how close to that the frames came, including those that came back
// and found no room at its socket.
func (g *generator) limit(m *results.Measurement, noRoom uint64) {
	if g.free.frames == 0 {
		return // something else held it back all the time
	}
	can := float64(g.free.frames) * 1e9 / float64(g.free.time)
	m.Values[m.Name+able] = can
	if g.Rate == probe.Max {
		m.Values[m.Name+use] = 100 * float64(g.cameIn+noRoom) / g.Window.Seconds() / can
	}
}

// object says why the figures of this measurement must not be used.
func (g *generator) object(m *results.Measurement, lost string) {
	if g.cameOf == 0 && (g.sentIn > 0 || g.Rate == probe.Max) {
		m.NotCarried("no frame came back")
		return
	}
	if g.Rate == probe.Max {
		return
	}
	if gone := g.sentIn - g.cameOf; gone*100 > g.sentIn {
		m.NotCarried(fmt.Sprintf("%d of %d frames lost: with the warm-up %s", gone, g.sentIn,
			lost))
	}
	if g.sent < g.total && (g.full || g.freed >= g.end) { // after the window only late frames leave
		m.NotCarried(fmt.Sprintf("the device had no room for %d of %d frames", g.total-g.sent, g.total))
	} else if g.sent < g.total {
		m.ClientLate(fmt.Sprintf("the generator could not keep up: it sent %d of %d frames", g.sent, g.total))
	}
	lag, p99 := results.Percentile(g.lag, 0.999, 0), results.Percentile(g.latency, 0.99, 0)
	if lag*10 > p99 {
		m.ClientLate(fmt.Sprintf("the generator could not keep up: send lag P99.9 %s, latency P99 %s",
			time.Duration(lag), time.Duration(p99)))
	}
}
