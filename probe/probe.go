// Package probe holds what the measuring programs share: what a probe is told, and the clock and
// the manners of a hot loop.
package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// The values of Settings.
const (
	UDP = "udp"
	TCP = "tcp"

	PingPong = "pingpong" // closed loop: the next message leaves after the reply to the last
	Open     = "open"     // open loop: messages leave at a fixed rate, whatever the replies do

	Spin  = "spin"  // poll for the message
	Block = "block" // sleep in the kernel until it is there

	Up   = "up"   // client to application
	Down = "down" // application to client
)

// Settings is what one measurement is told. In JSON, durations are in nanoseconds.
type Settings struct {
	Name          string         `json:"name"`
	Address       netip.AddrPort `json:"address"` // of the application
	Protocol      string         `json:"protocol"`
	Warmup        time.Duration  `json:"warmupNanoseconds"` // measured and dropped
	Window        time.Duration  `json:"windowNanoseconds"`
	PayloadBytes  int            `json:"payloadBytes,omitempty"`
	Mode          string         `json:"mode,omitempty"`
	RatePerSecond float64        `json:"ratePerSecond,omitempty"` // open loop
	Gap           time.Duration  `json:"gapNanoseconds,omitempty"`
	Wait          string         `json:"wait,omitempty"` // of the client; "" is Spin
	Direction     string         `json:"direction,omitempty"`
	WriteBytes    int            `json:"writeBytes,omitempty"`
	// CongestionControl is TCP's algorithm, "" leaves the host's.
	CongestionControl string `json:"congestionControl,omitempty"`
}

// MinPayload holds the number of a message.
const MinPayload = 16

// MaxPayload is the largest message: one UDP datagram.
const MaxPayload = 65507

// Validate says what is wrong with the settings; the error names the field. The address is not
// looked at: it is known late.
func (s Settings) Validate() error {
	switch {
	case !slices.Contains([]string{UDP, TCP}, s.Protocol):
		return fmt.Errorf("protocol: %q: expected udp or tcp", s.Protocol)
	case s.Window <= 0 || s.Warmup < 0 || s.Window > 24*time.Hour || s.Warmup > time.Hour:
		return fmt.Errorf("window %s, warmup %s: expected more than 0 and at most 24 h, at least 0 and at most 1 h",
			s.Window, s.Warmup)
	case s.Direction != "":
		return s.validateThroughput()
	case !slices.Contains([]string{PingPong, Open}, s.Mode):
		return fmt.Errorf("mode: %q: expected pingpong or open", s.Mode)
	case s.PayloadBytes < MinPayload || s.PayloadBytes > MaxPayload:
		return fmt.Errorf("payload: %d: expected %d-%d bytes", s.PayloadBytes, MinPayload, MaxPayload)
	case s.Mode == Open && (s.RatePerSecond <= 0 || s.RatePerSecond > 1e6 || s.Gap != 0):
		return fmt.Errorf("mode open: rate %g, gap %s: expected a rate of up to 1000000 messages per second and "+
			"no gap", s.RatePerSecond, s.Gap)
	case s.Mode == PingPong && (s.RatePerSecond != 0 || s.Gap < 0 || s.Gap > time.Second):
		return fmt.Errorf("mode pingpong: rate %g, gap %s: expected no rate and a gap of at most 1 s",
			s.RatePerSecond, s.Gap)
	case !slices.Contains([]string{"", Spin, Block}, s.Wait):
		return fmt.Errorf("wait: %q: expected spin or block", s.Wait)
	}
	return nil
}

func (s Settings) validateThroughput() error {
	switch {
	case s.Protocol != TCP:
		return fmt.Errorf("protocol: %q: expected tcp for throughput", s.Protocol)
	case !slices.Contains([]string{Up, Down}, s.Direction):
		return fmt.Errorf("direction: %q: expected up or down", s.Direction)
	case s.Mode != "" || s.PayloadBytes != 0 || s.RatePerSecond != 0 || s.Gap != 0 || s.Wait != "":
		return fmt.Errorf("direction: %q does not go with mode, payload, rate, gap or wait", s.Direction)
	case s.WriteBytes < 1 || s.WriteBytes > 1<<20:
		return fmt.Errorf("write: %d: expected 1 byte to 1 MiB", s.WriteBytes)
	case s.Window%time.Second != 0 || s.Warmup%time.Second != 0:
		return fmt.Errorf("window %s, warmup %s: iperf3 takes whole seconds", s.Window, s.Warmup)
	}
	return nil
}
