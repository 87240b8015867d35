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
	began := int64(time.Hour)
	given := probe.Conditions{Start: began, Warmup: time.Second}
	more := map[time.Duration]time.Duration{3 * time.Second: 6 * time.Second, time.Hour: 2*latest - 6*time.Second}
	for _, late := range []time.Duration{0, 3 * time.Second, time.Second, time.Hour} {
		before := lead()
		m := results.Measurement{Begin: results.Nanoseconds(began + int64(given.Warmup+late))}
		r.wereLate([]client{{given: given}}, m)
		got := lead() - before
		if want := more[late]; (got - want).Abs() > time.Second {
			t.Errorf("late by %s: %s more, expected %s", late, got, want)
		}
	}
}
