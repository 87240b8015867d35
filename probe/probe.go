// Package probe is what the measuring programs share: what a scenario sees of a probe, the conditions under
// which it measures, and the clock and the rules of a hot loop.
package probe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"isolane.dev/isolane/results"
)

// Driver is a kind of probe.
type Driver interface {
	Name() string       // in a scenario
	Programs() []string // needed on the host beside isolane; see Package
	// Read reads what the scenario says about a probe beside its name and kind, as YAML. Unknown fields are
	// errors, and an error names its field.
	Read(settings []byte) (Probe, error)
}

// Packaged is a Driver whose programs are in Debian packages of other names.
type Packaged interface {
	Package(program string) string
}

// Package returns the Debian package of a driver's program: it has the same name, unless the driver is
// Packaged.
func Package(d Driver, program string) string {
	if p, ok := d.(Packaged); ok {
		return p.Package(program)
	}
	return program
}

// Probe is one measurement of a scenario. Usually a program is the application, and a client outside measures
// it. In JSON it is its settings, with all defaults filled in.
type Probe interface {
	Validate(Conditions) error // says if these conditions are impossible
	// Metrics are what it measures, under its name in the scenario. The first one represents the probe, and has
	// that name.
	Metrics(name string) []results.Metric
	// Inside reports that the application itself measures: there is no client, and no network.
	Inside() bool
	// Server is the command line at the application; nil if the probe has no server. One server serves all
	// probes with the same command line.
	Server(self string, c Conditions) []string
	Ready() string // what the server prints once it is usable
	Client(self string, c Conditions) []string
	// Parse reads what the client printed.
	Parse(output []byte, c Conditions) (results.Measurement, error)
}

// Find returns the kind of that name, of probes or of factors.
func Find[D interface{ Name() string }](kinds []D, name string) (none D, err error) {
	var known []string
	for _, k := range kinds {
		if k.Name() == name {
			return k, nil
		}
		known = append(known, k.Name())
	}
	return none, fmt.Errorf("%q is unknown: expected %s", name, strings.Join(known, ", "))
}

// Conditions are the conditions that a session sets for a measurement.
type Conditions struct {
	Name    string         // of the probe in the scenario
	Address netip.AddrPort // of the application; port 0: the probe's own
	Dir     string         // of files that the programs need, removed after the run
	Warmup  time.Duration  // measured and dropped
	Window  time.Duration  // measured
	CPUs    int            // of the host
	// ApplicationCPUs is the number of CPUs that the application may use. Only Parse has it.
	ApplicationCPUs int
	// Busy is the time that the CPUs of client and application were not idle while the client ran. Only Parse
	// has it, and it is 0 if others run there on purpose.
	Busy time.Duration
	// CongestionControl is TCP's algorithm; "": the host's.
	CongestionControl string
	// Instances is how many instances of the application run; 0: one. Each has a client, which offers its part
	// of the load. Instance is the index of this one.
	Instance, Instances int
	// Start is when all instances begin the warm-up, on CLOCK_MONOTONIC; 0: as soon as this one can.
	Start int64
	// Seed is the session's seed for random choices. Draw names what they are drawn for, the block or the trial;
	// "": none. The cells of a block have the same draw, because they are compared with each other.
	Seed uint64
	Draw string
}

// SeedOf returns the seed for random choices in this measurement, given the probe's own seed; 0: the
// session's.
func (c Conditions) SeedOf(own uint64) uint64 {
	seed := cmp.Or(own, c.Seed, 1)
	if c.Draw == "" {
		return seed
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, c.Draw+" "+c.Name)
	return rand.NewPCG(seed, h.Sum64()).Uint64()>>32 + 1
}

// Behind is the device with which an application that stands between its clients and what they ask for
// reaches its client. Its other device, like that of every application, leads outside.
const Behind = "eth1"

// Validate checks warm-up and window. It does not check the address, which is known later.
func (c Conditions) Validate() error {
	switch {
	case c.Window < time.Millisecond || c.Window > 24*time.Hour:
		return fmt.Errorf("measure: %s: expected 1ms to 24h", c.Window)
	case c.Warmup < 0 || c.Warmup > time.Hour:
		return fmt.Errorf("warmup: %s: expected at least 0 and at most 1h", c.Warmup)
	}
	return nil
}

// WholeSeconds checks the conditions for a program that accepts only whole seconds.
func (c Conditions) WholeSeconds(program string) error {
	switch {
	case c.Window%time.Second != 0:
		return fmt.Errorf("measure: %s: %s takes whole seconds", c.Window, program)
	case c.Warmup%time.Second != 0:
		return fmt.Errorf("warmup: %s: %s takes whole seconds", c.Warmup, program)
	}
	return nil
}

// At returns the address, with this port if it has none.
func (c Conditions) At(port uint16) netip.AddrPort {
	if c.Address.Port() != 0 {
		port = c.Address.Port()
	}
	return netip.AddrPortFrom(c.Address.Addr(), port)
}

// Alone is embedded by a probe that is the application itself: it has no client and no server.
type Alone struct{}

// Inside returns true.
func (Alone) Inside() bool { return true }

// Server returns none.
func (Alone) Server(string, Conditions) []string { return nil }

// Ready returns nothing.
func (Alone) Ready() string { return "" }

// Own is embedded by a probe whose client is OwnClient.
type Own struct{}

// Parse reads what the client has printed: a Measurement.
func (Own) Parse(output []byte, c Conditions) (results.Measurement, error) {
	var m results.Measurement
	if err := json.Unmarshal(output, &m); err != nil {
		return m, fmt.Errorf("%s: report of the client: %w", c.Name, err)
	}
	return m, nil
}

// OwnClient returns the command line of a client that is a command of isolane itself. Its argument is the
// probe's settings.
func OwnClient(self, kind string, p Probe, c Conditions) []string {
	settings, err := json.Marshal(p)
	if err != nil {
		panic(err) // plain data
	}
	return Command(self, kind, c, "--name", c.Name, string(settings))
}

// Command returns the command line of a probe of that kind that is a command of isolane itself.
func Command(self, kind string, c Conditions, more ...string) []string {
	argv := []string{self, "probe", kind, "--address", c.Address.String(), "--warmup", c.Warmup.String(),
		"--window", c.Window.String()}
	if c.Dir != "" {
		argv = append(argv, "--dir", c.Dir)
	}
	if c.Start != 0 {
		argv = append(argv, "--start", strconv.FormatInt(c.Start, 10))
	}
	return append(argv, more...)
}

// Runner is a Probe whose measuring program is isolane itself.
type Runner interface {
	Run(context.Context, Conditions) (results.Measurement, error)
}

// Server is a Probe whose application is isolane itself.
type Server interface {
	Serve(context.Context, Conditions, io.Writer) error // until the context ends
}

// Merger is a Probe that can measure several instances of the application at once: its clients begin at the
// same time, and their measurements become one.
type Merger interface {
	Merge(name string, each []results.Measurement) (results.Measurement, error)
}

// ByHand returns what `isolane probe` does with a probe: it measures and prints the Measurement, or is the
// application that is measured (serve). An error in the conditions names the flag.
func ByHand(kinds []Driver, kind, settings string, c Conditions, serve bool) (
	func(context.Context, io.Writer) error, error,
) {
	d, err := Find(kinds, kind)
	if err != nil {
		return nil, fmt.Errorf("probe %w", err)
	}
	p, err := d.Read([]byte(settings))
	if err != nil {
		return nil, err
	}
	runs, ok := p.(Runner)
	if !ok {
		return nil, fmt.Errorf("probe %s: no client of Isolane's: run its program, or a scenario with it", kind)
	}
	if _, several := p.(Merger); c.Start != 0 && !several {
		return nil, fmt.Errorf("--start: expected a probe that measures several instances, found %s", kind)
	}
	if err = cmp.Or(c.Validate(), p.Validate(c)); err != nil { // the error names fields of a scenario
		return nil, errors.New("--" + strings.Replace(err.Error(), "measure:", "window:", 1))
	}
	application, ok := p.(Server)
	if serve && !ok {
		return nil, fmt.Errorf("probe %s is the application itself: leave out --serve", kind)
	}
	return func(ctx context.Context, w io.Writer) error {
		if serve {
			return serveByHand(ctx, application, c, w)
		}
		m, err := runs.Run(ctx, c)
		if err != nil {
			return err
		}
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(m)
	}, nil
}

// serveByHand makes a directory for the application's files if it has none.
func serveByHand(ctx context.Context, application Server, c Conditions, w io.Writer) (err error) {
	if c.Dir == "" {
		if c.Dir, err = os.MkdirTemp("", "isolane-probe-"); err != nil {
			return err
		}
		defer os.RemoveAll(c.Dir)
	}
	return application.Serve(ctx, c, w)
}
