package schedule

import (
	"fmt"
	"strings"
	"testing"

	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// A session of which no run counts fails, or no measurement of a probe, unless the machine is why.
func TestCounts(t *testing.T) {
	odd := results.Measurement{Name: "late", Void: []string{"end.bytes: expected less"}}
	late, over := results.Measurement{Name: "late"}, results.Measurement{Name: "late"}
	late.ClientLate("the client could not keep up")
	over.NotCarried("overloaded")
	for _, c := range []struct {
		second   []results.Measurement // of the second probe, one a run
		optional bool
		want     string
	}{
		{[]results.Measurement{odd, odd}, false, "no measurement of late counts; the last is void: end.bytes"},
		{[]results.Measurement{odd, odd}, true, ""},
		{[]results.Measurement{odd, {Name: "late"}}, false, ""},
		{[]results.Measurement{late, odd}, false, ""},
		{[]results.Measurement{over, over}, false, ""},
	} {
		var s results.Session
		for _, m := range c.second {
			s.Runs = append(s.Runs, results.Run{Measured: []results.Measurement{{Name: "good"}, m}})
		}
		probes := []scenario.Probe{{Name: "good"}, {Name: "late", Optional: c.optional}}
		if text := fmt.Sprint(Counts(s, probes)); c.want == "" && text != "<nil>" || !strings.Contains(text, c.want) {
			t.Errorf("%+v: %s, want %q", c.second, text, c.want)
		}
		s.Runs[0].Void, s.Runs[1].Void = []string{"steal"}, []string{"steal"}
		if err := Counts(s, probes); err == nil {
			t.Error("no run counts")
		}
	}
}

// A session ends where no run measures anything, or a probe fails in all runs of all cells; not before each
// cell had its turn, and not for a probe that has measured once.
func TestFailing(t *testing.T) {
	probes := []scenario.Probe{{Name: "good"}, {Name: "late"}, {Name: "last"}}
	for _, c := range []struct {
		name, cells string // of the runs, one letter each
		failed      []int  // the probe at which each run ended; 3: none, -1: before the first
		want        string
	}{
		{"the first always", "abc", []int{0, 0, 0}, "3 runs in a row measured nothing; the last: good: broken"},
		{"nothing starts", "abc", []int{-1, -1, -1}, "3 runs in a row measured nothing; the last: no network"},
		{"the second always", "abcd", []int{1, 1, 1, 1}, "probe late failed in all of its 4 runs; the last: late: broken"},
		{"the second in fewer cells", "abc", []int{1, 1, 1}, ""},
		{"the second, where the first lets it", "abcda", []int{1, 0, 1, 0, 1}, "probe late failed in all of its 3 runs"},
		{"the last always", "abcd", []int{2, 2, 2, 2}, "probe last failed in all of its 4 runs"},
		{"the second in one cell only", "abcdaaaa", []int{1, 3, 3, 3, 1, 1, 1, 1}, ""},
		{"the session goes on with a good run", "abcdabcd", []int{1, 1, 1, 3, 1, 1, 1, 1}, ""},
		{"cells that never measure", "abcdbcdbcd", []int{3, -1, -1, -1, -1, -1, -1, -1, 0, 0}, ""},
		{"one that measures again", "ababaaba", []int{3, -1, -1, -1, -1, 3, -1, -1}, ""},
		{"one that measured, and no longer does", "ababcaba", []int{3, -1, -1, -1, -1, -1, -1, -1}, "3 runs in a row measured nothing; the last: no network"},
		{"nobody's fault", "abcdabcd", []int{3, -1, 3, -1, 3, -1, 3, -1}, ""},
	} {
		f := failing{cells: 4, seen: map[string]bool{}, failed: map[string]int{}}
		var err error
		for i, at := range c.failed {
			run := results.Run{Cell: c.cells[i : i+1]}
			for _, p := range probes[:max(0, at)] {
				run.Measured = append(run.Measured, results.Measurement{Name: p.Name})
			}
			switch {
			case at < 0:
				run.Void = []string{"no network"}
			case at < len(probes):
				run.Void = []string{probes[at].Name + ": broken"}
			}
			if err != nil {
				t.Errorf("%s: run %d after %v", c.name, i, err)
			}
			err = f.Add(run, probes)
		}
		if text := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(text, c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
