// Package frames measures forwarding. A generator sends Ethernet frames past the kernel's network stack, the
// application sends each back as a router does, and both count what they see. A frame that does not come back
// was either dropped where that was counted, or lost without a trace.
package frames

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// kind is the name of the probe.
const kind = "frames"

// The values of Probe.Forwarder.
const (
	ours    = "isolane"
	kernel  = "kernel"  // as a router
	testpmd = "testpmd" // of DPDK
)

// The values of Probe.Wait.
const (
	spin     = "spin"
	block    = "block"
	adaptive = "adaptive" // poll while frames arrive, and sleep after the time awake without one
)

// service is the forwarder's port: that of the discard protocol (RFC 863), moved out of the reserved range.
const service = 7009

// Size is the size of frames in bytes, including the FCS, as is usual in the field. Mix is a mixture of three
// sizes.
type Size int

// Mix is Size "imix": of twelve frames, 7 have 64 bytes, 4 have 594 and 1 has 1518.
const Mix Size = 0

const (
	minSize = 64
	maxSize = 1518
)

// mix returns the sizes of a Mix in their order.
func mix() []int { return []int{64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64} }

// UnmarshalJSON accepts a number, or "imix".
func (s *Size) UnmarshalJSON(data []byte) error {
	if string(data) == `"imix"` {
		*s = Mix
		return nil
	}
	v, err := strconv.Atoi(string(data))
	if err != nil || v < minSize || v > maxSize {
		return fmt.Errorf("%s: expected %d-%d bytes with the FCS, or imix", data, minSize, maxSize)
	}
	*s = Size(v)
	return nil
}

// MarshalJSON is the inverse of UnmarshalJSON.
func (s Size) MarshalJSON() ([]byte, error) {
	if s == Mix {
		return []byte(`"imix"`), nil
	}
	return json.Marshal(int(s))
}

// String returns the size in words.
func (s Size) String() string {
	if s == Mix {
		return "IMIX"
	}
	return strconv.Itoa(int(s)) + " bytes"
}

// all returns the sizes in the order in which frames have them.
func (s Size) all() []int {
	if s == Mix {
		return mix()
	}
	return []int{int(s)}
}

const maxRate = 2e7 // more of the shortest frames than 10 Gbit/s carries

// Driver is the probe "frames". Its client, and mostly its application, are commands of the isolane binary.
type Driver struct{}

// Probe measures what a forwarder carries.
type Probe struct {
	probe.Own
	Size      Size       `json:"size"`      // default 64
	Rate      probe.Rate `json:"rate"`      // frames per second; default max: as many as the device accepts
	Forwarder string     `json:"forwarder"` // default isolane
	Socket    string     `json:"socket"`    // of both ends; default auto
	Wait      string     `json:"wait"`      // of isolane's forwarder; default block. The generator always polls.
}

// Name returns "frames".
func (Driver) Name() string { return kind }

// Programs returns none: only the settings say which forwarder is needed.
func (Driver) Programs() []string { return nil }

// Read reads the settings of a Probe.
func (Driver) Read(settings []byte) (probe.Probe, error) {
	p := Probe{Size: minSize, Rate: probe.Max, Forwarder: ours, Socket: auto, Wait: block}
	if err := probe.Decode(settings, &p); err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains([]string{ours, kernel, testpmd}, p.Forwarder):
		return nil, fmt.Errorf("forwarder: %q: expected isolane, kernel or testpmd", p.Forwarder)
	case !slices.Contains([]string{auto, xdp, packets}, p.Socket):
		return nil, fmt.Errorf("socket: %q: expected auto, xdp or packet", p.Socket)
	case !slices.Contains([]string{spin, block, adaptive}, p.Wait):
		return nil, fmt.Errorf("wait: %q: expected spin, block or adaptive", p.Wait)
	}
	return p, p.Rate.AtMost(maxRate, "frames")
}

// Needs returns the program of the forwarder and its Debian package; none for isolane's own forwarder.
func (p Probe) Needs() (name, debian string) {
	if p.Forwarder == testpmd {
		return program, "dpdk-dev"
	}
	return "", ""
}

// Capabilities returns those that the forwarder needs to take frames from a device.
func (Probe) Capabilities() []string { return []string{"BPF", "NET_ADMIN", "NET_RAW"} }

// Validate rejects windows without a frame, and IPv6 addresses.
func (p Probe) Validate(c probe.Conditions) error {
	if p.Rate != probe.Max && float64(p.Rate)*c.Window.Seconds() < 1 {
		return fmt.Errorf("measure: %s: expected at least one frame within it at a rate of %g", c.Window, p.Rate)
	}
	if a := c.Address.Addr(); a.IsValid() && !a.Is4() {
		return fmt.Errorf("address %s: expected one of IPv4", a)
	}
	return nil
}

// The suffixes that make names of metrics from the probe's name.
const (
	latency    = "-latency"
	sent       = "-sent"
	lost       = "-lost"
	lostThere  = "-lost-there"
	lostWithin = "-lost-within"
	lostBack   = "-lost-back"
	unnamed    = "-unnamed"
	doubled    = "-doubled"
	reordered  = "-reordered"
	foreign    = "-foreign"
	able       = "-able"
	use        = "-use"
)

// inUse is the percentage of the generator's capacity beyond which the generator may be the limit, not the
// forwarder. A slower forwarder returns fewer of the frames.
const inUse = 95

// Metrics returns the frames that came back, in an open loop how long they took, and what can be counted
// about the others.
func (p Probe) Metrics(name string) []results.Metric {
	about := fmt.Sprintf("frames of %s that came back, offered %g/s", p.Size, float64(p.Rate))
	loop := results.Open
	if p.Rate == probe.Max {
		about = fmt.Sprintf("frames of %s that came back, as many offered as the device takes", p.Size)
		loop = results.Closed
	}
	all := []results.Metric{{Name: name, Quantity: "forwarding", Noun: "forwarding", Title: "Forwarding",
		About: about, Unit: "frames/s", Better: results.Higher, Margin: 0.05, Loop: loop}}
	if p.Rate != probe.Max {
		all = append(all, results.Metric{Name: name + latency, Quantity: "forwarding-latency",
			Noun: "latency of forwarding", Title: "Latency of forwarding",
			About: fmt.Sprintf("frames of %s there and back, from the intended time", p.Size), Unit: results.TimeUnit,
			Better: results.Lower, Margin: 0.10, Sampled: true, Loop: loop})
	}
	return append(all, p.checks(name, all[len(all)-1].Name)...)
}

// checks returns the metrics that say whether the figure can be trusted. It cannot if frames are lost without
// a trace, or if there are too many of them.
func (p Probe) checks(name, figure string) (all []results.Metric) {
	check := func(word, noun, unit string) *results.Metric {
		all = append(all, results.Metric{Name: name + word, Quantity: kind + word, Noun: noun, Title: noun,
			Unit: unit, Better: results.Lower, Margin: 0.10, Role: results.Check})
		return &all[len(all)-1]
	}
	check(sent, "frames that the generator sent", "frames/s")
	check(able, "frames that the generator can send", "frames/s").Better = results.Higher
	if p.Rate == probe.Max {
		limit := check(use, "use of the generator", "%")
		limit.About = "frames that came, of what it can send"
		limit.Guards, limit.Limit = figure, inUse
	}
	check(lost, "frames lost", "frames")
	if p.Forwarder != testpmd {
		check(lostThere, "frames lost on the way there", "frames")
		check(lostWithin, "frames lost in the forwarder", "frames")
		check(lostBack, "frames lost on the way back", "frames")
	}
	check(unnamed, "frames lost, nobody says where", "frames").Guards = figure
	check(doubled, "frames that came twice", "frames").Guards = figure
	check(reordered, "frames that came after later ones", "frames")
	check(foreign, "foreign frames at the generator's port", "frames").Guards = figure
	return all
}

// InMachine reports that isolane's forwarder can run in a virtual machine, and needs nothing there.
func (p Probe) InMachine() (programs, modules []string, can bool) {
	return nil, nil, p.Forwarder == ours
}

// Inside returns false: the generator measures from outside.
func (Probe) Inside() bool { return false }

// Server returns the command line at the application, which is the same for all sizes and rates.
func (p Probe) Server(self string, c probe.Conditions) []string {
	return probe.Command(self, kind, c, "--serve",
		fmt.Sprintf("{forwarder: %s, socket: %s, wait: %s}", p.Forwarder, p.Socket, p.Wait))
}

// Client returns the command line of the generator.
func (p Probe) Client(self string, c probe.Conditions) []string {
	return probe.OwnClient(self, kind, p, c)
}
