package agent

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/watch"
	"isolane.dev/isolane/witness"
)

// Alert rules, dashboard and documentation name only metrics that exist.
func TestMetricsNamed(t *testing.T) {
	known := map[string]bool{}
	for _, m := range metrics() {
		known["isolane_"+m.name] = true
	}
	named := map[string]bool{}
	for _, file := range []string{"../packaging/alerts.yaml", "../packaging/dashboard.json", "../docs/agent.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bisolane_[a-z_]+`).FindAllString(string(text), -1) {
			if named[name] = true; !known[name] {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
	}
	for name := range known {
		if !named[name] {
			t.Errorf("docs/agent.md does not have %s", name)
		}
	}
}

// The longest intrusion of the last one to two minutes stays, whatever follows.
func TestLongest(t *testing.T) {
	var l longest
	at := time.Now()
	for _, step := range []struct {
		after      time.Duration
		took, want results.Nanoseconds
	}{{0, 7, 7}, {30 * time.Second, 3, 7}, {61 * time.Second, 2, 7}, {119 * time.Second, 1, 7}, {122 * time.Second, 0, 2},
		{10 * time.Minute, 0, 0}, {11 * time.Minute, 5, 5}} {
		if l.add(at.Add(step.after), step.took); l.value() != step.want {
			t.Errorf("after %s: %d, want %d", step.after, l.value(), step.want)
		}
	}
}

// exported returns the values of a metric by its labels.
func exported(t *testing.T, a *Agent, name string) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(newCollector(a))
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == "isolane_"+name {
				values[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	return values
}

// After a change, the agent looks at proofs until that has worked once, and meanwhile does not report that
// they hold. A lane that has lost its objective has none.
func TestJudge(t *testing.T) {
	held := lane.Judgement{Bound: lane.Bound{Metric: "rtt"}, Verdict: lane.Held}
	a := &Agent{totals: map[string]*total{"web": {judged: []lane.Judgement{held}}}}
	group := enforce.LaneGroup{Lane: plan.Lane{Name: "web"}}
	aimed := group
	aimed.Lane.Spec.Objective = lane.Objective{Throughput: lane.Throughput{Min: 1}}
	a.o.Lanes.Dir = "/dev/null" // cannot be read
	for _, changed := range []bool{true, false} {
		if judged, err := a.judge(t.Context(), []enforce.LaneGroup{aimed}, changed); err == nil {
			t.Errorf("changed %v: %v", changed, judged)
		}
		if values := exported(t, a, "proof_held"); len(values) != 1 || values["web"] != 0 {
			t.Errorf("%v", values)
		}
	}
	judged, err := a.judge(t.Context(), []enforce.LaneGroup{group}, false)
	a.totals["web"].judge("web", judged)
	if values := exported(t, a, "proof_held"); err != nil || len(values) > 0 {
		t.Errorf("without an objective: %v, %v", values, err)
	}
}

// The longest intrusion is reported if it is known.
func TestLongestUnknown(t *testing.T) {
	a := &Agent{totals: map[string]*total{"web": {}}}
	for _, timed := range []bool{false, true} {
		a.last = watch.Reading{Evidence: "bpf", Timed: timed}
		if values := exported(t, a, "longest_intrusion_seconds"); len(values) == 1 != timed {
			t.Errorf("timed %v: %v", timed, values)
		}
	}
}

// An intrusion is recorded with its CPU.
func TestRecorded(t *testing.T) {
	s := source(3, results.Task, 1, 50)
	h, is := recorded(Event{What: Intrusion, Lane: "web", Text: "CPU 3", CPU: &s.CPU, Took: s.Longest})
	if !is || h.CPU == nil || *h.CPU != 3 || h.Took != 50 {
		t.Errorf("%v, %+v", is, h)
	}
}

func source(cpu int, kind string, count uint64, took results.Nanoseconds) witness.Source {
	return witness.Source{CPU: cpu, Kind: kind, Name: kind, Count: &count, Total: &took, Longest: &took}
}

// Totals cover the lane's own CPUs without its own sources, and report news once.
func TestTotals(t *testing.T) {
	own := source(2, results.Interrupt, 9, 900)
	own.Own = true
	lane2 := &total{cpus: cpuset.Of(2), kinds: map[string]sum{}}
	for range 2 {
		worst := lane2.add([]witness.Source{source(2, results.Task, 1, 50), source(2, results.Tick, 4, 30), source(3, results.Task, 1, 999), own})
		if worst.Kind != results.Task || *worst.Longest != 50 {
			t.Errorf("the worst is %+v", worst)
		}
	}
	if len(lane2.kinds) != 2 || lane2.kinds[results.Task] != (sum{2, 100}) || lane2.kinds[results.Tick] != (sum{8, 60}) {
		t.Errorf("%+v", lane2.kinds)
	}
	var told []string
	tell := func(news []Event) {
		for _, e := range news {
			told = append(told, e.What)
		}
	}
	for _, dropped := range []uint64{0, 2, 3, 0, 1} {
		tell(lane2.carried(watch.Traffic{Lane: "web", Traffic: netpath.Traffic{Received: 10, Dropped: dropped}}))
	}
	held := lane.Judgement{Bound: lane.Bound{Metric: "rtt"}, Verdict: lane.Held}
	lost := held
	lost.Verdict = lane.Unproven
	for _, j := range []lane.Judgement{lost, held, held, lost} {
		tell(lane2.judge("web", map[string][]lane.Judgement{"web": {j}}))
	}
	if want := []string{Packets, Packets, Judged, Judged}; !slices.Equal(told, want) || *lane2.traffic != (netpath.Traffic{Received: 50, Dropped: 6}) {
		t.Errorf("told %v, want %v; %+v", told, want, lane2.traffic)
	}
}
