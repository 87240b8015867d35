// Package rtla drives rtla timerlat hist, the kernel's own measure of wake-up latency, and reads its output
// (Linux 6.5 and later). It uses rtla's user threads (-u), which run where the application does: the threads
// of the timerlat tracer itself are kernel threads, outside any lane. Like cyclictest it skips the
// activations that it missed, so after a stall its percentiles are too good, and only its maximum is
// reliable.
package rtla

import (
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/timer"
	"isolane.dev/isolane/results"
)

// Program is the name of the program, and of its package in Debian.
const Program = "rtla"

// minInterval is timerlat's own limit (kernel/trace/trace_osnoise.c).
const minInterval = 100 * time.Microsecond

// The histogram has buckets of 1 µs, as cyclictest's. Longer samples are only counted.
const (
	bucket       = time.Microsecond
	buckets      = 100_000
	histogramEnd = buckets * bucket
)

// Driver is the probe "rtla". Its client is a command of the isolane binary, which runs rtla on the CPUs that
// it may use itself.
type Driver struct{}

// Probe measures wake-up latency with SCHED_FIFO threads, one per CPU.
type Probe struct {
	probe.Alone
	probe.Own
	timer.Settings
}

// Name returns "rtla".
func (Driver) Name() string { return Program }

// Programs returns rtla.
func (Driver) Programs() []string { return []string{Program} }

// Read reads the settings of a Probe.
func (Driver) Read(settings []byte) (probe.Probe, error) {
	s, err := timer.Read(settings, minInterval)
	return Probe{Settings: s}, err
}

// Validate requires whole seconds.
func (Probe) Validate(c probe.Conditions) error { return c.WholeSeconds(Program) }

// Metrics returns the latency of the thread; as checks, the latency of the timer's interrupt before it, and
// that of the return to the program after it; and how many activations were skipped.
func (p Probe) Metrics(name string) []results.Metric {
	latency := p.Latency(name, Program, "rtla timerlat, which reads the clock in the kernel, before the thread "+
		"returns to its program")
	irq, user := latency, latency
	irq.Name, irq.Quantity, irq.Noun, irq.Title = name+interrupts, "wakeup-irq", "interrupt latency",
		"Latency of the timer's interrupt"
	irq.About, irq.Role = "the part of the wake-up latency (rtla) before the timer's interrupt", results.Check
	user.Name, user.Quantity, user.Noun, user.Title = name+returns, "wakeup-return", "latency of the return",
		"Wake-up latency with the return"
	user.About, user.Role = "until the program (rtla) has run, and is back in the kernel", results.Check
	return []results.Metric{latency, irq, user, timer.Skipped(name, Program)}
}

// The suffixes that make names of the other metrics from the probe's name.
const (
	interrupts = "-irq"
	returns    = "-return"
)

// Capabilities returns the one for its scheduling class.
func (Probe) Capabilities() []string { return []string{"SYS_NICE"} }

// OnHost says why the probe cannot run in a guest.
func (Probe) OnHost() string {
	return "rtla measures with the tracer of the host's kernel, which a container or virtual machine has not"
}

// Client returns the command line of the client.
func (p Probe) Client(self string, c probe.Conditions) []string {
	return probe.OwnClient(self, Program, p, c)
}
