// Package iperf3 drives iperf3, which measures throughput, and reads its report.
package iperf3

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// Program is the name of the program, and of its package in Debian.
const Program = "iperf3"

// The values of Probe.Direction.
const (
	Up   = "up"   // client to application
	Down = "down" // application to client
)

// port is iperf3's default port.
const port = 5201

// maxWrite is the largest --length of iperf3 for TCP.
const maxWrite = 1 << 20

// Driver is the probe "iperf3".
type Driver struct{}

// Probe measures throughput.
type Probe struct {
	Protocol  string         `json:"protocol"` // tcp
	Direction string         `json:"direction"`
	Write     quantity.Bytes `json:"write"` // of one system call; default 128Ki
}

// Name returns "iperf3".
func (Driver) Name() string { return Program }

// Programs returns iperf3.
func (Driver) Programs() []string { return []string{Program} }

// Read reads the settings of a Probe.
func (Driver) Read(settings []byte) (probe.Probe, error) {
	p := Probe{Protocol: "tcp", Write: 128 << 10}
	if err := probe.Decode(settings, &p); err != nil {
		return nil, err
	}
	switch {
	case p.Protocol != "tcp":
		return nil, fmt.Errorf("protocol: %q: expected tcp for throughput", p.Protocol)
	case p.Direction != Up && p.Direction != Down:
		return nil, fmt.Errorf("direction: %q: expected up or down", p.Direction)
	case p.Write < 1 || p.Write > maxWrite:
		return nil, fmt.Errorf("write: %s: expected 1 byte to 1 MiB", p.Write)
	}
	return p, nil
}

// Validate requires whole seconds.
func (Probe) Validate(c probe.Conditions) error { return c.WholeSeconds(Program) }

// packetBytes is the TCP payload of a full packet with the usual MTU, 1500: IPv4, TCP and its timestamps take
// 52 bytes.
const packetBytes = 1448

// Metrics returns the rate at the receiver, what iperf3 says about the CPUs at both ends, and how much CPU
// time each packet took there.
func (p Probe) Metrics(name string) []results.Metric {
	rate := results.Metric{Name: name, Quantity: "throughput", Noun: "throughput", Title: "Throughput",
		About: "TCP, " + name, Unit: results.RateUnit, Better: results.Higher, Margin: 0.05, Short: p.Direction}
	check := func(word, noun, unit string) results.Metric {
		return results.Metric{Name: name + "-" + word, Quantity: word, Noun: noun, Title: noun, Unit: unit,
			Better: results.Lower, Margin: 0.10, Role: results.Check}
	}
	client := check("client-cpu", "client's CPU", "%")
	client.Guards, client.Limit = name, 90 // beyond it the client may limit the rate
	cost := check("cpu-time", "CPU time of both ends for a packet", results.TimeUnit)
	cost.Role = results.Cost
	cost.About = "CPU time is for each 1,448 bytes: all that the CPUs of client and application did " +
		"meanwhile, also other programs' work, and polling in vain"
	return []results.Metric{rate, cost, check("retransmits", "segments sent again", "segments"), client,
		check("server-cpu", "server's CPU", "%"), probe.Trend(rate)}
}

// Inside returns false: the client measures from outside.
func (Probe) Inside() bool { return false }

// Server returns the command line at the application, which is the same for all probes.
func (Probe) Server(_ string, c probe.Conditions) []string {
	return []string{Program, "--server", "--bind", c.Address.Addr().String(), "--port", portOf(c),
		"--forceflush"}
}

// Ready returns what the server prints when it listens.
func (Probe) Ready() string { return "Server listening" }

// InMachine reports that the server can run in a virtual machine, and needs nothing there.
func (Probe) InMachine() (programs, modules []string, can bool) { return nil, nil, true }

// Client returns the command line of the client. iperf3 takes whole seconds.
func (p Probe) Client(_ string, c probe.Conditions) []string {
	argv := []string{Program, "--client", c.Address.Addr().String(), "--port", portOf(c), "--json",
		"--time", seconds(c.Window), "--interval", interval,
		"--length", strconv.FormatUint(uint64(p.Write), 10)}
	if c.Warmup > 0 {
		argv = append(argv, "--omit", seconds(c.Warmup))
	}
	if p.Direction == Down {
		argv = append(argv, "--reverse")
	}
	if c.CongestionControl != "" {
		argv = append(argv, "--congestion", c.CongestionControl)
	}
	return argv
}

func portOf(c probe.Conditions) string { return strconv.Itoa(int(c.At(port).Port())) }

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// interval is the time in seconds of each part of the report. A second has two, so that each window has
// halves. If iperf3 is kept off its CPU, a part takes longer.
const interval = "0.5"

type part struct {
	Sum struct {
		sum
		// End is the end of the part in seconds of the window, which starts again after the omitted parts. Seconds
		// of the first part then include some of the warm-up.
		End     float64 `json:"end"`
		Omitted bool    `json:"omitted"` // of the warm-up
	} `json:"sum"`
}

// start is the part of the report about the setup. Buffers are 0 if iperf3 does not report them.
type start struct {
	Version string         `json:"version"`
	Send    quantity.Bytes `json:"sndbuf_actual"`
	Receive quantity.Bytes `json:"rcvbuf_actual"`
	Test    struct {
		Write quantity.Bytes `json:"blksize"`
	} `json:"test_start"`
}

// sum is the report on everything sent, or received. What iperf3 cannot compute is null, and 0 here.
type sum struct {
	BitsPerSecond float64 `json:"bits_per_second"`
	Bytes         float64 `json:"bytes"`
	Seconds       float64 `json:"seconds"`
	Retransmits   float64 `json:"retransmits"`
}

// end is the part of the report with the figures.
type end struct {
	Sent     sum  `json:"sum_sent"`
	Received *sum `json:"sum_received"`
	CPU      struct {
		Host   float64 `json:"host_total"`
		Remote float64 `json:"remote_total"`
	} `json:"cpu_utilization_percent"`
	Congestion string `json:"sender_tcp_congestion"`
}

// Parse reads the client's report: the rate at the receiver. An impossible figure makes the measurement void.
func (p Probe) Parse(output []byte, c probe.Conditions) (results.Measurement, error) {
	m := results.Measurement{Name: c.Name, Window: results.Nanoseconds(c.Window)}
	var r struct {
		Error     string `json:"error"`
		Start     start  `json:"start"`
		Intervals []part `json:"intervals"`
		End       *end   `json:"end"`
	}
	err := json.Unmarshal(output, &r)
	if odd, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("%s: expected another value than %s", odd.Field, odd.Value)
	}
	switch {
	case err != nil:
		return m, fmt.Errorf("%s report: %w", Program, err)
	case r.Error != "":
		return m, fmt.Errorf("%s: %s", Program, r.Error)
	case r.End == nil || r.End.Received == nil:
		return m, fmt.Errorf("%s report: expected end.sum_received", Program)
	}
	r.End.figures(&m, c)
	if sent := total(r.Intervals); c.Busy > 0 && sent > 0 {
		m.Values[c.Name+"-cpu-time"] = float64(c.Busy) * packetBytes / sent
	}
	first, second := halves(r.Intervals)
	probe.AddTrendOf(&m, first, second)
	m.Facts = r.Start.facts(r.End.Congestion)
	m.Conditions = slices.Sorted(maps.Keys(m.Facts))
	m.Facts["write"] = r.Start.Test.Write.String() // cells may differ in it on purpose
	if r.Start.Test.Write != p.Write {
		m.Void = append(m.Void, fmt.Sprintf("writes of %s, asked for %s", r.Start.Test.Write, p.Write))
	}
	if c.CongestionControl != "" && r.End.Congestion != c.CongestionControl {
		m.Void = append(m.Void, fmt.Sprintf("congestion control %s, asked for %s", r.End.Congestion,
			c.CongestionControl))
	}
	return m, nil
}

// total returns the bytes of all parts, including the warm-up.
func total(parts []part) (bytes float64) {
	for _, p := range parts {
		bytes += p.Sum.Bytes
	}
	return bytes
}

// halves returns the rates of both halves of the window; NaN if no part is within one.
func halves(parts []part) (first, second float64) {
	parts = slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.Sum.Omitted })
	begin := 0.0
	var bytes, seconds [2]float64
	for _, p := range parts {
		half := 0
		if begin+p.Sum.End >= parts[len(parts)-1].Sum.End { // the middle of the part is after that of the window
			half = 1
		}
		bytes[half], seconds[half], begin = bytes[half]+p.Sum.Bytes, seconds[half]+p.Sum.End-begin, p.Sum.End
	}
	return bytes[0] / seconds[0], bytes[1] / seconds[1]
}

// facts returns what iperf3 reports about the setup.
func (s start) facts(congestion string) map[string]string {
	said := map[string]string{"version": s.Version, "sendBuffer": s.Send.String(),
		"receiveBuffer": s.Receive.String(), "congestionControl": congestion}
	maps.DeleteFunc(said, func(_, value string) bool { return value == "" || value == "0" })
	return said
}

// Upper bounds of what is possible.
const (
	maxRate        = 1e14           // bit/s: no memory moves 12.5 TB/s
	maxRetransmits = math.MaxUint32 // as the kernel counts them
	maxLate        = 60             // seconds: the session ends a probe earlier
	rounding       = 1.05           // of CPU time and of windows
)

// figures stores the figures of a report. An impossible one makes the run void. The rate counts the bytes
// that arrived.
func (e end) figures(m *results.Measurement, c probe.Conditions) {
	in, window, cpus := e.Received, c.Window.Seconds(), 100*float64(c.CPUs)*rounding
	rate := 8 * in.Bytes / in.Seconds
	if in.Bytes == 0 {
		m.NotCarried("nothing was received")
	}
	for _, f := range []struct {
		field             string
		value, low, limit float64
	}{
		{"sum_received.bits_per_second", in.BitsPerSecond, max(0, rate/rounding), min(rate*rounding, maxRate)},
		{"sum_received.seconds", in.Seconds, window / rounding, window + maxLate},
		{"sum_sent.retransmits", e.Sent.Retransmits, 0, maxRetransmits},
		{"cpu_utilization_percent.host_total", e.CPU.Host, 0, cpus},
		{"cpu_utilization_percent.remote_total", e.CPU.Remote, 0, cpus},
	} {
		if !(f.value >= f.low && f.value <= f.limit) {
			m.Void = append(m.Void, fmt.Sprintf("end.%s of the report of %s: expected %.6g to %.6g, found %.6g",
				f.field, Program, f.low, f.limit, f.value))
		}
	}
	m.Values = map[string]float64{c.Name: in.BitsPerSecond, c.Name + "-retransmits": e.Sent.Retransmits,
		c.Name + "-client-cpu": e.CPU.Host, c.Name + "-server-cpu": e.CPU.Remote}
}
