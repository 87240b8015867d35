package wakeup

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/probe"
)

// thread is one measuring thread and what it found.
type thread struct {
	Probe
	clock   probe.Clock
	cpu     int                     // -1: wherever the kernel lets it run
	latency *hdrhistogram.Histogram // of the first half of the window
	later   *hdrhistogram.Histogram // of the second
	when    timetable
	longest probe.Longest
	due     uint64 // activations of the window
	missed  uint64 // of them: due before the thread was done with an earlier one
	early   uint64 // of them: begun before they were due, which cannot be
}

// timetable is when a thread is to be activated, in nanoseconds on CLOCK_MONOTONIC.
type timetable struct {
	first, begin, end int64 // end: no activation is due then or later
}

// plan begins at the next moment that lies a number of intervals after phase.
func plan(now, phase int64, interval time.Duration, given probe.Conditions) timetable {
	first := phase + periods(now-phase, interval)*int64(interval)
	begin := first + int64(given.Warmup)
	return timetable{first, begin, begin + int64(given.Window)}
}

// due is how many activations of the window there are.
func (t timetable) due(interval time.Duration) uint64 {
	return uint64(periods(t.end-t.first, interval) - periods(t.begin-t.first, interval))
}

// periods is how many intervals it takes to reach d.
func periods(d int64, interval time.Duration) int64 {
	return (d + int64(interval) - 1) / int64(interval)
}

// become makes the calling thread the measuring one. It is never made a usual one again: Go ends a locked
// thread together with its goroutine (but for the main thread, and the process ends then).
func (t *thread) become() error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	if t.cpu >= 0 {
		var set unix.CPUSet
		set.Set(t.cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("CPU %d: affinity: %w", t.cpu, err)
		}
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	if t.Policy == FIFO {
		attr.Policy, attr.Priority = unix.SCHED_FIFO, uint32(t.Priority)
	}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("no SCHED_FIFO of priority %d: %w: run as root or raise RLIMIT_RTPRIO", t.Priority, err)
	}
	// The signals with which Go preempts would wake the thread; other threads take those of users.
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil); err != nil {
		return fmt.Errorf("signals: %w", err)
	}
	return nil
}

// measure runs until the last activation of the window. An activation whose thread was late is not left
// out: it begins late, and counts from when it was due.
//
// Between two activations the thread keeps to itself what Go's scheduler gave it. Through the scheduler
// (as probe.SleepUntil goes) each sleep would lose the thread's P to Go's monitor, and each wake-up would
// fetch one and wake the monitor before the clock can be read: under a lock that a thread without
// real-time priority may hold, and keep for as long as its neighbours let it wait.
func (t *thread) measure(phase int64, given probe.Conditions, stop *atomic.Bool) error {
	procPin()
	defer procUnpin()
	now := t.clock.Now()
	t.when = plan(now, phase, t.Interval.Duration(), given)
	for due := t.when.first; due < t.when.end && !stop.Load(); due += int64(t.Interval) {
		late := now >= due
		if !late {
			if err := sleepUntil(due); err != nil {
				return err
			}
		}
		now = t.clock.Now()
		if due >= t.when.begin {
			t.activated(due, now, late)
		}
	}
	return t.stayed()
}

// stayed says whether the thread is still bound to its CPU: a cpuset that loses it sends the thread away.
func (t *thread) stayed() error {
	if t.cpu < 0 {
		return nil
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return fmt.Errorf("affinity: %w", err)
	}
	if set.Count() != 1 || !set.IsSet(t.cpu) {
		return errors.New("sent to other CPUs, as by a change of its cpuset")
	}
	return nil
}

// activated counts an activation of the window.
func (t *thread) activated(due, now int64, late bool) {
	t.due++
	if late {
		t.missed++
	}
	if now < due {
		t.early++
	}
	if 2*due < t.when.begin+t.when.end {
		probe.Record(t.latency, now-due)
	} else {
		probe.Record(t.later, now-due)
	}
	t.longest.Add(due, now)
}

// objection is why what the thread found is not to be used.
func (t *thread) objection() string {
	want := t.when.due(t.Interval.Duration())
	switch {
	case t.due != want:
		return fmt.Sprintf("%s ended early: %d of %d activations", t, t.due, want)
	case t.early > 0:
		return fmt.Sprintf("%s: %d of %d activations began before they were due", t, t.early, t.due)
	}
	return ""
}

// String names the thread.
func (t *thread) String() string {
	if t.cpu < 0 {
		return "a thread"
	}
	return fmt.Sprintf("the thread on CPU %d", t.cpu)
}

// sleepUntil sleeps until the monotonic clock shows deadline, without a word to Go's scheduler: for a
// pinned goroutine only. Its signals are blocked; a debugger's EINTR is slept again.
func sleepUntil(deadline int64) error {
	t := unix.NsecToTimespec(deadline)
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME,
			uintptr(unsafe.Pointer(&t)), 0, 0, 0)
		if errno == 0 {
			return nil
		}
		if !errors.Is(errno, unix.EINTR) {
			return fmt.Errorf("clock_nanosleep until %s: %w", time.Duration(deadline), errno)
		}
	}
}

// procPin keeps the goroutine on its P: nothing preempts it, and nothing can stop the world, until
// procUnpin. The runtime names both among what other packages may use.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
