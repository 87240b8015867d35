package prove

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/factor/cpus"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/schedule"
	"isolane.dev/isolane/prove/search"
	"isolane.dev/isolane/prove/testbed"
	"isolane.dev/isolane/results"
)

const searching = `
apiVersion: isolane.dev/v1alpha3
kind: Scenario
metadata: {name: small, title: t}
spec:
  factors:
    - {name: placement, levels: [floating, lane]}
    - {name: cpus, where: {placement: [lane]}, levels: [1, 2, 64]}
  baseline: floating
  cells: [floating]
  lane: {cpus: {count: 1}}
  probes: [{name: trip, kind: echo, mode: open, rate: 1000}, {name: up, kind: iperf3, direction: up}]
  searches:
    - {name: fewest, kind: smallest, factor: cpus, cells: [lane-1], goal: {metric: up, percent: 99, of: 10Gbit/s}}
    - {name: in-time, kind: highest, probe: trip, from: 1000, to: 8000, width: 100%, cells: [floating, lane-1], goal: {metric: trip, statistic: p99, atMost: 2ms}}
    - {name: limits, kind: bounds, probe: trip, from: 1000, to: 8000, width: 100%, cells: [floating]}
  modes:
    quick: {blocks: 1, windows: {echo: {warmup: 1s, measure: 1s}, iperf3: {measure: 1s}}}
    standard: {blocks: 1, windows: {echo: {warmup: 1s, measure: 1s}, iperf3: {measure: 1s}}, searches: {sum: 3s, long: 5s}}
`

func searcher(t *testing.T) (runner, results.Session) {
	t.Helper()
	kinds := kinds()
	kinds.Factors = append(kinds.Factors, cpus.Driver{})
	s, err := scenario.Parse("f", strings.NewReader(searching), kinds)
	if err != nil {
		t.Fatal(err)
	}
	mode := s.Spec.Modes["standard"]
	cells, err := s.Cells(nil)
	if err != nil {
		t.Fatal(err)
	}
	return runner{Bed: testbed.Bed{Scenario: s, Mode: mode, Kinds: kinds, Paths: []testbed.Path{bridge.Path{}}}}, results.Session{Cells: cells, Searches: newSearches(s, mode, nil)}
}

func cellsOf(s results.Session) (all []string) {
	for _, q := range s.Searches {
		for _, d := range q.Cells {
			var cells []string
			for _, c := range d.Cells {
				cells = append(cells, c.Name)
			}
			all = append(all, q.Name+" "+d.Name+": "+strings.Join(cells, " "))
		}
	}
	return all
}

// The cells of searches are planned with the session's; levels that this machine cannot have are left out.
func TestCellsOfSearches(t *testing.T) {
	r, s := searcher(t)
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.Host(t)
	if err := r.layOut(t.Context(), h, plan.Placement{}, &s, true); err != nil {
		t.Fatal(err)
	}
	want := []string{"fewest lane: lane-1 lane-2", "in-time floating: floating", "in-time lane-1: lane-1", "limits floating: floating"}
	if d := cmp.Diff(want, cellsOf(s)); d != "" {
		t.Error(d)
	}
	client := s.Cells[0].Client
	for _, c := range results.EveryCell(&s) {
		if c.Client != client || c.Client.IsEmpty() || c.Application.IsEmpty() {
			t.Errorf("%s: %+v", c.Name, c)
		}
	}
	if len(s.Cells) != 1 || len(s.Scenario.Excluded) != 1 || !strings.Contains(s.Scenario.Excluded[0].Because, "not on this machine") {
		t.Errorf("%+v", s.Scenario.Excluded)
	}
	fewest := within(s.Searches[0], s.Searches[0].Cells[0])
	if d := cmp.Diff([]float64{2, 1}, fewest.Points); d != "" {
		t.Error(d)
	}
	if c, ok := cellAt(fewest, s.Searches[0].Cells[0], 2); !ok || c.Name != "lane-2" || c.Application.Len() != 2 {
		t.Errorf("%+v", c)
	}
}

// A mode without searches makes none, and with --cells only those in the cells that are named.
func TestChosenSearches(t *testing.T) {
	r, _ := searcher(t)
	if found := newSearches(r.Scenario, r.Scenario.Spec.Modes["quick"], nil); found != nil {
		t.Errorf("quick: %+v", found)
	}
	s := results.Session{Searches: newSearches(r.Scenario, r.Mode, []string{"floating", "lane-2"})}
	dropCells(&s, nil)
	want := []string{"fewest lane: lane-1 lane-2 lane-64", "in-time floating: floating", "limits floating: floating"}
	if d := cmp.Diff(want, cellsOf(s)); d != "" {
		t.Error(d)
	}
}

// Cells take turns, and what is stored says where a search goes on.
func TestTurns(t *testing.T) {
	r, s := searcher(t)
	q := &s.Searches[1]
	most := r.searching(results.Session{Searches: []results.Search{*q}})
	if want := time.Duration(2*q.Limit) * (testbed.Around + 2*time.Second); most != want { // a second each of warm-up and window
		t.Errorf("at most %s, want %s", most, want)
	}
	made := 0
	for {
		k, point, more := turn(*q, schedule.Boots{})
		if !more {
			break
		}
		made++
		if a, b := len(q.Cells[0].Trials), len(q.Cells[1].Trials); k == 0 && a > b && !q.Cells[1].Settled || k == 1 && b > a && !q.Cells[0].Settled {
			t.Fatalf("trial %d is made in cell %d, which has more (%d, %d)", made, k, a, b)
		}
		trial := results.Trial{Point: point, Held: []bool{point < 3000, point < 3000}}
		if len(q.Cells[k].Trials) == 0 {
			trial.Dropped = search.WarmUp
		}
		q.Cells[k].Trials = append(q.Cells[k].Trials, trial)
		_, open := search.Next(*q, q.Cells[k].Trials)
		q.Cells[k].Settled = !open
		if made == 7 { // it is interrupted, and goes on
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if s = (results.Session{}); json.Unmarshal(text, &s) != nil {
				t.Fatal("what was stored cannot be read")
			}
			q = &s.Searches[1]
		}
	}
	for _, d := range q.Cells {
		if b := search.Judge(*q, d.Trials); *b[0].Holds != 2000 || *b[0].Fails != 4000 || *b[1].Holds != 2000 {
			t.Errorf("%s: %+v", d.Name, b)
		}
	}
	if left := r.searching(results.Session{Searches: []results.Search{*q}}); left != 0 {
		t.Errorf("%s are left of a settled search", left)
	}
}

func TestJudge(t *testing.T) {
	r, s := searcher(t)
	samples := func(n, lost int, took int64) results.Measurement {
		h := results.NewHistogram()
		for range n {
			_ = h.RecordValue(took)
		}
		text, err := results.Encode(h)
		if err != nil {
			t.Fatal(err)
		}
		return results.Measurement{Name: "trip", Worst: []results.Sample{{}}, Values: map[string]float64{"up": 9.95e9},
			Samples: map[string]results.Samples{"trip": {Wanted: uint64(n + lost), Lost: uint64(lost), Histogram: text}}}
	}
	overloaded := func() results.Measurement {
		m := results.Measurement{Name: "trip"}
		m.NotCarried("overloaded: carried 10 of 20 requests/s")
		return m
	}()
	late := func(took, lag int64) results.Measurement {
		m := samples(1000, 0, took)
		behind := samples(1000, 0, lag).Samples["trip"]
		m.Window = results.Nanoseconds(time.Second)
		m.ClientLate("the client could not keep up")
		m.Samples["trip"] = results.Samples{Wanted: 1000, Histogram: m.Samples["trip"].Histogram, Lag: behind.Histogram}
		return m
	}
	failed := samples(1000, 0, 1e6)
	failed.Void = []string{"it ended early"}
	limited := samples(1, 0, 1)
	limited.Values["up-client-cpu"] = 91
	uneven := samples(1, 0, 1)
	uneven.Values["up-trend"] = 40
	growing := func(took int64) results.Measurement {
		m := samples(1000, 0, took)
		m.Values["trip-trend"] = 40
		return m
	}
	both := overloaded
	both.Void = append(slices.Clone(both.Void), "the client was at its limit")
	for _, c := range []struct {
		name   string
		search int
		m      results.Measurement
		held   string // +, - by goal
		void   string
	}{
		{"in time", 1, samples(1000, 0, 1e6), "++", ""},
		{"late", 1, samples(1000, 0, 3e6), "--", ""},
		{"in time, but it grows", 1, growing(1e6), "", "second half against the first: 40%, allowed 10%"},
		{"late, and it grows", 1, growing(3e6), "--", ""},
		{"one in a hundred is lost", 1, samples(990, 10, 1e6), "++", ""},
		{"P99 is lost", 1, samples(989, 11, 1e6), "--", ""},
		{"all is lost", 1, samples(0, 1000, 1), "--", ""},
		{"too few", 1, samples(300, 0, 1e6), "", "p99 needs 368 samples, found 300"},
		{"overloaded", 1, overloaded, "--", ""},
		{"overloaded, and the client too", 1, both, "", "the client was at its limit"},
		{"late with a client that is late", 1, late(3e6, 1e6), "", "the client could not keep up"},
		{"later than such a client can make it", 1, late(5e6, 1e6), "--", ""},
		{"in time with a client that is late", 1, late(0.9e6, 1e6), "++", ""},
		{"in time, perhaps as the client was late", 1, late(1.9e6, 1e6), "", "the client could not keep up"},
		{"in time, of a probe that failed", 1, failed, "", "it ended early"},
		{"the share is reached, by a client at its limit", 0, limited, "", "client's CPU: 91%, allowed 90%"},
		{"a client so late that it was not the load", 2, late(1e6, 11e6), "", "the client could not keep up"},
		{"a client that is late a little", 2, late(1e6, 9e6), "+++", ""},
		{"nothing is lost", 2, samples(1000, 0, 3e9), "+++", ""},
		{"3 of 1000 are lost", 2, samples(997, 3, 1e6), "--+", ""},
		{"6 of 1000 are lost", 2, samples(994, 6, 1e6), "---", ""},
		{"nobody counted", 2, results.Measurement{Name: "trip"}, "", "nobody counted what was lost"},
		{"the share is reached", 0, samples(1, 0, 1), "++", ""},
		{"the share is reached, by a rate that is that of the whole trial", 0, uneven, "++", ""},
		{"no figure", 0, results.Measurement{}, "", "no up"},
	} {
		trial := results.Trial{}
		if err := r.judge(&trial, s.Searches[c.search], r.Scenario.Spec.Searches[c.search], c.m); err != nil {
			t.Fatal(err)
		}
		held := ""
		for _, h := range trial.Held {
			held += map[bool]string{true: "+", false: "-"}[h]
		}
		why := strings.Join(slices.Concat(trial.Void, trial.Doubts), "")
		if held != c.held || why != c.void || trial.Measured.Worst != nil {
			t.Errorf("%s: held %q, void %q; want %q, %q", c.name, held, why, c.held, c.void)
		}
	}
}

// A probe whose figure is a rate says behind it what it sent and what was lost.
func TestAsked(t *testing.T) {
	own, behind := results.Samples{Wanted: 7}, results.Samples{Wanted: 9, Lost: 1}
	for name, c := range map[string]struct {
		samples map[string]results.Samples
		want    results.Samples
	}{
		"its own": {map[string]results.Samples{"a": behind, "load": own}, own},
		"a rate":  {map[string]results.Samples{"load-latency": behind}, behind},
		"none":    {nil, results.Samples{}},
	} {
		m := results.Measurement{Name: "load", Samples: c.samples}
		if got := m.Asked(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
