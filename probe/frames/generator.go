package frames

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// stragglers is how long frames are awaited after the window, and how long one may leave late.
const stragglers = time.Second

// generator is the client. One thread does everything: what is due leaves, what has come is counted. It polls
// while frames are under way, and sleeps where none are.
type generator struct {
	Probe
	probe.Conditions
	local
	tally
	port  *opened
	clock probe.Clock
	ready [][]byte // frames, but for their stamps, in the order of their sizes

	first, begin, end int64   // of the frames, and of the window
	interval          float64 // between frames; 0: as the device takes them
	total             uint64  // frames of the open loop
	now               int64   // when the frames came that are taken
	full              bool    // the device had no room for a frame that was due
	freed             int64   // when it had some again

	latency, lag *hdrhistogram.Histogram
	// Of the window: frames that were due in it and were sent, and those of them that came; those that came
	// in it.
	sentIn, cameOf, cameIn uint64
	// Of the window: the frames that left, and the time, in rounds that had something to do and that no lack of
	// room held back.
	free struct {
		frames int
		time   int64
	}

	asking   []byte // a question, but for its stamp
	question uint64 // its number
	answered reply
}

// reply is what came of a question.
type reply struct {
	came  bool
	known bool   // by a forwarder that counts; another sends the question back as any frame
	how   string // the forwarder takes frames
	counts
	own ownDrops
}

// ownDrops are those of the generator's device and socket.
type ownDrops struct{ in, out, noRoom uint64 }

// Run sends frames to the application and measures what comes back.
func (p Probe) Run(ctx context.Context, given probe.Conditions) (results.Measurement, error) {
	given.Address = given.At(service)
	m := results.Measurement{Name: given.Name, Window: results.Nanoseconds(given.Window)}
	done, err := probe.HotLoop()
	if err != nil {
		return m, err
	}
	defer done()
	g, err := p.generator(given)
	if err != nil {
		return m, fmt.Errorf("frames to %s: %w", given.Address, err)
	}
	defer g.close()
	defer g.port.close()
	if err = g.measure(ctx, &m); err != nil {
		return m, fmt.Errorf("frames to %s: %w", given.Address, err)
	}
	return m, nil
}

func (p Probe) generator(given probe.Conditions) (*generator, error) {
	device, from, mac, err := toward(given.Address.Addr())
	if err != nil {
		return nil, err
	}
	if p.Forwarder == kernel {
		if err = beside(given.Address.Addr()); err != nil {
			return nil, err
		}
	}
	longest := 0
	for _, size := range p.Size.all() {
		longest = max(longest, size)
	}
	// without its header of Ethernet and its FCS a frame is what the device's limit is about
	if need := longest - atIP - fcs; need > device.Attrs().MTU {
		return nil, fmt.Errorf("size: frames of %d bytes need an MTU of %d, %s has %d", longest, need,
			device.Attrs().Name, device.Attrs().MTU)
	}
	g := &generator{Probe: p, Conditions: given, tally: newTally(), latency: probe.NewHistogram(),
		lag: probe.NewHistogram()}
	if g.clock, err = probe.NewClock(); err != nil {
		return nil, err
	}
	if g.local, err = reserve(device, netip.AddrPortFrom(from, 0)); err != nil {
		return nil, err
	}
	if g.port, err = open(g.local, p.Socket); err != nil {
		g.close()
		return nil, err
	}
	e := Ends{device.Attrs().HardwareAddr, mac, g.at, given.Address}
	g.asking = e.Blank(questionSize)
	if p.Forwarder == kernel { // it routes what is for us
		e.From, e.To = netip.AddrPortFrom(from, given.Address.Port()), g.at
	}
	for _, size := range p.Size.all() {
		g.ready = append(g.ready, e.Blank(size))
	}
	return g, nil
}
