// Package cyclictest drives cyclictest, which measures wake-up latency, and reads its report (rt-tests
// 2.4, --json). It is there to be compared with: after a stall cyclictest skips the activations that it
// missed, so its percentiles are too good then, and only its maximum is safe.
package cyclictest

import (
	"fmt"
	"strconv"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// Program is the program.
const Program = "cyclictest"

const (
	usualPriority = 80
	minInterval   = 50 * time.Microsecond
	maxInterval   = time.Second
	maxThreads    = 1024
)

// histogramEnd is where cyclictest's histogram ends, in its bins of 1 µs. For each thread it locks 8
// bytes a bin.
const histogramEnd = 100_000

// Driver is the probe "cyclictest".
type Driver struct{}

// Probe measures wake-up latency with SCHED_FIFO threads, one to a CPU.
type Probe struct {
	probe.Alone
	Interval quantity.Duration `json:"interval"`          // whole µs; default 1ms
	Priority int               `json:"priority"`          // default 80
	Threads  int               `json:"threads,omitempty"` // 0: one for each CPU that the process may use
	// HoldIdle keeps all CPUs of the host out of their idle states, through /dev/cpu_dma_latency: cyclictest's
	// own default. Ours is false, as in the other probes.
	HoldIdle bool `json:"holdIdle"`
}

// Name returns "cyclictest".
func (Driver) Name() string { return Program }

// Programs returns cyclictest.
func (Driver) Programs() []string { return []string{Program} }

// Package returns rt-tests, which holds cyclictest in Debian.
func (Driver) Package(string) string { return "rt-tests" }

// Read reads a Probe.
func (Driver) Read(settings []byte) (probe.Probe, error) {
	p := Probe{Interval: quantity.Duration(time.Millisecond), Priority: usualPriority}
	if err := probe.Decode(settings, &p); err != nil {
		return nil, err
	}
	switch interval := p.Interval.Duration(); {
	case interval < minInterval || interval > maxInterval || interval%time.Microsecond != 0:
		return nil, fmt.Errorf("interval: %s: expected 50us to 1s, in whole microseconds", p.Interval)
	case p.Priority < 1 || p.Priority > 99:
		return nil, fmt.Errorf("priority: %d: expected 1-99", p.Priority)
	case p.Threads < 0 || p.Threads > maxThreads:
		return nil, fmt.Errorf("threads: %d: expected 1-%d, or 0 for one on each CPU", p.Threads, maxThreads)
	}
	return p, nil
}

// Validate takes whole seconds. The warm-up may be anything: cyclictest has none.
func (Probe) Validate(c probe.Conditions) error {
	if c.Window%time.Second != 0 {
		return fmt.Errorf("window %s: cyclictest takes whole seconds", c.Window)
	}
	return nil
}

// Metrics are the latency, and how many activations were skipped. The loop counts as closed: an
// activation waits for the last, and stalls are missed.
func (p Probe) Metrics(name string) []results.Metric {
	about := fmt.Sprintf("Median wake-up latency (P50) at %s, fifo %d; cyclictest, without a warm-up",
		p.Interval, p.Priority)
	return []results.Metric{
		{Name: name, Quantity: "wakeup", Noun: "wake-up latency", Title: "Wake-up latency (cyclictest)",
			About: about, Unit: "ns", Better: results.Lower, Margin: 0.10, Sampled: true, Loop: results.Closed},
		{Name: skipped(name), Quantity: "skipped", Noun: "skipped activations", Title: "Skipped activations",
			About: "due in the window, less those that cyclictest counts", Unit: "activations",
			Better: results.Lower, Margin: 0.10, Role: results.Check},
	}
}

func skipped(name string) string { return name + "-skipped" }

// Capabilities are for its scheduling class, locked memory and /dev/cpu_dma_latency.
func (Probe) Capabilities() []string { return []string{"SYS_NICE", "IPC_LOCK"} }

// Client is the command line. Its report comes on standard output, which must be a pipe.
func (p Probe) Client(_ string, c probe.Conditions) []string {
	threads := "--threads" // without a number: one for each CPU of the process
	if p.Threads > 0 {
		threads += "=" + strconv.Itoa(p.Threads)
	}
	argv := []string{Program, "--quiet", "--mlockall", "--priority=" + strconv.Itoa(p.Priority), threads,
		"--affinity", "--interval=" + strconv.Itoa(int(p.Interval.Duration()/time.Microsecond)),
		"--duration=" + strconv.Itoa(int(c.Window/time.Second)),
		"--histogram=" + strconv.Itoa(histogramEnd), "--histfile=/dev/null", "--json=/dev/stdout"}
	if !p.HoldIdle {
		argv = append(argv, "--default-system")
	}
	return argv
}
