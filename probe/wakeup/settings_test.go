package wakeup

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

func TestSettings(t *testing.T) {
	usual := Probe{Interval: quantity.Duration(time.Millisecond), Policy: FIFO, Priority: 80, Pin: true}
	other := Probe{Interval: quantity.Duration(50 * time.Microsecond), Policy: Other, Threads: 2, HoldIdle: true}
	for settings, want := range map[string]Probe{
		"":   usual,
		"{}": usual,
		"{interval: 50us, policy: other, threads: 2, pin: false, holdIdle: true}": other,
	} {
		p, err := Driver{}.Read([]byte(settings))
		if err != nil {
			t.Errorf("%s: %v", settings, err)
			continue
		}
		if diff := cmp.Diff(want, p); diff != "" {
			t.Errorf("%s: %s", settings, diff)
		}
		// What a session stores, and gives to the client, can be read back unchanged.
		argv := p.Client("isolane", probe.Conditions{Name: "w", Window: time.Second})
		again, err := Driver{}.Read([]byte(argv[len(argv)-1]))
		if err != nil {
			t.Errorf("%q: %v", argv, err)
		}
		if diff := cmp.Diff(want, again); diff != "" {
			t.Errorf("%q: %s", argv, diff)
		}
	}
	for settings, field := range map[string]string{
		"{interval: 49us}":                "interval",
		"{interval: 1001ms}":              "interval",
		"{interval: 1}":                   "interval",
		"{policy: rr}":                    "policy",
		"{priority: 0}":                   "priority",
		"{priority: 100}":                 "priority",
		"{priority: 80, policy: other}":   "priority",
		"{threads: -1}":                   "threads",
		"{threads: 1025}":                 "threads",
		"{treads: 1}":                     "treads",
		"{interval: 1ms, interval: 50us}": "interval",
	} {
		_, err := Driver{}.Read([]byte(settings))
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", settings, err)
		}
	}
	if err := usual.Validate(probe.Conditions{Window: time.Millisecond - 1}); err == nil {
		t.Error("a window shorter than the interval is taken")
	}
}

// The measurement names its metrics, and its report reads back.
func TestReport(t *testing.T) {
	p := Probe{Interval: quantity.Duration(time.Millisecond), Policy: FIFO, Priority: 80}
	metrics := p.Metrics("w")
	if metrics[0].Name != "w" || !metrics[0].Sampled || metrics[1].Role != results.Check {
		t.Errorf("%+v", metrics)
	}
	want := results.Measurement{Name: "w", Values: map[string]float64{metrics[1].Name: 3}}
	out, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Parse(out, probe.Conditions{Name: "w"})
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err = p.Parse(out[:len(out)-1], probe.Conditions{Name: "w"}); err == nil {
		t.Error("a report that is cut off is taken")
	}
}
