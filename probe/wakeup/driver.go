// Package wakeup measures wake-up latency: how much later than requested a sleeping thread runs again. It
// does what cyclictest does (one thread per CPU, SCHED_FIFO, absolute times), and counts what cyclictest
// leaves out: a thread that was late has missed activations, and each of them is a sample.
package wakeup

import (
	"fmt"
	"slices"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// The values of Probe.Policy.
const (
	FIFO  = "fifo"
	Other = "other"
)

const (
	usualPriority = 80
	minInterval   = 50 * time.Microsecond
	maxInterval   = time.Second
	maxThreads    = 1024
)

// Driver is the probe "wakeup". Its program is a command of the isolane binary itself.
type Driver struct{}

// Probe measures wake-up latency.
type Probe struct {
	probe.Alone
	probe.Own
	Interval quantity.Duration `json:"interval"`           // between two activations of a thread; default 1ms
	Policy   string            `json:"policy"`             // default fifo
	Priority int               `json:"priority,omitempty"` // of fifo; default 80
	Threads  int               `json:"threads,omitempty"`  // 0: one for each CPU that the process may use
	Pin      bool              `json:"pin"`                // each thread to a CPU of its own; default true
	// HoldIdle keeps all CPUs of the host out of idle states, through /dev/cpu_dma_latency. cyclictest does so
	// by default, rtla does not.
	HoldIdle bool `json:"holdIdle"`
}

// Name returns "wakeup".
func (Driver) Name() string { return "wakeup" }

// Programs returns none.
func (Driver) Programs() []string { return nil }

// Read reads the settings of a Probe.
func (Driver) Read(settings []byte) (probe.Probe, error) {
	const unset = -1
	p := Probe{Interval: quantity.Duration(time.Millisecond), Policy: FIFO, Priority: unset, Pin: true}
	if err := probe.Decode(settings, &p); err != nil {
		return nil, err
	}
	if p.Priority == unset {
		p.Priority = 0
		if p.Policy == FIFO {
			p.Priority = usualPriority
		}
	}
	return p, p.validate()
}

func (p Probe) validate() error {
	switch interval := p.Interval.Duration(); {
	case interval < minInterval || interval > maxInterval:
		return fmt.Errorf("interval: %s: expected 50us to 1s", p.Interval)
	case !slices.Contains([]string{FIFO, Other}, p.Policy):
		return fmt.Errorf("policy: %q: expected fifo or other", p.Policy)
	case p.Policy == FIFO && (p.Priority < 1 || p.Priority > 99):
		return fmt.Errorf("priority: %d: expected 1-99 for policy fifo", p.Priority)
	case p.Policy == Other && p.Priority != 0:
		return fmt.Errorf("priority: %d: expected none for policy other", p.Priority)
	case p.Threads < 0 || p.Threads > maxThreads:
		return fmt.Errorf("threads: %d: expected 1-%d, or 0 for one on each CPU", p.Threads, maxThreads)
	}
	return nil
}

// Validate requires a window with at least one activation.
func (p Probe) Validate(c probe.Conditions) error {
	if c.Window < p.Interval.Duration() {
		return fmt.Errorf("measure: %s: expected at least the interval, %s", c.Window, p.Interval)
	}
	return nil
}

// Metrics returns the latency, and how many activations were missed.
func (p Probe) Metrics(name string) []results.Metric {
	about := fmt.Sprintf("Median wake-up latency (P50) at %s, %s", p.Interval, p.Policy)
	if p.Policy == FIFO {
		about += fmt.Sprintf(" %d", p.Priority)
	}
	m := results.Metric{Name: name, Quantity: "wakeup", Noun: "wake-up latency", Title: "Wake-up latency",
		About: about, Unit: results.TimeUnit, Better: results.Lower, Margin: 0.10, Sampled: true,
		Loop: results.Open}
	return []results.Metric{m,
		{Name: missed(name), Quantity: "missed", Noun: "missed activations", Title: "Missed activations",
			About: "due before their thread was done with an earlier one", Unit: "activations",
			Better: results.Lower, Margin: 0.10, Role: results.Check}, probe.Trend(m)}
}

func missed(name string) string { return name + "-missed" }

// Capabilities returns those for its scheduling class, locked memory and /dev/cpu_dma_latency.
func (Probe) Capabilities() []string { return []string{"SYS_NICE", "IPC_LOCK"} }

// Client returns the command line.
func (p Probe) Client(self string, c probe.Conditions) []string {
	return probe.OwnClient(self, "wakeup", p, c)
}
