// Package rtla drives rtla timerlat hist, the kernel's own measure of wake-up latency, and reads what it
// prints (Linux 6.5 and later). Its threads are rtla's own (-u), so they run where the application does: the
// threads of the timerlat tracer itself are the kernel's, and in no lane. As cyclictest it skips the
// activations that it missed, so its percentiles are too good after a stall, and only its maximum is safe.
package rtla

import (
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/timer"
	"isolane.dev/isolane/results"
)

// Program is the program, and its package in Debian.
const Program = "rtla"

// minInterval is timerlat's own bound (kernel/trace/trace_osnoise.c).
const minInterval = 100 * time.Microsecond

// The histogram has buckets of 1 µs, as cyclictest's; what takes longer than its end is only counted.
const (
	bucket       = time.Microsecond
	buckets      = 100_000
	histogramEnd = buckets * bucket
)

// Driver is the probe "rtla". Its client is a command of the isolane binary, which runs rtla on the CPUs that
// it may use itself.
type Driver struct{}

// Probe measures wake-up latency with SCHED_FIFO threads, one to a CPU.
type Probe struct {
	probe.Alone
	probe.Own
	timer.Settings
}

// Name returns "rtla".
func (Driver) Name() string { return Program }

// Programs returns rtla.
func (Driver) Programs() []string { return []string{Program} }

// Read reads a Probe.
func (Driver) Read(settings []byte) (probe.Probe, error) {
	p := Probe{Settings: timer.Usual()}
	if err := probe.Decode(settings, &p); err != nil {
		return nil, err
	}
	if err := p.Check(minInterval); err != nil {
		return nil, err
	}
	return p, nil
}

// Validate takes whole seconds.
func (Probe) Validate(c probe.Conditions) error { return c.WholeSeconds(Program) }

// Metrics are the latency of the thread, and as checks those of the timer's interrupt before it, and of the
// way through the program after it; and how many activations were skipped.
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

// The words behind the name of a probe in those of its other metrics.
const (
	interrupts = "-irq"
	returns    = "-return"
)

// Capabilities are for its scheduling class.
func (Probe) Capabilities() []string { return []string{"SYS_NICE"} }

// OnHost says why it cannot run in a guest.
func (Probe) OnHost() string {
	return "rtla measures with the tracer of the host's kernel, which a container or virtual machine has not"
}

// Client is the command line of the client.
func (p Probe) Client(self string, c probe.Conditions) []string {
	return probe.OwnClient(self, Program, p, c)
}
