package report

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/test/session"
)

// searched is a session with a search of loads and one of CPUs.
func searched(t *testing.T) results.Session {
	t.Helper()
	s := session.Quick(t)
	p := func(v float64) *float64 { return &v }
	cell := []results.Cell{s.Cells[1]}
	void, over := []string{"steal"}, "carried 1 of 2 requests/s"
	s.Searches = []results.Search{
		{Name: "limits", Kind: results.Bounds, Varied: "rate of trip", Unit: "/s", Points: []float64{1000, 2000, 4000}, Limit: 99,
			Goals: []results.SearchGoal{{Name: "noiseless", Definition: "nothing is lost in at least 50% of the trial time"},
				{Name: "deterministic", Definition: "nothing is lost in at least 95% of the trial time"}, {Name: "partial drop", Definition: "at most 0.5%"}},
			Cells: []results.Searched{{Name: "noisy-floating", Cells: cell, Settled: true,
				Trials: []results.Trial{{Point: 4000, Dropped: "warm-up"}, {Point: 1000}, {Point: 2000, Void: void}, {Point: 4000, Overloaded: over},
					{Point: 4000, Overloaded: over}, {Point: 4000}},
				Brackets: []results.Bracket{{Holds: p(2000), Fails: p(4000), Throughput: p(2000)}, {Holds: p(1000), Fails: p(2000), Throughput: p(1000)},
					{Holds: p(4000), Throughput: p(3984), Notes: []string{"it holds at the hardest point asked for, 4000/s"}}},
				Gap: &results.Gap{Estimate: 1, Low: 0, High: p(3)}},
				{Name: "noisy-lane", Cells: cell, Settled: true, Trials: []results.Trial{{Point: 4000}},
					Brackets: []results.Bracket{{Holds: p(6000), Fails: p(8000)}, {Holds: p(8000)}, {Fails: p(1000)}}}}},
		{Name: "fewest", Kind: results.Smallest, Varied: "cpus", Points: []float64{4, 2, 1}, Goals: []results.SearchGoal{{Name: "half the time", Definition: "d"}},
			Cells: []results.Searched{
				{Name: "noisy-pinned", Cells: cell, Trials: []results.Trial{{Point: 1}}, Brackets: []results.Bracket{{Fails: p(4)}}},
				{Name: "noisy-lane", Cells: cell, Settled: true, Trials: []results.Trial{{Point: 1}}, Brackets: []results.Bracket{{Holds: p(1)}}},
				{Name: "quiet-lane", Cells: cell}}},
	}
	return s
}

func TestSearches(t *testing.T) {
	s := searched(t)
	text := printed(t, s, 200)
	for _, want := range []string{
		`limits in noisy-lane +noiseless +6,000/s, not 8,000/s +– +150% to 400%`, `deterministic +at least 8,000/s +– +at least 400%`,
		`partial drop +less than 1,000/s +– +at most 25\.0%`,
		`limits in noisy-floating  noiseless +2,000/s, not 4,000/s +2,000/s +– +4,000/s +100% \(0% to 300%\) +6 \(1 void\)`,
		`limits in noisy-floating  deterministic +1,000/s, not 2,000/s +1,000/s`,
		`limits in noisy-floating  partial drop +at least 4,000/s +3,984/s`,
		`fewest in noisy-pinned +half the time +more than 4 `, `fewest in noisy-lane +half the time +at most 1 `,
		`fewest in quiet-lane +no trial was made`,
		`limits \(rate of trip\), deterministic: nothing is lost in at least 95% of the trial time\.`,
		`limits, noisy-floating, partial drop: it holds at the hardest point asked for, 4000/s\.`,
		`fewest, noisy-pinned: interrupted after 1 trial\.`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %q in\n%s", want, text[strings.Index(text, "Searches"):])
		}
	}
	for line := range strings.Lines(printed(t, s, 80)) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
	if page := written(t, s); !strings.Contains(page, "2,000/s, not 4,000/s") ||
		!strings.Contains(page, "noiseless: 6,000/s, not 8,000/s (150% to 400% of noisy-floating);") {
		t.Error("the page has no searches")
	}
	sum := summarize(t, s)
	d := newDocument(&sum, "dir")
	var b strings.Builder
	if err := d.Markdown(&b); err != nil || !strings.Contains(b.String(), "| 2,000/s, not 4,000/s | 2,000/s |") {
		t.Errorf("%v\n%s", err, b.String())
	}
	data, err := json.Marshal(d.Searches)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"holds":4000,"fails":null,"conditionalThroughput":3984,"overloadedFrom":4000,"trials":6,"voidTrials":1,"notes":["it holds`,
		`"gap":{"estimate":1,"low":0,"high":3}`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in %s", want, data)
		}
	}
	if text := printed(t, session.Quick(t), 100); strings.Contains(text, "Searches") {
		t.Error("a table of searches where there are none")
	}
}
