// Package cyclictest drives cyclictest, which measures wake-up latency, and reads its report (rt-tests 2.4,
// --json). It is meant for comparison: after a stall cyclictest skips the activations that it missed, so its
// percentiles are then too good, and only its maximum is reliable.
package cyclictest

import (
	"strconv"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/timer"
	"isolane.dev/isolane/results"
)

// Program is the name of the program.
const Program = "cyclictest"

// minInterval is the shortest interval with which cyclictest keeps up everywhere.
const minInterval = 50 * time.Microsecond

// histogramEnd is the end of cyclictest's histogram, in bins of 1 µs. cyclictest locks 8 bytes for each bin
// and thread.
const histogramEnd = 100_000

// Driver is the probe "cyclictest".
type Driver struct{}

// Probe measures wake-up latency with SCHED_FIFO threads, one per CPU.
type Probe struct {
	probe.Alone
	timer.Settings
}

// Name returns "cyclictest".
func (Driver) Name() string { return Program }

// Programs returns cyclictest.
func (Driver) Programs() []string { return []string{Program} }

// Package returns rt-tests, which holds cyclictest in Debian.
func (Driver) Package(string) string { return "rt-tests" }

// Read reads the settings of a Probe.
func (Driver) Read(settings []byte) (probe.Probe, error) {
	s, err := timer.Read(settings, minInterval)
	return Probe{Settings: s}, err
}

// Validate requires whole seconds. It ignores the warm-up, because cyclictest has none.
func (Probe) Validate(c probe.Conditions) error {
	c.Warmup = 0
	return c.WholeSeconds(Program)
}

// Metrics returns the latency, and how many activations were skipped.
func (p Probe) Metrics(name string) []results.Metric {
	return []results.Metric{p.Latency(name, Program, "cyclictest, without a warm-up"),
		timer.Skipped(name, Program)}
}

// Capabilities returns those for its scheduling class, locked memory and /dev/cpu_dma_latency.
func (Probe) Capabilities() []string { return []string{"SYS_NICE", "IPC_LOCK"} }

// Client returns the command line. The report comes on standard output, which must be a pipe. Where no udev
// runs there is no /dev/stdout.
func (p Probe) Client(_ string, c probe.Conditions) []string {
	threads := "--threads" // without a number: one for each CPU of the process
	if p.Threads > 0 {
		threads += "=" + strconv.Itoa(p.Threads)
	}
	argv := []string{Program, "--quiet", "--mlockall", "--priority=" + strconv.Itoa(p.Priority), threads,
		"--affinity", "--interval=" + strconv.Itoa(int(p.Interval.Duration()/time.Microsecond)),
		"--duration=" + strconv.Itoa(int(c.Window/time.Second)),
		"--histogram=" + strconv.Itoa(histogramEnd), "--histfile=/dev/null", "--json=/proc/self/fd/1"}
	if !p.HoldIdle {
		argv = append(argv, "--default-system")
	}
	return argv
}
