package wakeup

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// Run measures wake-up latency. If the machine does not grant something (the priority, locked memory, idle
// states), the measurement is void.
func (p Probe) Run(ctx context.Context, given probe.Conditions) (results.Measurement, error) {
	m := results.Measurement{Name: given.Name, Window: results.Nanoseconds(given.Window)}
	done, err := probe.HotLoop()
	if err != nil {
		return m, err
	}
	defer done()
	threads, err := p.threads()
	if err != nil {
		return m, err
	}
	release, err := p.holdMachine()
	defer release()
	if err != nil {
		m.Void = append(m.Void, err.Error())
		return m, nil
	}
	// Each thread keeps a P, and two are left for Go. Nor does the runtime then look for a better number.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(len(threads) + 2))
	if m.Void, err = measure(ctx, threads, given); err != nil {
		return m, err
	}
	return m, summarize(&m, threads)
}

// threads returns one thread for each CPU, or as many as requested.
func (p Probe) threads() ([]*thread, error) {
	clock, err := probe.NewClock()
	if err != nil {
		return nil, err
	}
	var allowed unix.CPUSet
	if err = unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	wanted := cmp.Or(p.Threads, allowed.Count())
	if p.Pin && wanted > allowed.Count() {
		return nil, fmt.Errorf("threads: %d: expected at most %d, the CPUs that the process may use, or pin: false",
			wanted, allowed.Count())
	}
	var all []*thread
	cpu := -1
	for range wanted {
		if p.Pin {
			for cpu++; !allowed.IsSet(cpu); cpu++ {
				continue
			}
		}
		t := &thread{Probe: p, clock: clock, cpu: cpu, latency: probe.NewHistogram(), later: probe.NewHistogram()}
		if p.Pin {
			t.longest.CPU = &t.cpu
		}
		all = append(all, t)
	}
	return all, nil
}

// holdMachine locks the memory and, with HoldIdle, holds idle states, until the returned function is called.
func (p Probe) holdMachine() (release func(), err error) {
	// Pages are locked when touched: all at once would be what Go has reserved, hundreds of times what it uses.
	if err = unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return func() {}, fmt.Errorf("mlockall: %w: run as root or raise RLIMIT_MEMLOCK", err)
	}
	release = func() { _ = unix.Munlockall() }
	if !p.HoldIdle {
		return release, nil
	}
	f, err := os.OpenFile("/dev/cpu_dma_latency", os.O_WRONLY, 0)
	if err != nil {
		return release, fmt.Errorf("holdIdle: %w: run as root where that device is", err)
	}
	// The kernel keeps the limit, in µs, while the file is open (Documentation/power/pm_qos_interface.rst).
	_, err = f.Write(binary.NativeEndian.AppendUint32(nil, 0))
	if err != nil {
		err = fmt.Errorf("holdIdle: %w", err)
	}
	return func() { _, _ = f.Close(), unix.Munlockall() }, err
}

// measure runs all threads, and returns why their results must not be used.
func measure(ctx context.Context, threads []*thread, given probe.Conditions) (void []string, err error) {
	ready, start := make(chan error), make(chan bool)
	ended := make([]error, len(threads))
	base := threads[0].clock.Now()
	var stop atomic.Bool // a pinned goroutine must not wait for a context's lock
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	var group sync.WaitGroup
	for i, t := range threads {
		// Spread over the interval, so that not all CPUs wake up at the same moment.
		phase := base + int64(i)*int64(t.Interval)/int64(len(threads))
		group.Go(func() {
			ready <- t.become()
			if <-start {
				ended[i] = t.measure(phase, given, &stop)
			}
		})
	}
	for range threads {
		if err = <-ready; err != nil && !slices.Contains(void, err.Error()) { // usually all fail in the same way
			void = append(void, err.Error())
		}
	}
	for range threads {
		start <- void == nil
	}
	group.Wait()
	if void != nil || ctx.Err() != nil {
		return void, ctx.Err()
	}
	for i, t := range threads {
		if ended[i] != nil {
			void = append(void, fmt.Sprintf("%s: %v", t, ended[i]))
		} else if why := t.objection(); why != "" {
			void = append(void, why)
		}
	}
	return void, nil
}

// summarize adds up the results of the threads.
func summarize(m *results.Measurement, threads []*thread) error {
	all, later, due, late := results.NewHistogram(), results.NewHistogram(), uint64(0), uint64(0)
	var longest probe.Longest
	for _, t := range threads {
		all.Merge(t.latency)
		later.Merge(t.later)
		longest.Merge(&t.longest)
		due, late = due+t.due, late+t.missed
	}
	if due == 0 {
		return nil // void, with a reason
	}
	m.Values = map[string]float64{missed(m.Name): float64(late)}
	probe.AddTrend(m, all, later)
	all.Merge(later)
	latency, err := results.Encode(all)
	m.Samples = map[string]results.Samples{m.Name: {Wanted: due, Histogram: latency}}
	if len(threads) == 1 || threads[0].cpu >= 0 { // else their CPUs are unknown
		m.Worst = longest.Samples()
	}
	return err
}
