package frames

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// looped is a port that returns everything that is sent, while it has room.
type looped struct {
	port
	g       *generator
	room    int
	again   int // the room that each flush makes
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

func (p *looped) flush() error {
	p.room += p.again
	return nil
}

func (p *looped) drops() (uint64, error) { return 3, nil }

func (p *looped) pull(take func([]byte)) (int, error) {
	n, came := len(p.on), p.g.clock.Now()
	for _, b := range p.on {
		take(b)
		p.stamped = p.stamped || p.g.now < came
	}
	p.on = nil
	return n, nil
}

// generates returns a generator that has run for a tenth of a second, at a port with room for some of its
// frames.
func generates(t *testing.T, rate probe.Rate, p *looped) *generator {
	t.Helper()
	clock, err := probe.NewClock()
	if err != nil {
		t.Fatal(err)
	}
	g := &generator{Probe: Probe{Rate: rate}, Conditions: probe.Conditions{Name: "f", Warmup: 20 * time.Millisecond, Window: 100 * time.Millisecond},
		tally: newTally(), clock: clock, latency: probe.NewHistogram(), lag: probe.NewHistogram(), ready: [][]byte{someEnds().Blank(64)}}
	p.g = g
	g.port = &opened{port: p}
	if err = g.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

// Frames for which the device has no room count as wanted and not carried: it is not the generator's fault
// that they were not sent.
func TestNoRoom(t *testing.T) {
	g := generates(t, 1000, &looped{room: 70})
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

// The first frame leaves at the begin of the warm-up, so the last one of the window may be there only because it
// began.
func TestDue(t *testing.T) {
	for rate, want := range map[probe.Rate][2]uint64{10: {2, 1}, 30: {4, 3}, 1000: {120, 100}} { // in 120 ms, the last 100 of these
		g := generates(t, rate, &looped{room: 1000})
		if got := [2]uint64{g.total, g.sentIn}; got != want || g.cameOf != g.sentIn {
			t.Errorf("%g/s: %d frames, %d of them of the window, %d came; want %d", float64(rate), g.total, g.sentIn, g.cameOf, want)
		}
	}
}

// A generator that is still with the frames of the warm-up when all is over is late: nothing was asked of the
// forwarder. Where as many as possible were to leave, and none did, none came.
func TestNothingOfTheWindow(t *testing.T) {
	g := &generator{Probe: Probe{Rate: 1000}, tally: tally{sent: 50, came: 50}, total: 120, end: 1, latency: probe.NewHistogram(), lag: probe.NewHistogram()}
	for rate, want := range map[probe.Rate]results.Measurement{
		1000:      {Late: []string{"the generator could not keep up: it sent 50 of 120 frames"}},
		probe.Max: {Overloaded: []string{"no frame came back"}},
	} {
		var m results.Measurement
		g.Rate = rate
		if g.object(&m, ""); !slices.Equal(m.Late, want.Late) || !slices.Equal(m.Overloaded, want.Overloaded) {
			t.Errorf("%g/s: overloaded %q, late %q", float64(rate), m.Overloaded, m.Late)
		}
	}
}

// The time of arrival is read once the frame is there.
func TestReceiveTime(t *testing.T) {
	p := &looped{room: 1000}
	if g := generates(t, 1000, p); p.stamped || g.cameOf != 100 {
		t.Errorf("%d of 100 frames came, stamped before they did: %t", g.cameOf, p.stamped)
	}
}

// The capacity of the generator comes from rounds in which it found room for everything. Other rounds show
// what somebody else can take.
func TestLimit(t *testing.T) {
	sends := func(room, again int) (g *generator) {
		for range 20 { // a busy machine may give it no CPU within its window
			if g = generates(t, probe.Max, &looped{room: room, again: again}); g.sentIn > 0 {
				break
			}
		}
		return g
	}
	if g := sends(1<<40, 0); g.free.frames == 0 || uint64(g.free.frames) != g.sentIn {
		t.Errorf("with room: %+v, sent %d", g.free, g.sentIn)
	}
	if g := sends(1, 1); g.free.frames != 0 || g.sentIn == 0 {
		t.Errorf("with too little room: %+v, sent %d", g.free, g.sentIn)
	}
	g := &generator{Conditions: probe.Conditions{Window: 2 * time.Second}, cameIn: 980}
	g.free.frames, g.free.time = 500, 1e9
	for rate, want := range map[probe.Rate]map[string]float64{probe.Max: {"f" + able: 500, "f" + use: 100}, 490: {"f" + able: 500}} {
		g.Rate = rate
		m := results.Measurement{Name: "f", Values: map[string]float64{}}
		if g.limit(&m, 20); !maps.Equal(m.Values, want) {
			t.Errorf("%v, want %v", m.Values, want)
		}
	}
}

// The forwarder counts what became of each frame of a generator, and which arrived twice, and starts over for
// the next generator.
func TestForwarderCounts(t *testing.T) {
	p := &looped{}
	f := &forwarder{local: local{device: &netlink.LinkAttrs{Index: 1}}, port: &opened{port: p}, heard: newTally()}
	take := func(magic uint32, ttl byte, numbers ...uint64) {
		for _, n := range numbers {
			b := someEnds().Blank(questionSize)
			stamp(b, magic, n, 0)
			b[atTTL] = ttl
			binary.BigEndian.PutUint16(b[atChecksum:], 0)
			binary.BigEndian.PutUint16(b[atChecksum:], ^sum(b[atIP:atUDP]))
			f.take(b)
		}
	}
	for k, want := range []counts{{Took: 6, Sent: 3, Refused: 2, Full: 1, Doubled: 2, NoRoom: 3}, {Took: 8, Sent: 5, Refused: 2, Full: 1, Doubled: 2, NoRoom: 3}} {
		if k == 0 {
			p.room = 4
			take(isFrame+9, ttl, 0) // of somebody else
			take(isFrame, 1, 7, 2)
			take(isFrame, ttl, 1, 2, 7, 3<<40)
		} else {
			p.room = 2
			take(isFrame, ttl, 1, 2)
		}
		p.room = 1
		take(isQuestion, ttl, 1)
		got, _ := readAnswer(p.on[len(p.on)-1])
		if got.DeviceIn, got.DeviceOut = 0, 0; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
