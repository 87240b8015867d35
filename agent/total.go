package agent

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/watch"
	"isolane.dev/isolane/witness"
)

// total has the sums of a lane since it is in force.
type total struct {
	cpus      cpuset.Set
	kinds     map[string]sum // of sources that are not the lane's
	longest   longest
	record    results.Nanoseconds // the longest intrusion since the agent watches the lane
	traffic   *netpath.Traffic    // nil: the lane has no path
	dropping  bool
	throttled *uint64 // periods; nil if the kernel does not tell
	judged    []lane.Judgement
}

type sum struct {
	count uint64
	took  results.Nanoseconds
}

// longest is the longest intrusion of the last one to two minutes, so that whoever asks once a minute misses
// none.
type longest struct {
	since       time.Time // when now began
	now, before results.Nanoseconds
}

func (l *longest) add(at time.Time, took results.Nanoseconds) {
	if past := at.Sub(l.since); past >= time.Minute {
		l.before = l.now
		if past >= 2*time.Minute {
			l.before = 0
		}
		l.now, l.since = 0, at
	}
	l.now = max(l.now, took)
}

func (l *longest) value() results.Nanoseconds { return max(l.now, l.before) }

// take adds a reading to the totals, and returns what is new in it. If lanes share a CPU, each of them gets
// everything that happens on it. If a lane has gone or moved, it gets nothing of this reading, which may have
// happened after that.
func (a *Agent) take(r watch.Reading, judged map[string][]lane.Judgement, err error) (news []Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	news = a.failing(r, err)
	stay := a.follow(&news)
	for _, name := range stay {
		t := a.totals[name]
		worst := t.add(r.Sources)
		t.longest.add(r.At, value(worst.Longest))
		if value(worst.Longest) > t.record {
			t.record = *worst.Longest
			news = append(news, Event{What: Intrusion, Lane: name, Text: fmt.Sprintf("CPU %d", worst.CPU),
				By: strings.TrimSpace(worst.Kind + " " + worst.Name), CPU: &worst.CPU, Took: worst.Longest})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.totals)) {
		news = append(news, a.totals[name].judge(name, judged)...)
	}
	for _, w := range r.Traffic {
		if t, ok := a.totals[w.Lane]; ok {
			news = append(news, t.carried(w)...)
		}
	}
	for _, d := range r.Fresh {
		if news = append(news, ofDrift(d)); d.Repaired {
			a.repairs++
		}
	}
	if drifted(a.last) > 0 && drifted(r) == 0 && err == nil {
		news = append(news, Event{What: Settled})
	}
	a.last = r
	return news
}

// drifted returns how many settings are not as the lanes want them.
func drifted(r watch.Reading) (n int) {
	for _, d := range r.Drift {
		if !d.Repaired {
			n++
		}
	}
	return n
}

func value(ns *results.Nanoseconds) results.Nanoseconds {
	if ns == nil {
		return 0
	}
	return *ns
}

// failing reports once what readings cannot see, and why a reading failed.
func (a *Agent) failing(r watch.Reading, err error) (news []Event) {
	text := ""
	if err != nil {
		a.failed++
		text = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if text != a.failure && text != "" {
		news = append(news, Event{What: Failed, Text: text})
	}
	a.failure = text
	if warnings := strings.Join(r.Warnings, "; "); warnings != a.warnings {
		if a.warnings = warnings; warnings != "" {
			news = append(news, Event{What: Warned, Text: warnings})
		}
	}
	return news
}

// add adds the sources on the lane's CPUs, and returns the one with the longest intrusion.
func (t *total) add(sources []witness.Source) (worst witness.Source) {
	for _, s := range sources {
		if s.Own || !t.cpus.Contains(s.CPU) {
			continue
		}
		k := t.kinds[s.Kind]
		if s.Count != nil {
			k.count += *s.Count
		}
		if s.Total != nil {
			k.took += *s.Total
		}
		t.kinds[s.Kind] = k
		if s.Longest != nil && (worst.Longest == nil || *s.Longest > *worst.Longest) {
			worst = s
		}
	}
	return worst
}

// carried adds what the lane's device has carried, and reports when it begins to lose packets.
func (t *total) carried(w watch.Traffic) (news []Event) {
	sum := w.Traffic
	if t.traffic != nil {
		sum = t.traffic.Plus(w.Traffic)
	}
	t.traffic = &sum
	dropping := w.Dropped+w.Refused > 0
	if dropping && !t.dropping {
		news = append(news, Event{What: Packets, Lane: w.Lane, Text: w.String()})
	}
	t.dropping = dropping
	return news
}

// judge reports verdicts that have changed, if they were looked at.
func (t *total) judge(name string, judged map[string][]lane.Judgement) (news []Event) {
	now, looked := judged[name]
	if !looked {
		return nil
	}
	for _, j := range now {
		before := lane.Unproven
		at := slices.IndexFunc(t.judged, func(o lane.Judgement) bool { return o.Bound == j.Bound })
		if at >= 0 {
			before = t.judged[at].Verdict
		}
		if j.Verdict == before {
			continue
		}
		text := fmt.Sprintf("objective %s: %s", j.Bound, j.Verdict)
		if j.Reason != "" {
			text += ": " + j.Reason
		}
		news = append(news, Event{What: Judged, Lane: name, Text: text})
	}
	t.judged = now
	return news
}

// follow keeps a total for each lane in force and for no other. It returns the lanes that have not moved, and
// reports the others.
func (a *Agent) follow(news *[]Event) (stay []string) {
	now := map[string]bool{}
	for _, g := range a.watch.Lanes() {
		name, cpus := g.Lane.Name, g.Lane.Owned()
		now[name] = true
		t, known := a.totals[name]
		switch {
		case !known:
			t = &total{kinds: map[string]sum{}}
			a.totals[name] = t
			*news = append(*news, Event{What: Applied, Lane: name, Text: "CPUs " + cpus.String()})
		case t.cpus != cpus:
			text := "from CPUs " + t.cpus.String() + " to " + cpus.String()
			*news = append(*news, Event{What: Moved, Lane: name, Text: text})
		}
		if t.cpus == cpus {
			stay = append(stay, name)
		}
		t.cpus, t.throttled = cpus, throttled(g.Dir)
	}
	for _, name := range slices.Sorted(maps.Keys(a.totals)) {
		if !now[name] {
			*news = append(*news, Event{What: Released, Lane: name, Text: "CPUs " + a.totals[name].cpus.String()})
			delete(a.totals, name)
		}
	}
	return stay
}

// throttled returns in how many periods the bandwidth limit has stopped a cgroup (cgroup-v2.rst, cpu.stat).
// It returns nil if the file has no such figure, for example because the cpu controller is in another
// hierarchy.
func throttled(group string) *uint64 {
	text, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(text) {
		number, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "nr_throttled ")
		if n, err := strconv.ParseUint(number, 10, 64); ok && err == nil {
			return &n
		}
	}
	return nil
}
