// Package diary records what a program does to lanes, in the words of their history.
package diary

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/quantity"
)

// Diary has the events that a program has caused on the lanes of its host and not written yet.
type Diary struct {
	Dir    string // of the history
	Who    history.Who
	events []history.Event
}

// Add adds an event that happens now.
func (d *Diary) Add(e history.Event) {
	e.At = time.Now()
	d.events = append(d.events, e)
}

// Flush writes the events. It keeps those that it cannot write for the next time.
func (d *Diary) Flush() error {
	for i := range d.events {
		d.events[i].Who = &d.Who
	}
	err := history.Append(d.Dir, d.events...)
	if _, written := errors.AsType[*history.DamagedError](err); err == nil || written {
		d.events = nil
	}
	return err
}

// expired is the reason for releasing lanes that nobody has asked to release.
const expired = "the isolane run that made it has ended"

// Released records lanes that were released, and why.
func (d *Diary) Released(names []string, why string) {
	for _, name := range names {
		d.Add(history.Event{Kind: history.Released, Lane: name, What: why})
	}
}

// Applied records a placement that was put in force, if that changed anything.
func (d *Diary) Applied(a lanes.Applied) {
	c := a.Change
	d.putBack(c.PutBack)
	for _, m := range c.Moved {
		d.Add(history.Event{Kind: history.Applied, Lane: m.Lane,
			What: fmt.Sprintf("moved from CPUs %s to %s", m.From, m.To)})
	}
	for _, l := range a.Placement.Lanes {
		if slices.Contains(c.Added, l.Name) {
			d.Add(history.Event{Kind: history.Applied, Lane: l.Name,
				What: fmt.Sprintf("CPUs %s, memory of NUMA node %s", l.CPUs, l.MemoryNodes)})
		}
	}
	d.Released(c.Removed, "taken back: no file names it")
	if n := c.Changed + c.TakenBack; n > 0 && len(c.Added)+len(c.Moved)+len(c.Removed) == 0 {
		d.Add(history.Event{Kind: history.Applied, Settings: n,
			What: quantity.Count(n, "setting") + " of the host changed"})
	}
	for _, o := range c.Outside {
		d.Add(history.Event{Kind: history.Drifted, Lane: o.Lane,
			What: "a workload is outside of its lane: " + o.Reason})
	}
}

// putBack records settings that were repaired together, and names some of them.
func (d *Diary) putBack(all []enforce.Drift) {
	const named = 3
	var names []string
	for _, drift := range all[:min(named, len(all))] {
		names = append(names, drift.Name)
	}
	if more := len(all) - named; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	if len(all) > 0 {
		d.Add(history.Event{Kind: history.PutBack, Settings: len(all), What: strings.Join(names, ", ")})
	}
}

// Recovered records how the remains of a crash were dealt with.
func (d *Diary) Recovered(r lanes.Recovered) {
	d.Released(r.Released, expired)
	for _, name := range r.Undone {
		d.Add(history.Event{Kind: history.Recovered, What: "undone: " + name})
	}
	d.putBack(r.PutBack)
	if n := len(r.Adopted); n > 0 {
		d.Add(history.Event{Kind: history.Adopted, Settings: n, What: "lanes without a record, back to the " +
			"kernel's defaults: " + quantity.Count(n, "step")})
	}
}

// Repaired records each setting that a watch has repaired, and who had changed it.
func (d *Diary) Repaired(all []enforce.Drift) {
	for _, drift := range all {
		if drift.Repaired {
			d.Add(history.Event{Kind: history.PutBack, Settings: 1, By: drift.By,
				What: drift.Text()})
		}
	}
}

// Proved records the verdict that measurements give on a lane's objective.
func (d *Diary) Proved(name, dir string, judged []lane.Judgement) {
	var worst lane.Verdict
	var texts []string
	for _, j := range judged {
		texts = append(texts, fmt.Sprintf("%s: %s", j.Bound, j.Verdict))
		if worst == "" || worst == lane.Held || j.Verdict == lane.Missed {
			worst = j.Verdict
		}
	}
	d.Add(history.Event{Kind: history.Proof, Lane: name, Verdict: string(worst),
		What: strings.Join(append(texts, dir), "; ")})
}
