// Package iperf3 drives iperf3, which measures throughput, and reads its report.
package iperf3

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// Program is the program; it is a package of that name in Debian.
const Program = "iperf3"

// Driver is the probe "iperf3".
type Driver struct{}

// Name returns "iperf3".
func (Driver) Name() string { return "iperf3" }

// Port is iperf3's own.
func (Driver) Port() int { return 5201 }

// Server is the command line at the application.
func (Driver) Server(_ string, s probe.Settings) []string {
	return []string{Program, "--server", "--bind", s.Address.Addr().String(), "--port", port(s), "--forceflush"}
}

// Ready is what the server prints when it listens.
func (Driver) Ready() string { return "Server listening" }

// Client is the command line of the client. iperf3 takes whole seconds.
func (Driver) Client(_ string, s probe.Settings) []string {
	argv := []string{Program, "--client", s.Address.Addr().String(), "--port", port(s), "--json",
		"--time", seconds(s.Window), "--length", strconv.Itoa(s.WriteBytes)}
	if s.Warmup > 0 {
		argv = append(argv, "--omit", seconds(s.Warmup))
	}
	if s.Direction == probe.Down {
		argv = append(argv, "--reverse")
	}
	if s.CongestionControl != "" {
		argv = append(argv, "--congestion", s.CongestionControl)
	}
	return argv
}

func port(s probe.Settings) string { return strconv.Itoa(int(s.Address.Port())) }

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// Parse reads the client's report: the rate that the receiver saw.
func (Driver) Parse(output []byte, s probe.Settings) (results.Measurement, error) {
	m := results.Measurement{Name: s.Name, Metric: "throughput", Window: results.Nanoseconds(s.Window)}
	var r struct {
		Error string `json:"error"`
		End   *struct {
			Sent struct {
				Retransmits uint64 `json:"retransmits"`
			} `json:"sum_sent"`
			Received *struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
			CPU struct {
				Host   float64 `json:"host_total"`
				Remote float64 `json:"remote_total"`
			} `json:"cpu_utilization_percent"`
			Congestion string `json:"sender_tcp_congestion"`
		} `json:"end"`
	}
	if err := json.Unmarshal(output, &r); err != nil {
		return m, fmt.Errorf("%s report: %w", Program, err)
	}
	if r.Error != "" {
		return m, fmt.Errorf("%s: %s", Program, r.Error)
	}
	if r.End == nil || r.End.Received == nil {
		return m, fmt.Errorf("%s report: expected end.sum_received", Program)
	}
	m.Rate = &results.Throughput{Protocol: s.Protocol, Direction: s.Direction, WriteBytes: s.WriteBytes,
		BitsPerSecond: r.End.Received.BitsPerSecond, Retransmits: r.End.Sent.Retransmits,
		CongestionControl: r.End.Congestion, ClientCPUPercent: r.End.CPU.Host, ServerCPUPercent: r.End.CPU.Remote}
	if m.Rate.BitsPerSecond <= 0 {
		m.Void = append(m.Void, "nothing was received")
	}
	if s.CongestionControl != "" && r.End.Congestion != s.CongestionControl {
		m.Void = append(m.Void, fmt.Sprintf("congestion control %s, asked for %s", r.End.Congestion,
			s.CongestionControl))
	}
	return m, nil
}
