package frames

import (
	"fmt"
	"strings"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// drop is where frames were lost, as whoever lost them counted.
type drop struct {
	frames uint64
	where  string
}

// named are the drops between two looks. Two ends of a pair of devices count the same frame both: of a
// way the greater count is taken, and what is beyond it has no name.
func named(before, after reply) (all []drop) {
	add := func(n uint64, where string) {
		if n > 0 {
			all = append(all, drop{n, where})
		}
	}
	own := func(of func(reply) uint64) uint64 { return of(after) - of(before) }
	there := own(func(r reply) uint64 { return r.own.out })
	back := own(func(r reply) uint64 { return r.own.in })
	known := before.known && after.known
	if known {
		there = max(there, own(func(r reply) uint64 { return r.DeviceIn }))
		back = max(back, own(func(r reply) uint64 { return r.DeviceOut }))
	}
	add(there, "dropped by a device on the way there")
	if known {
		add(own(func(r reply) uint64 { return r.NoRoom }), "found no room at the forwarder's socket")
		add(own(func(r reply) uint64 { return r.Refused }), "could not be forwarded")
		add(own(func(r reply) uint64 { return r.Full }), "found the forwarder's ring full")
	}
	add(back, "dropped by a device on the way back")
	add(own(func(r reply) uint64 { return r.own.noRoom }), "found no room at the generator's socket")
	return all
}

// report says what was found. Frames of the warm-up are among those that were lost, doubled, reordered or
// foreign: the counts of the other end do not know of a window.
func (g *generator) report(m *results.Measurement, before, after reply) error {
	missing := g.sent - g.came
	nobody, words := missing, []string{}
	for _, d := range named(before, after) {
		n := min(nobody, d.frames) // devices count frames of others too
		nobody -= n
		if n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, d.where))
		}
	}
	if nobody > 0 {
		words = append(words, fmt.Sprintf("of %d nobody says where", nobody))
	}
	seconds := g.Window.Seconds()
	m.Values = map[string]float64{}
	for word, v := range map[string]float64{"": float64(g.cameIn) / seconds, sent: float64(g.sentIn) / seconds,
		lost: float64(missing), unnamed: float64(nobody), doubled: float64(g.doubled),
		reordered: float64(g.reordered), foreign: float64(g.foreign)} {
		m.Values[m.Name+word] = v
	}
	m.Facts = map[string]string{"generator": g.port.how, "forwarder": g.Forwarder}
	if after.known {
		m.Facts["forwarder"] += ", " + after.how
	}
	if missing > 0 {
		m.Facts["lost"] = fmt.Sprintf("%d of %d frames with the warm-up: %s", missing, g.sent,
			strings.Join(words, ", "))
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
	g.object(m, words)
	return nil
}

// object says why the figures of this measurement are not to be used.
func (g *generator) object(m *results.Measurement, words []string) {
	if g.cameOf == 0 {
		m.NotCarried("no frame came back")
		return
	}
	if g.Rate == probe.Max {
		return
	}
	if gone := g.sentIn - g.cameOf; gone*100 > g.sentIn {
		m.NotCarried(fmt.Sprintf("%d of %d frames lost: with the warm-up %s", gone, g.sentIn,
			strings.Join(words, ", ")))
	}
	if g.sent < g.total && (g.full || g.freed >= g.end) { // behind the window only what is late leaves
		m.NotCarried(fmt.Sprintf("the device had no room for %d of %d frames", g.total-g.sent, g.total))
	} else if g.sent < g.total {
		m.ClientLate(fmt.Sprintf("the generator could not keep up: it sent %d of %d frames", g.sent, g.total))
	}
	lag, p99 := g.lag.ValueAtQuantile(99.9), g.latency.ValueAtQuantile(99)
	if lag*10 > p99 {
		m.ClientLate(fmt.Sprintf("the generator could not keep up: send lag P99.9 %s, latency P99 %s",
			time.Duration(lag), time.Duration(p99)))
	}
}
