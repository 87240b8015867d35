// Package rtla drives rtla timerlat hist, the kernel's own measure of wake-up latency, and reads what it
// prints (Linux 6.5 and later). Its threads are rtla's own (-u), so they run where the application does: the
// threads of the timerlat tracer itself are the kernel's, and in no lane. As cyclictest it skips the
// activations that it missed, so its percentiles are too good after a stall, and only its maximum is safe.
package rtla

import (
	"fmt"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// Program is the program, and its package in Debian.
const Program = "rtla"

const (
	usualPriority = 80
	minInterval   = 100 * time.Microsecond // timerlat's own bounds (kernel/trace/trace_osnoise.c)
	maxInterval   = time.Second
	maxThreads    = 1024
)

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
	Interval quantity.Duration `json:"interval"`          // whole µs; default 1ms
	Priority int               `json:"priority"`          // default 80
	Threads  int               `json:"threads,omitempty"` // 0: one for each CPU that the process may use
	// HoldIdle keeps all CPUs of the host out of their idle states, through /dev/cpu_dma_latency.
	HoldIdle bool `json:"holdIdle"`
}

// Name returns "rtla".
func (Driver) Name() string { return Program }

// Programs returns rtla.
func (Driver) Programs() []string { return []string{Program} }

// Read reads a Probe.
func (Driver) Read(settings []byte) (probe.Probe, error) {
	p := Probe{Interval: quantity.Duration(time.Millisecond), Priority: usualPriority}
	if err := probe.Decode(settings, &p); err != nil {
		return nil, err
	}
	switch interval := p.Interval.Duration(); {
	case interval < minInterval || interval > maxInterval || interval%time.Microsecond != 0:
		return nil, fmt.Errorf("interval: %s: expected 100us to 1s, in whole microseconds", p.Interval)
	case p.Priority < 1 || p.Priority > 99:
		return nil, fmt.Errorf("priority: %d: expected 1-99", p.Priority)
	case p.Threads < 0 || p.Threads > maxThreads:
		return nil, fmt.Errorf("threads: %d: expected 1-%d, or 0 for one on each CPU", p.Threads, maxThreads)
	}
	return p, nil
}

// Validate takes whole seconds.
func (Probe) Validate(c probe.Conditions) error {
	if c.Window%time.Second != 0 || c.Warmup%time.Second != 0 {
		return fmt.Errorf("window %s, warmup %s: rtla takes whole seconds", c.Window, c.Warmup)
	}
	return nil
}

// Metrics are the latency of the thread, and as checks those of the timer's interrupt before it, and of the
// way through the program after it; and how many activations were skipped.
func (p Probe) Metrics(name string) []results.Metric {
	latency := results.Metric{Name: name, Quantity: "wakeup", Noun: "wake-up latency",
		Title: "Wake-up latency (rtla)", Unit: "ns", Better: results.Lower, Margin: 0.10, Sampled: true,
		Loop: results.Closed, About: fmt.Sprintf("Median wake-up latency (P50) at %s, fifo %d; rtla timerlat, "+
			"which reads the clock in the kernel, before the thread returns to its program", p.Interval, p.Priority)}
	irq, user := latency, latency
	irq.Name, irq.Quantity, irq.Noun, irq.Title = name+interrupts, "wakeup-irq", "interrupt latency",
		"Latency of the timer's interrupt"
	irq.About, irq.Role = "the part of the wake-up latency (rtla) before the timer's interrupt", results.Check
	user.Name, user.Quantity, user.Noun, user.Title = name+returns, "wakeup-return", "latency of the return",
		"Wake-up latency with the return"
	user.About, user.Role = "until the program (rtla) has run, and is back in the kernel", results.Check
	return []results.Metric{latency, irq, user,
		{Name: name + skipped, Quantity: "skipped", Noun: "skipped activations", Title: "Skipped activations",
			About: "due in the window, less those that rtla counts", Unit: "activations",
			Better: results.Lower, Margin: 0.10, Role: results.Check}}
}

// The words behind the name of a probe in those of its other metrics.
const (
	interrupts = "-irq"
	returns    = "-return"
	skipped    = "-skipped"
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
