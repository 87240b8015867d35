package testbed

import (
	"testing"
	"time"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// Clients that begin together have more time to be there where they were late before, and at most so much.
func TestTogether(t *testing.T) {
	r := &Bed{}
	clock, err := probe.NewClock()
	if err != nil {
		t.Fatal(err)
	}
	two := factor.Conditions{Instances: 2}
	lead := func() time.Duration {
		now := clock.Now()
		start, err := r.together(two)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(start - now)
	}
	if one, err := r.together(factor.Conditions{Instances: 1}); one != 0 || err != nil {
		t.Errorf("one: %d, %v", one, err)
	}
	for _, c := range []struct {
		window, late, more time.Duration
	}{
		{2 * time.Second, time.Millisecond, 0}, // as each client is
		{2 * time.Second, 200 * time.Millisecond, 400 * time.Millisecond},
		{2 * time.Second, 150 * time.Millisecond, 300 * time.Millisecond}, // though it had 400 ms more
		{20 * time.Second, 150 * time.Millisecond, 0},
		{time.Second, time.Hour, 2*maxLateness - 700*time.Millisecond},
		{time.Second, time.Second, 0},
	} {
		before := r.late
		given := probe.Conditions{Start: int64(time.Hour), Warmup: time.Second, Window: c.window}
		m := results.Measurement{Begin: results.Nanoseconds(given.Start + int64(given.Warmup+c.late))}
		r.wereLate([]client{{given: given}}, m)
		if got := 2 * (r.late - before); got != c.more {
			t.Errorf("late by %s: %s more, expected %s", c.late, got, c.more)
		}
	}
	if got := lead(); got < 2*maxLateness || got > 2*maxLateness+time.Minute {
		t.Errorf("%s from now, expected somewhat more than %s", got, 2*maxLateness)
	}
}
