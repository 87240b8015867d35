package report

import (
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/test/session"
)

// Where no aim says what was looked for, the page begins with the best and the worst cell of each primary
// metric; what searches found stands there in any case.
func TestFound(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	holds, fails := 400.0, 440.0
	s.Searches = []results.Search{{Name: "most", Unit: "/s", Kind: results.Highest,
		Goals: []results.SearchGoal{{Name: "half the time"}, {Name: "95% of the time"}},
		Cells: []results.Searched{{Name: "noisy-lane-express",
			Brackets: []results.Bracket{{Holds: &holds, Fails: &fails}, {Fails: &holds}}}}}}
	search := "Search most in noisy-lane-express, up to where it holds half the time: 400/s, not 440/s; " +
		"95% of the time: less than 400/s."
	for _, aims := range []bool{true, false} {
		want := []string{search}
		if !aims {
			s.Scenario.Aims = nil
			want = []string{
				"Throughput: best in noisy-lane-express, 72.7 Gbit/s, 175% of quiet-floating-bridge: better; worst in " +
					"noisy-floating-bridge, 15.8 Gbit/s, 38.7% of quiet-floating-bridge: worse.",
				"RTT P99: best in noisy-floating-bridge, 9.13 µs, 30.6% of quiet-floating-bridge; worst in " +
					"quiet-floating-bridge, 29.8 µs (the baseline).", search}
		}
		sum, err := figures.Summarize(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := found(&sum); !slices.Equal(got, want) {
			t.Errorf("aims %v:\n%s\nwant\n%s", aims, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// A session of one cell says what that has.
func TestFoundOfOneCell(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	s.Scenario.Aims, s.Cells = nil, s.Cells[:1]
	sum, err := figures.Summarize(s)
	if err != nil {
		t.Fatal(err)
	}
	if got := found(&sum); len(got) != 2 || got[1] != "RTT P99: quiet-floating-bridge, 29.8 µs (the baseline)." {
		t.Errorf("%q", got)
	}
}

func TestWithoutFigures(t *testing.T) {
	for why, want := range map[string]string{
		"the client could not keep up: send lag P99.9 40µs":             "the client could not keep up",
		"instance 2: the client could not keep up: send lag P99.9 40µs": "the client could not keep up",
		"seconds of the report: expected 1 to 61, found 0.8":            "seconds of the report: not as expected",
		"nothing was received":          "nothing was received",
		"2490 of 9000 messages lost":    "messages lost",
		"instance 3: 4 of 7 got none":   "got none",
		"4 of 7 failed, the first: EOF": "failed, the first",
	} {
		if got := withoutFigures(why); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A cell of which twice as much was asked does not compete with the others.
func TestFoundAtTheSameLoad(t *testing.T) {
	s := session.Made(t, "standard", 10, session.SixCells())
	s.Scenario.Aims = nil
	for i, r := range s.Runs {
		for j := range r.Measured {
			for name, samples := range r.Measured[j].Samples {
				samples.Wanted = 1000
				if r.Cell == "noisy-floating-bridge" {
					samples.Wanted = 2000
				}
				s.Runs[i].Measured[j].Samples[name] = samples
			}
		}
	}
	sum, err := figures.Summarize(s)
	if err != nil {
		t.Fatal(err)
	}
	if got := found(&sum); len(got) != 2 || strings.Contains(strings.Join(got, " "), "noisy-floating-bridge") {
		t.Errorf("%q", got)
	}
}
