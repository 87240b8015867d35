package echo

import (
	"encoding/json"
	"fmt"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// Driver is the probe "echo". Its programs are commands of the isolane binary itself.
type Driver struct{}

// Name returns "echo".
func (Driver) Name() string { return "echo" }

// Port is that of the echo protocol (RFC 862), out of the reserved range.
func (Driver) Port() int { return 7007 }

// Server is the command line at the application.
func (Driver) Server(self string, s probe.Settings) []string {
	return []string{self, "probe", "echo", "--serve", "--address", s.Address.String()}
}

// Ready is what the server prints when it listens.
func (Driver) Ready() string { return Ready }

// Client is the command line of the client.
func (Driver) Client(self string, s probe.Settings) []string {
	settings, err := json.Marshal(s)
	if err != nil {
		panic(err) // plain data
	}
	return []string{self, "probe", "echo", "--settings", string(settings)}
}

// Parse reads what the client printed.
func (Driver) Parse(output []byte, s probe.Settings) (results.Measurement, error) {
	var m results.Measurement
	if err := json.Unmarshal(output, &m); err != nil {
		return m, fmt.Errorf("%s: report of the client: %w", s.Name, err)
	}
	return m, nil
}
