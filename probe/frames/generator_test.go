package frames

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// looped is a port from which all that is sent comes back, as long as it has room.
type looped struct {
	port
	g       *generator
	room    int
	next    [bufferSize]byte
	on      [][]byte // the way
	stamped bool     // before it was there
}

func (p *looped) buffer() []byte {
	if p.room == 0 {
		return nil
	}
	return p.next[:]
}

func (p *looped) push(n int) {
	p.room--
	p.on = append(p.on, bytes.Clone(p.next[:n]))
}

func (p *looped) flush() error { return nil }

func (p *looped) pull(take func([]byte)) (int, error) {
	n, came := len(p.on), p.g.clock.Now()
	for _, b := range p.on {
		take(b)
		p.stamped = p.stamped || p.g.now < came
	}
	p.on = nil
	return n, nil
}

// generates is a generator of 1,000 frames a second for a tenth of one, at a port with room for some of its frames.
func generates(t *testing.T, room int) (*generator, *looped) {
	t.Helper()
	clock, err := probe.NewClock()
	if err != nil {
		t.Fatal(err)
	}
	g := &generator{Probe: Probe{Rate: 1000}, Conditions: probe.Conditions{Name: "f", Warmup: 20 * time.Millisecond, Window: 100 * time.Millisecond},
		tally: newTally(), clock: clock, latency: probe.NewHistogram(), lag: probe.NewHistogram(), ready: [][]byte{someEnds().blank(64)}}
	p := &looped{g: g, room: room}
	g.port = &opened{port: p}
	if err = g.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g, p
}

// Frames for which the device has no room were wanted, and not carried: it is not the generator that has not sent them.
func TestNoRoom(t *testing.T) {
	g, _ := generates(t, 70)
	m := results.Measurement{Name: "f"}
	if err := g.report(&m, reply{}, reply{}); err != nil {
		t.Fatal(err)
	}
	got := m.Samples["f"+latency]
	if want := "the device had no room for 50 of 120 frames"; got.Wanted != 100 || got.Lost != 50 || !slices.Equal(m.Overloaded, []string{want}) ||
		strings.Contains(strings.Join(m.Late, ""), "it sent") {
		t.Errorf("%d of %d lost, overloaded %q, late %q", got.Lost, got.Wanted, m.Overloaded, m.Late)
	}
}

// When a frame came is looked at once it is there.
func TestReceiveTime(t *testing.T) {
	if g, p := generates(t, 1000); p.stamped || g.cameOf != 100 {
		t.Errorf("%d of 100 frames came, stamped before they did: %t", g.cameOf, p.stamped)
	}
}
