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

// thread is one measuring thread and its results.
type thread struct {
	Probe
	clock   probe.Clock
	cpu     int                     // -1: wherever the kernel lets it run
	latency *hdrhistogram.Histogram // in the first half of the window
	later   *hdrhistogram.Histogram // in the second half
	when    timetable
	longest probe.Longest
	due     uint64 // activations of the window
	missed  uint64 // of these: due before the thread was done with an earlier one
	early   uint64 // of these: begun before they were due, which must not happen
}

// timetable says when a thread is activated, in nanoseconds on CLOCK_MONOTONIC.
type timetable struct {
	first, begin, end int64 // end: no activation is due then or later
}

// plan begins at the next moment that is a whole number of intervals after phase.
func plan(now, phase int64, interval time.Duration, given probe.Conditions) timetable {
	first := phase + periods(now-phase, interval)*int64(interval)
	begin := first + int64(given.Warmup)
	return timetable{first, begin, begin + int64(given.Window)}
}

// due returns the number of activations in the window.
func (t timetable) due(interval time.Duration) uint64 {
	return uint64(periods(t.end-t.first, interval) - periods(t.begin-t.first, interval))
}

// periods returns how many intervals it takes to reach d.
func periods(d int64, interval time.Duration) int64 {
	return (d + int64(interval) - 1) / int64(interval)
}

// become makes the calling thread the measuring one. The thread never goes back: Go ends a locked thread
// together with its goroutine (except for the main thread, and then the process ends).
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
	// The signals with which Go preempts would wake this thread up. Other threads receive those of users.
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil); err != nil {
		return fmt.Errorf("signals: %w", err)
	}
	return nil
}

// measure runs until the last activation of the window. If the thread is late, an activation is not left out:
// it begins late, and counts from when it was due.
//
// Between two activations the thread keeps its P of Go's scheduler. With a sleep through the scheduler (as in
// probe.SleepUntil) the thread would lose its P to Go's monitor, and at each wake-up would have to get one
// and wake the monitor before it can read the clock. That needs a lock which a thread without real-time
// priority may hold for as long as its neighbours keep it waiting.
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

// stayed checks that the thread is still bound to its CPU: if a cpuset loses that CPU, the kernel moves the
// thread.
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

// objection says why the results of the thread must not be used.
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

// sleepUntil sleeps until the monotonic clock shows deadline, without Go's scheduler: for pinned goroutines
// only. Signals are blocked; after a debugger's EINTR it sleeps on.
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

// procPin keeps the goroutine on its P until procUnpin: nothing preempts it, and nothing can stop the world.
// The runtime lists both functions among those that other packages may use.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
