package desired_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"isolane.dev/isolane/hub/desired"
)

// actions returns everything that may happen. Each clears the faults of the one before.
func (w *world) actions() map[string]func(*rapid.T) {
	all := map[string]func(){
		"declare": w.declare, "change": w.change, "delete": w.bury, "strip the finalizer": w.strip,
		"adopt": w.adopt,
		"sync":  func() { w.sync() }, "sync, with faults": func() { w.sync(everyFault()...) },
		"sync and act": func() { w.sync(); w.act() },
		"act":          func() { w.act() }, "act, with faults": func() { w.act("start", "end", "disk") },
		"cut the link":     func() { w.linked = -1 },
		"give a link back": func() { w.linked = w.any(len(w.hubs)) },
		"the agent is killed": func() { // in the middle of a step: with the faults of sync it stops at each one
			w.load()
		},
		"reboot": func() {
			w.running, w.runsAs = map[string]string{}, map[string]string{}
			w.faults = map[string]bool{"fell": true}
			w.reboot()
			w.load()
		},
		"a process falls": func() {
			w.faults = map[string]bool{"fell": true}
			for _, name := range slices.Sorted(maps.Keys(w.running)) {
				if rapid.Bool().Draw(w.t, "falls") {
					delete(w.running, name)
					delete(w.runsAs, name)
				}
			}
		},
		"the clocks jump": func() { w.wallClock += time.Duration(rapid.Int64Range(-1<<55, 1<<55).Draw(w.t, "by")) },
		"time passes": func() {
			d := time.Duration(rapid.IntRange(1, 5000).Draw(w.t, "seconds")) * time.Second
			w.pass(d)
		},
		"a moment passes": func() { w.pass(time.Second) },
		"hold": func() {
			w.hold(desired.Moment{})
			w.pass(0) // from now on
		},
		"back up": func() { w.backups = append(w.backups, w.anyHub().copy()) },
		"restore": w.restore, "an empty hub in its place": func() { w.hubs[w.any(len(w.hubs))] = w.newHub() },
		"a second hub of the name": func() {
			if len(w.hubs) < 4 {
				w.hubs = append(w.hubs, w.newHub())
			}
		},
		"a copy of the hub runs too": func() {
			if len(w.hubs) < 4 {
				twin := w.anyHub().copy()
				w.made++
				twin.history = w.made
				w.hubs = append(w.hubs, twin)
			}
		},
		"a late mark comes": func() {
			if len(w.late) > 0 {
				w.late[0]()
				w.late = w.late[1:]
			}
		},
		"rehome":              w.rehome,
		"settle":              func() { w.settle() },
		"the hub is upgraded": func() { w.anyHub().revision += 1000 },
	}
	made := map[string]func(*rapid.T){}
	for name, action := range all {
		made[name] = func(t *rapid.T) {
			w.t, w.faults = t, nil
			action()
		}
	}
	return made
}

func everyFault() []string {
	return []string{"disk", "disk, later", "view", "stale", "short", "ask", "late", "answer", "release",
		"meanwhile"}
}

func (w *world) any(n int) int  { return rapid.IntRange(0, n-1).Draw(w.t, "which") }
func (w *world) anyHub() *store { return w.hubs[w.any(len(w.hubs))] }

func (w *world) sync(faults ...string) {
	w.draw(faults)
	_, err := w.agent.Sync(context.Background(), w)
	if err != nil && len(w.faults) > 0 && rapid.Bool().Draw(w.t, "and is killed") {
		w.load()
	}
}

func (w *world) act(faults ...string) {
	w.draw(faults)
	if err := errors.Join(w.agent.Reconcile(context.Background())...); err != nil && len(w.faults) == 0 {
		w.t.Fatal(err)
	}
}

// draw draws the faults of this step.
func (w *world) draw(faults []string) {
	w.faults, w.saves = map[string]bool{}, 0
	if len(faults) > 0 {
		for _, f := range rapid.SliceOfN(rapid.SampledFrom(faults), 1, 3).Draw(w.t, "faults") {
			w.faults[f] = true
		}
	}
	if len(w.faults) == 0 {
		w.faults = nil
	}
}

// pick returns one of the objects of a hub.
func (w *world) pick() (*store, desired.Object) {
	h := w.anyHub()
	if len(h.objects) == 0 {
		w.t.Skip("no objects")
	}
	return h, h.objects[rapid.SampledFrom(slices.Sorted(maps.Keys(h.objects))).Draw(w.t, "object")]
}

func (w *world) put(h *store, o desired.Object) {
	h.objects[o.UID] = o
	h.revision++
}

func (w *world) spec() json.RawMessage {
	data, err := json.Marshal(w.name("spec"))
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

// declare makes an object, unless the hub has one of that name.
func (w *world) declare() {
	h, name := w.anyHub(), rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(w.t, "name")
	for _, o := range h.objects {
		if o.Name == name {
			w.t.Skip("it is there")
		}
	}
	w.put(h, desired.Object{UID: w.name("uid"), Name: name, Generation: 1, Spec: w.spec()})
}

func (w *world) change() {
	h, o := w.pick()
	o.Generation++
	o.Spec = w.spec()
	w.put(h, o)
}

func (w *world) bury() {
	h, o := w.pick()
	o.Deleted = true
	w.ends[o.UID] = true
	w.put(h, o)
}

// strip removes an object that does not vanish, as an impatient person does.
func (w *world) strip() {
	h, o := w.pick()
	delete(h.objects, o.UID)
	h.revision++
}

// adopt makes an object take the place of what the host runs.
func (w *world) adopt() {
	h, o := w.pick()
	for uid, i := range w.agent.State.Instances {
		if i.Name == o.Name && uid != o.UID && w.adopted[o.UID] == "" {
			o.Adopts = uid
			w.adopted[o.UID] = uid
			w.put(h, o)
			return
		}
	}
}

// restore replaces a hub by a backup.
func (w *world) restore() {
	if len(w.backups) == 0 {
		w.t.Skip("no backup")
	}
	old := w.backups[w.any(len(w.backups))].copy()
	w.made++
	old.history = w.made
	w.hubs[w.any(len(w.hubs))] = old
}
