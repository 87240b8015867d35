package probe

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// Clock reads CLOCK_MONOTONIC in nanoseconds without a system call. It uses Go's own clock, which reads the
// same clock through the vDSO, and adds the constant distance between the two. unix.ClockGettime would enter
// the kernel, which takes longer than a look at a socket.
type Clock struct {
	base   time.Time
	offset int64
}

// NewClock returns a clock.
func NewClock() (Clock, error) {
	c := Clock{base: time.Now()}
	// The two clocks are not read at the same moment: of several pairs, the closest is the most exact.
	closest := time.Hour
	for range 16 {
		var t unix.Timespec
		before := time.Since(c.base)
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
			return c, fmt.Errorf("CLOCK_MONOTONIC: %w", err)
		}
		if width := time.Since(c.base) - before; width < closest {
			closest, c.offset = width, t.Nano()-int64(before+width/2)
		}
	}
	return c, nil
}

// Now returns the time.
func (c Clock) Now() int64 { return c.offset + int64(time.Since(c.base)) }

// SleepUntil sleeps until the monotonic clock shows deadline. The kernel sleeps to an absolute time, so
// delays do not add up. The system call goes through Go's scheduler: the signals with which Go preempts would
// interrupt a raw one, and a sleep that ends early causes negative latencies. After EINTR it sleeps on.
func SleepUntil(deadline int64) error {
	t := unix.NsecToTimespec(deadline)
	for {
		err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &t, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// SpinMargin is how long before a deadline a loop stops sleeping and polls the clock. It is longer than most
// wake-ups of a virtual machine on a busy CPU, and still a small part of a millisecond.
const SpinMargin = 250 * time.Microsecond

// WaitUntil sleeps until SpinMargin before deadline, and polls the clock for the rest.
func (c Clock) WaitUntil(deadline int64) error {
	if early := deadline - int64(SpinMargin); c.Now() < early {
		if err := SleepUntil(early); err != nil {
			return err
		}
	}
	for c.Now() < deadline {
		continue
	}
	return nil
}

// HotLoop gives this goroutine its own thread with the finest timers, and stops the garbage collector, until
// the same goroutine calls the returned function.
func HotLoop() (func(), error) {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("timer slack: %w", err)
	}
	runtime.GC()
	percent := debug.SetGCPercent(-1)
	return func() {
		debug.SetGCPercent(percent)
		runtime.UnlockOSThread()
	}, nil
}
