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

// stragglers is how long the generator waits for frames after the window, and how late a frame may leave.
const stragglers = time.Second

// generator is the client. One thread does everything: it sends what is due, and counts what arrives. It
// polls while frames are under way, and otherwise sleeps.
type generator struct {
	Probe
	probe.Conditions
	local
	tally
	port  *opened
	clock probe.Clock
	ready [][]byte // frames without their stamps, in the order of their sizes

	first, begin, end int64   // of the frames, and of the window
	interval          float64 // between frames; 0: as fast as the device accepts them
	total             uint64  // frames in the open loop
	now               int64   // when the frames arrived that are now taken
	full              bool    // the device had no room for a frame that was due
	freed             int64   // when it had room again

	latency, lag *hdrhistogram.Histogram
	// In the window: frames that were due in it and were sent, those of them that came back, and frames that
	// came back in it.
	sentIn, cameOf, cameIn uint64
	// In the window: frames that left, and the time that took, in rounds that had something to do and were not
	// held back by a lack of room.
	free struct {
		frames int
		time   int64
	}

	asking   []byte // a question without its stamp
	question uint64 // its number
	answered reply
}

// reply is the result of a question.
type reply struct {
	came  bool
	known bool   // the forwarder counts; another one sends the question back like any frame
	how   string // how the forwarder takes frames
	counts
	own ownDrops
}

// ownDrops are the drops of the generator's device and socket.
type ownDrops struct{ in, out, noRoom uint64 }

// Run sends frames to the application, and measures what comes back.
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
	// the device's limit is on a frame without its Ethernet header and FCS
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
	if p.Forwarder == kernel { // it routes the packets to us
		e.From, e.To = netip.AddrPortFrom(from, given.Address.Port()), g.at
	}
	for _, size := range p.Size.all() {
		g.ready = append(g.ready, e.Blank(size))
	}
	return g, nil
}
