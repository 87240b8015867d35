package agent

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/watch"
	"isolane.dev/isolane/witness"
)

// Rules, dashboard and documentation name metrics that there are.
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

// The longest of the last one to two minutes stays as long, whatever comes between.
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

func source(cpu int, kind string, count uint64, took results.Nanoseconds) witness.Source {
	return witness.Source{CPU: cpu, Kind: kind, Name: kind, Count: &count, Total: &took, Longest: &took}
}

// Totals are of the lane's own CPUs, without what is its own, and tell once what is new.
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
