package sched

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The numbers are the kernel's, both ways.
func TestNumbers(t *testing.T) {
	for p, want := range map[Policy]uint32{Other: unix.SCHED_NORMAL, FIFO: unix.SCHED_FIFO, RR: unix.SCHED_RR,
		Batch: unix.SCHED_BATCH, Idle: unix.SCHED_IDLE, Deadline: unix.SCHED_DEADLINE, Ext: 7} {
		if got, ok := p.Number(); !ok || got != want || Numbered(uint64(want)) != p {
			t.Errorf("%s: got %d, %v, and %d is %q; want %d", p, got, ok, want, Numbered(uint64(want)), want)
		}
	}
	for _, p := range []Policy{"", "normal"} {
		if n, ok := p.Number(); ok {
			t.Errorf("%q is policy %d", p, n)
		}
	}
	if got := Numbered(4) + Numbered(8) + Numbered(1<<64-1); got != "" {
		t.Errorf("policies that the kernel does not have: %q", got)
	}
}

func TestIsRealTime(t *testing.T) {
	for _, p := range []Policy{Other, FIFO, RR, Batch, Idle, Deadline, Ext, ""} {
		if p.IsRealTime() != (p == "fifo" || p == "rr") {
			t.Errorf("%s: %v", p, p.IsRealTime())
		}
	}
}
