package figures

import (
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/test/session"
)

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
		s.Metrics = s.Metrics[:len(s.Metrics)-1]
	}
	losing := func(n uint64) func(*results.Session) {
		return func(s *results.Session) { lose(s, s.Cells[0].Name, 10, n) }
	}
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
		"held, quick":      {"quick", 4, within("p99", 30*time.Microsecond), nil, lane.Unproven, "6 runs"},
		"too few":          {"standard", 10, within("p99.999", time.Second), nil, lane.Unproven, "368887 are needed"},
		"a maximum":        {"standard", 10, within("max", time.Second), nil, lane.Unproven, "a maximum"},
		"beyond a maximum": {"standard", 10, within("max", 20*time.Microsecond), nil, lane.Missed, ""},
		"closed loop":      {"standard", 10, within("p99", time.Second), without, lane.Unproven, "mode open"},
		"lost":             {"standard", 10, within("p99", time.Second), losing(4000), lane.Missed, "40000 were lost"},
		"perhaps lost":     {"standard", 10, within("p99", time.Second), losing(40), lane.Unproven, "400 were lost"},
		"lost, not there":  {"standard", 10, within("p99", time.Second), losing(20), lane.Held, ""},
		"lost, in one run": {"standard", 10, within("p99", time.Second), func(s *results.Session) {
			lose(s, s.Cells[0].Name, 1, 250)
		}, lane.Unproven, "the runs differ"},
		"rate held":      {"standard", 10, atLeast(20e9), nil, lane.Held, ""},
		"rate missed":    {"standard", 10, atLeast(40e9), nil, lane.Missed, ""},
		"rate within":    {"standard", 10, atLeast(27.7e9), nil, lane.Unproven, "within the interval"},
		"rate, few runs": {"standard", 5, atLeast(1e9), nil, lane.Unproven, "6 runs"},
		"void": {"standard", 10, within("p50", time.Second), func(s *results.Session) {
			for i := range s.Runs {
				s.Runs[i].Measured[1].Void = []string{"the client could not keep up"}
			}
		}, lane.Void, "no measurement counts: rtt-udp-64-open in quiet-lane-bridge"},
		"drifted": {"standard", 10, within("p50", time.Second), func(s *results.Session) {
			s.Lane.Drift = []string{"/proc/sys/x: expected 0, found 1"}
		}, lane.Void, "expected 0, found 1"},
		"overloaded": {"standard", 10, within("p99", time.Second), func(s *results.Session) {
			s.Runs[5].Measured[1].NotCarried("overloaded: carried half of it")
		}, lane.Unproven, "not carried in 1 run"},
		"rate missed at a limit": {"standard", 10, atLeast(40e9), func(s *results.Session) {
			check(s, "throughput-tcp-up", "", 95)
		}, lane.Unproven, "client's CPU"},
		"interrupted": {"standard", 10, within("p50", time.Second), func(s *results.Session) { s.Complete = false },
			lane.Unproven, "not complete"},
	} {
		t.Run(name, func(t *testing.T) {
			s := session.Proved(t, c.mode, c.blocks, c.o)
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
