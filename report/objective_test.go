package report

import (
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// provedLane is a session beside a lane in force whose P50 is 12 µs (a tenth more at its end), whose longest 1 in
// 400 take 30 to 35 µs, and whose slower direction has 25 Gbit/s.
func provedLane(t *testing.T, mode string, blocks int, o lane.Objective) results.Session {
	t.Helper()
	s := synthetic(t, mode, blocks, []string{"quiet-lane-bridge", "noisy-lane-bridge"})
	s.Cells[0].Baseline = true
	s.Lane = &results.Lane{Name: "web", Bounds: o.Bounds()}
	return s
}

func within(percentile string, d time.Duration) lane.Objective {
	return lane.Objective{RTT: map[string]quantity.Duration{percentile: quantity.Duration(d)}}
}

func atLeast(bits uint64) lane.Objective {
	return lane.Objective{Throughput: lane.Throughput{Min: quantity.BitRate(bits)}}
}

func TestObjective(t *testing.T) {
	// without removes the probe that sends on time from each run.
	without := func(s *results.Session) {
		for i, r := range s.Runs {
			s.Runs[i].Measured = append(r.Measured[:1:1], r.Measured[2:]...)
		}
	}
	lose := func(s *results.Session) { s.Runs[5].Measured[1].RTT.Lost = 4000 }
	for name, c := range map[string]struct {
		mode    string
		blocks  int
		o       lane.Objective
		change  func(*results.Session)
		verdict lane.Verdict
		reason  string
	}{
		"held":             {"standard", 10, within("p99", 30*time.Microsecond), nil, lane.Held, ""},
		"missed":           {"standard", 10, within("p50", 10*time.Microsecond), nil, lane.Missed, ""},
		"missed, quick":    {"quick", 4, within("p50", 10*time.Microsecond), nil, lane.Missed, ""},
		"held, quick":      {"quick", 4, within("p99", 30*time.Microsecond), nil, lane.Unproven, "quick session"},
		"too few":          {"standard", 10, within("p99.999", time.Second), nil, lane.Unproven, "368887 are needed"},
		"a maximum":        {"standard", 10, within("max", time.Second), nil, lane.Unproven, "a maximum"},
		"beyond a maximum": {"standard", 10, within("max", 20*time.Microsecond), nil, lane.Missed, ""},
		"closed loop":      {"standard", 10, within("p99", time.Second), without, lane.Unproven, "mode open"},
		"lost":             {"standard", 10, within("p99", time.Second), lose, lane.Unproven, "4000 were lost"},
		"rate held":        {"standard", 10, atLeast(20e9), nil, lane.Held, ""},
		"rate missed":      {"standard", 10, atLeast(40e9), nil, lane.Missed, ""},
		"rate within":      {"standard", 10, atLeast(27.7e9), nil, lane.Unproven, "within the interval"},
		"rate, few runs":   {"standard", 5, atLeast(1e9), nil, lane.Unproven, "6 runs"},
		"void": {"standard", 10, within("p50", time.Second), func(s *results.Session) {
			for i := range s.Runs {
				s.Runs[i].Measured[1].Void = []string{"the client could not keep up"}
			}
		}, lane.Void, "no measurement counts: rtt-udp-64-open in quiet-lane-bridge"},
		"drifted": {"standard", 10, within("p50", time.Second), func(s *results.Session) {
			s.Lane.Drift = []string{"/proc/sys/x: expected 0, found 1"}
		}, lane.Void, "expected 0, found 1"},
		"interrupted": {"standard", 10, within("p50", time.Second), func(s *results.Session) { s.Complete = false },
			lane.Unproven, "interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := provedLane(t, c.mode, c.blocks, c.o)
			if c.change != nil {
				c.change(&s)
			}
			sum := summarize(t, s)
			if len(sum.Objective) != 1 {
				t.Fatalf("%d judgements", len(sum.Objective))
			}
			j := sum.Objective[0]
			if j.Verdict != c.verdict || !strings.Contains(j.Reason, c.reason) || (c.reason == "") != (j.Reason == "") {
				t.Errorf("%s, want %s %q", j, c.verdict, c.reason)
			}
		})
	}
}

// Text and page say the verdict; without an objective they say how to get one.
func TestObjectiveShown(t *testing.T) {
	s := provedLane(t, "standard", 10, within("p99", 30*time.Microsecond))
	text, page := printed(t, s, 100), written(t, s)
	for _, want := range []string{"Objective of lane web", "rtt p99 at most 30us: held ("} {
		if !strings.Contains(text, want) || !strings.Contains(page, want) {
			t.Errorf("%q is missing in the text or the page:\n%s", want, text)
		}
	}
	if !strings.Contains(page, "isolane prove edge --lane web --standard --seed 7") {
		t.Error("the page does not say how to repeat the session")
	}
	if text := printed(t, provedLane(t, "standard", 10, lane.Objective{}), 100); !strings.Contains(text, "It declares none") {
		t.Error(text)
	}
}
