// Package timer is what cyclictest and rtla share: probes that drive somebody else's program whose threads
// wake up at an interval.
package timer

import (
	"cmp"
	"fmt"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// Settings is embedded by such a probe. The threads are SCHED_FIFO, one per CPU.
type Settings struct {
	Interval quantity.Duration `json:"interval"`          // whole µs; default 1ms
	Priority int               `json:"priority"`          // default 80
	Threads  int               `json:"threads,omitempty"` // 0: one for each CPU that the process may use
	// HoldIdle keeps all CPUs of the host out of idle states, through /dev/cpu_dma_latency. It is cyclictest's
	// own default; here the default is false, as in the other probes.
	HoldIdle bool `json:"holdIdle"`
}

// Read reads settings, with the defaults for what they leave out. least is the program's shortest interval.
func Read(settings []byte, least time.Duration) (Settings, error) {
	s := Settings{Interval: quantity.Duration(time.Millisecond), Priority: 80}
	err := probe.Decode(settings, &s)
	return s, cmp.Or(err, s.check(least))
}

func (s Settings) check(least time.Duration) error {
	const most, threads = time.Second, 1024
	switch interval := s.Interval.Duration(); {
	case interval < least || interval > most || interval%time.Microsecond != 0:
		return fmt.Errorf("interval: %s: expected %s to %s, in whole microseconds", s.Interval,
			quantity.Duration(least), quantity.Duration(most))
	case s.Priority < 1 || s.Priority > 99:
		return fmt.Errorf("priority: %d: expected 1-99", s.Priority)
	case s.Threads < 0 || s.Threads > threads:
		return fmt.Errorf("threads: %d: expected 1-%d, or 0 for one on each CPU", s.Threads, threads)
	}
	return nil
}

// Latency returns the metric of that name. Its loop counts as closed: an activation waits for the one before
// it, and stalls are missed. how says what the program measures.
func (s Settings) Latency(name, program, how string) results.Metric {
	return results.Metric{Name: name, Quantity: "wakeup", Noun: "wake-up latency",
		Title: "Wake-up latency (" + program + ")", Unit: results.TimeUnit,
		Better: results.Lower, Margin: 0.10, Sampled: true,
		Loop: results.Closed, About: fmt.Sprintf("Median wake-up latency (P50) at %s, fifo %d; %s", s.Interval,
			s.Priority, how)}
}

// Skipped returns the metric of the activations that the program missed. name is that of the probe.
func Skipped(name, program string) results.Metric {
	return results.Metric{Name: name + "-skipped", Quantity: "skipped", Noun: "skipped activations",
		Title: "Skipped activations", About: "due in the window, less those that " + program + " counts",
		Unit: "activations", Better: results.Lower, Margin: 0.10, Role: results.Check}
}
