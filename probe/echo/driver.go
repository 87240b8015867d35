package echo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// The values of Probe.
const (
	UDP = "udp"
	TCP = "tcp"

	PingPong = "pingpong" // closed loop: each message leaves after the reply to the last one
	Open     = "open"     // open loop: messages leave at a fixed rate, whatever the replies

	Spin  = "spin"  // poll for messages
	Block = "block" // sleep in the kernel until a message arrives
)

// Driver is the probe "echo". Its programs are commands of the isolane binary itself.
type Driver struct{}

// Probe measures round-trip times.
type Probe struct {
	probe.Own
	Protocol string            `json:"protocol"`       // default udp
	Payload  quantity.Bytes    `json:"payload"`        // default 64
	Mode     string            `json:"mode"`           // default pingpong
	Rate     float64           `json:"rate,omitempty"` // messages per second of the open loop
	Gap      quantity.Duration `json:"gap,omitempty"`  // pause after each reply of the closed loop
	// Wait is how to wait for messages; "": spin for the client, block for the application.
	Wait string `json:"wait,omitempty"`
}

// The payload holds the number of the message, and must fit into one UDP datagram.
const (
	minPayload = 16
	maxPayload = 65507
)

// port is the port of the echo protocol (RFC 862), moved out of the reserved range.
const port = 7007

// Name returns "echo".
func (Driver) Name() string { return "echo" }

// Programs returns none.
func (Driver) Programs() []string { return nil }

// Read reads the settings of a Probe.
func (Driver) Read(settings []byte) (probe.Probe, error) {
	p := Probe{Protocol: UDP, Payload: 64, Mode: PingPong}
	err := probe.Decode(settings, &p)
	return p, cmp.Or(err, p.validate())
}

func (p Probe) validate() error {
	switch {
	case !slices.Contains([]string{UDP, TCP}, p.Protocol):
		return fmt.Errorf("protocol: %q: expected udp or tcp", p.Protocol)
	case !slices.Contains([]string{PingPong, Open}, p.Mode):
		return fmt.Errorf("mode: %q: expected pingpong or open", p.Mode)
	case p.Payload < minPayload || p.Payload > maxPayload:
		return fmt.Errorf("payload: %d: expected %d-%d bytes", p.Payload, minPayload, maxPayload)
	case p.Mode == Open && (p.Rate <= 0 || p.Rate > 1e6 || p.Gap != 0):
		return fmt.Errorf("mode open: rate %g, gap %s: expected a rate of up to 1000000 messages per second and "+
			"no gap", p.Rate, p.Gap)
	case p.Mode == PingPong && (p.Rate != 0 || p.Gap < 0 || p.Gap.Duration() > time.Second):
		return fmt.Errorf("mode pingpong: rate %g, gap %s: expected no rate and a gap of at most 1 s", p.Rate,
			p.Gap)
	case !slices.Contains([]string{"", Spin, Block}, p.Wait):
		return fmt.Errorf("wait: %q: expected spin or block", p.Wait)
	}
	return nil
}

// Validate rejects windows without a message.
func (p Probe) Validate(c probe.Conditions) error {
	if p.Mode == Open && p.Rate*c.Window.Seconds() < 1 {
		return fmt.Errorf("measure: %s: expected at least one message within it at a rate of %g", c.Window, p.Rate)
	}
	return nil
}

// Metrics returns the round trips, and how much longer their median is in the second half of the window.
func (p Probe) Metrics(name string) []results.Metric {
	m := results.Metric{Name: name, Quantity: "rtt", Noun: "RTT", Title: "Round trip",
		About: "Median round trip (P50)",
		Unit:  results.TimeUnit, Better: results.Lower, Margin: 0.10, Sampled: true, Loop: results.Open}
	if p.Mode == PingPong {
		m.Loop = results.Closed
	}
	return []results.Metric{m, probe.Trend(m)}
}

// Inside returns false: the client measures from outside.
func (Probe) Inside() bool { return false }

// Server returns the command line at the application, which is the same for all probes.
func (Probe) Server(self string, c probe.Conditions) []string {
	return probe.Command(self, "echo", c, "--serve")
}

// Ready returns what the server prints when it listens.
func (Probe) Ready() string { return Ready }

// Client returns the command line of the client.
func (p Probe) Client(self string, c probe.Conditions) []string {
	return probe.OwnClient(self, "echo", p, c)
}

// InMachine reports that the probe can run in a virtual machine, and needs nothing there.
func (Probe) InMachine() (programs, modules []string, can bool) { return nil, nil, true }

// Serve is the application: it answers.
func (p Probe) Serve(ctx context.Context, c probe.Conditions, stdout io.Writer) error {
	return Serve(ctx, c.At(port), p.Wait, stdout)
}
