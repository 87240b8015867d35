package desired_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"isolane.dev/isolane/hub/desired"
)

// store is a hub of the model: its objects, and the marks that this host has left there.
type store struct {
	id       string
	history  int // differs after each restore: following this host's past does not mean following the other's
	revision uint64
	marks    []string // all that this host has left, the latest last
	objects  map[string]desired.Object
}

func (s *store) mark() string {
	if len(s.marks) == 0 {
		return ""
	}
	return s.marks[len(s.marks)-1]
}

func (s *store) copy() *store {
	c := *s
	c.marks, c.objects = slices.Clone(s.marks), maps.Clone(s.objects)
	return &c
}

func (s *store) view() desired.View {
	v := desired.View{Hub: s.id, Revision: s.revision, Mark: s.mark()}
	for _, uid := range slices.Sorted(maps.Keys(s.objects)) {
		v.Objects = append(v.Objects, s.objects[uid])
	}
	return v
}

// old is what a hub has said at some time.
type old struct {
	history int
	view    desired.View
}

var errFault = errors.New("a fault of the model")

// world is a host, the hubs that it may reach, and a record of what happened that is independent of how the
// host decides.
type world struct {
	t       *rapid.T
	hubs    []*store
	backups []*store
	linked  int             // index of the hub; -1: the link is cut
	stale   []old           // answers that were once true, from a lagging cache
	late    []func()        // marks that are still under way
	faults  map[string]bool // what goes wrong in this step

	agent *desired.Agent
	disk  []byte // its content
	last  desired.State

	running   map[string]string // UID of what runs, by name
	runsAs    map[string]string // spec of what runs, by name
	ends      map[string]bool   // UIDs that have had a tombstone at any hub
	adopted   map[string]string // by UID: whom it has taken over
	acted     []string          // marks before things that were done since the host came to its hub
	history   int               // that the host follows
	home      string            // the hub to which people have brought it
	vanished  map[string]bool   // UIDs that were ended for that hub
	leaving   map[string]bool   // UIDs that were still ending for the hub before it: this one may have them start again
	homed     bool              // a person has brought it to another hub in this step
	made      int
	saves     int              // in this step
	declared  map[string]int64 // generation of each object when the host came to this hub
	held      time.Duration    // for which people at the site put changes off
	more      time.Duration    // by which reboots may lengthen that
	now       desired.Moment   // by the host's own clock
	wallClock time.Duration    // the wall clocks of hub and host: nothing may ask them
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, running: map[string]string{}, runsAs: map[string]string{}, ends: map[string]bool{},
		adopted: map[string]string{}}
	w.hubs = []*store{w.newHub()}
	w.agent = &desired.Agent{Save: w.save, Runtime: w, NewMark: func() string { return w.name("mark") }}
	w.reboot()
	w.rehome()
	return w
}

// pass makes time pass, and the agent count it: changes are put off for as long as people have said.
func (w *world) pass(d time.Duration) {
	w.now.At, w.held = w.now.At+d, w.held-d
	if err := w.agent.Pass(w.now); err != nil {
		w.t.Fatal(err)
	}
	if w.agent.State.Hold != nil && w.held <= -w.more {
		w.t.Fatalf("changes are put off for %s longer than people have said", -w.held)
	}
}

func (w *world) reboot() {
	w.now, w.more = desired.Moment{Boot: w.name("boot")}, w.more+time.Minute
}

func (w *world) hold(since desired.Moment) {
	const long = 2 * time.Hour
	err := w.agent.Hold(&desired.Hold{Left: long, Reason: "inventory", Since: since})
	if err == nil {
		w.held, w.more = long, 0
	} else if !errors.Is(err, errFault) {
		w.t.Fatal(err)
	}
}

// meanwhile is what happens at the host while its hub is asked.
func (w *world) meanwhile() {
	if !w.faults["meanwhile"] {
		return
	}
	if rapid.Bool().Draw(w.t, "people hold") {
		w.hold(w.now)
	}
	if err := errors.Join(w.agent.Reconcile(context.Background())...); err != nil && !errors.Is(err, errFault) {
		w.t.Fatal(err)
	}
}

func (w *world) name(kind string) string {
	w.made++
	return fmt.Sprint(kind, "-", w.made)
}

func (w *world) newHub() *store {
	w.made++
	return &store{id: w.name("hub"), history: w.made, objects: map[string]desired.Object{}}
}

// hub returns the linked hub.
func (w *world) hub() *store {
	if w.linked < 0 {
		w.t.Skip("the link is cut")
	}
	return w.hubs[w.linked]
}

// save is the disk. It checks that a change of what runs comes after a mark that the hub has, with all marks
// before it.
func (w *world) save(s desired.State) error {
	w.saves++
	if w.faults["disk"] && w.saves == 1 || w.faults["disk, later"] && w.saves == 2 {
		return errFault
	}
	data, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	if h := w.hubs[max(0, w.linked)]; !w.homed && s.Hub.Mark != w.last.Hub.Mark {
		for _, mark := range append(w.acted, s.Hub.Mark) {
			if !slices.Contains(h.marks, mark) {
				w.t.Fatalf("taken over from hub %s, which does not have the mark %s", h.id, mark)
			}
		}
		if h.id != w.home {
			w.t.Fatalf("taken over from hub %s; the host follows %s", h.id, w.home)
		}
		if len(w.acted) == 0 && h.history != w.history { // a copy of its hub, which gets the first mark
			w.count(h)
		}
		w.acted, w.history = append(w.acted, s.Hub.Mark), h.history
		w.untouched(s, h)
	} else if !w.homed && changes(w.last, s) {
		w.t.Fatal("a change without a mark")
	}
	w.disk, w.last = data, s
	return nil
}

// untouched checks that nothing changes that must stay: anything during a hold, and what ran before the host
// came to this hub.
func (w *world) untouched(s desired.State, h *store) {
	if w.held > 0 && changes(w.last, s) {
		w.t.Fatalf("taken over while people hold, %s more", w.held)
	}
	for uid, i := range s.Instances {
		was, is := w.last.Instances[uid]
		if since, known := w.declared[uid]; is && known && string(was.Spec) != string(i.Spec) &&
			h.objects[uid].Generation <= since {
			w.t.Fatalf("%s (%s) was changed, and nobody has declared it anew since the host came", i.Name, uid)
		}
	}
}

// changes reports whether something is begun, changed or to be ended.
func changes(before, after desired.State) bool {
	for uid, i := range after.Instances {
		b, was := before.Instances[uid]
		if !was || string(b.Spec) != string(i.Spec) || b.Ending != i.Ending {
			return true
		}
	}
	return false
}

// View returns the hub's view, perhaps cut short, or an old one.
func (w *world) View(context.Context) (desired.View, error) {
	h := w.hub()
	defer w.meanwhile()
	if w.faults["view"] {
		return desired.View{}, errFault
	}
	v := h.view()
	if w.faults["stale"] && len(w.stale) > 0 {
		if was := rapid.SampledFrom(w.stale).Draw(w.t, "old view"); was.history == h.history {
			v.Revision, v.Objects = was.view.Revision, was.view.Objects
		}
	}
	w.stale = append(w.stale, old{h.history, v})
	if w.faults["short"] {
		v.Objects = slices.DeleteFunc(slices.Clone(v.Objects), func(desired.Object) bool {
			return rapid.Bool().Draw(w.t, "left out")
		})
	}
	return v, nil
}

// Acknowledge leaves a mark. Its answer may get lost, and the mark may arrive late.
func (w *world) Acknowledge(_ context.Context, v desired.View, mark string) error {
	h := w.hub()
	defer w.meanwhile()
	write := func() bool {
		if h.mark() != v.Mark {
			return false
		}
		h.marks = append(h.marks, mark)
		h.revision++
		return true
	}
	switch {
	case w.faults["ask"]:
		return errFault
	case w.faults["late"]:
		w.late = append(w.late, func() { write() })
		return errFault
	case !write():
		return errors.New("somebody else was faster")
	case w.faults["answer"]:
		return errFault
	}
	return nil
}

// Release lets an object vanish.
func (w *world) Release(_ context.Context, uid string) error {
	h := w.hub()
	if w.faults["release"] {
		return errFault
	}
	if o, is := h.objects[uid]; is && !o.Deleted {
		w.t.Fatalf("let go of %s, which has no tombstone", uid)
	}
	for name, runs := range w.running {
		if runs == uid {
			w.t.Fatalf("let go of %s, which runs as %s", uid, name)
		}
	}
	delete(h.objects, uid)
	h.revision++
	return nil
}

// Ensure starts what does not run, or makes it run as its spec now says.
func (w *world) Ensure(_ context.Context, uid string, i desired.Instance) error {
	if w.faults["start"] {
		return errFault
	}
	if runs, is := w.running[i.Name]; is && !w.stands(uid, runs) {
		w.t.Fatalf("%s runs for %s, and was started for %s", i.Name, runs, uid)
	}
	if w.vanished[uid] {
		w.t.Fatalf("%s (%s) was started again after it was ended", i.Name, uid)
	}
	w.running[i.Name], w.runsAs[i.Name] = uid, string(i.Spec)
	delete(w.leaving, uid)
	return nil
}

// End ends what has its tombstone.
func (w *world) End(_ context.Context, uid string, i desired.Instance) error {
	if w.faults["end"] {
		return errFault
	}
	if !w.ends[uid] {
		w.t.Fatalf("%s (%s) was ended and has no tombstone", i.Name, uid)
	}
	if runs, is := w.running[i.Name]; is && !w.stands(uid, runs) {
		w.t.Fatalf("%s runs for %s, and was ended for %s", i.Name, runs, uid)
	}
	delete(w.running, i.Name)
	delete(w.runsAs, i.Name)
	w.vanished[uid] = !w.leaving[uid]
	return nil
}

// stands reports whether an object has taken over, perhaps through others, what was started for another.
func (w *world) stands(uid, started string) bool {
	for range w.adopted { // two may have taken over one another
		if uid == started {
			break
		}
		uid = w.adopted[uid]
	}
	return uid == started
}

// ended reports whether what was started for an object has a tombstone.
func (w *world) ended(started string) bool {
	for uid := range w.ends {
		if w.stands(uid, started) {
			return true
		}
	}
	return false
}

// load does what a starting agent does: it knows only what is on disk.
func (w *world) load() {
	var s desired.State
	if err := json.Unmarshal(w.disk, &s); err != nil {
		w.t.Fatal(err)
	}
	w.agent.State = s
}

// rehome does what a person at the site does.
func (w *world) rehome() {
	h := w.hub()
	w.homed = true
	if err := w.agent.Rehome(context.Background(), w); err != nil {
		w.t.Fatal(err)
	}
	w.homed, w.acted, w.history = false, nil, h.history
	w.home, w.vanished, w.leaving = h.id, map[string]bool{}, map[string]bool{}
	for uid, i := range w.last.Instances {
		w.leaving[uid] = i.Ending
	}
	w.count(h)
}

// count records what a hub declares of the host's Instances when the host comes to it.
func (w *world) count(h *store) {
	w.declared = map[string]int64{}
	for uid := range w.last.Instances {
		if o, is := h.objects[uid]; is {
			w.declared[uid] = o.Generation
		}
	}
}

// settle gives the host its hub back, without faults, and checks that everything is as declared there.
func (w *world) settle() {
	w.faults = nil
	w.pass(1000 * time.Hour)
	if w.linked < 0 {
		w.linked = 0
	}
	for range 3 {
		if _, err := w.agent.Sync(context.Background(), w); err != nil {
			w.t.Fatal(err)
		}
		if err := errors.Join(w.agent.Reconcile(context.Background())...); err != nil {
			w.t.Fatal(err)
		}
	}
	for uid, i := range w.agent.State.Instances {
		if w.running[i.Name] != uid || w.runsAs[i.Name] != string(i.Spec) {
			w.t.Fatalf("%s (%s) does not run", i.Name, uid)
		}
	}
	h := w.hub()
	if h.history != w.history {
		return // this host does not follow that hub: the only promise is that nothing ends
	}
	view := h.view()
	_, f := w.agent.State.Take(view, "unused")
	if f.Regressed != "" {
		w.t.Fatalf("its own hub, which never went back, is not trusted: %s", f.Regressed)
	}
	for _, o := range view.Objects {
		runs := w.running[o.Name] == o.UID
		switch {
		case o.Deleted:
			w.t.Fatalf("%s (%s) has a tombstone and is still there; runs: %t", o.Name, o.UID, runs)
		case !runs && f.Refused[o.UID] == "":
			w.t.Fatalf("%s (%s) does not run, and nobody says why", o.Name, o.UID)
		case runs && w.runsAs[o.Name] != string(o.Spec) && !slices.Contains(f.Differs, o.UID):
			w.t.Fatalf("%s runs as %s, declared is %s", o.Name, w.runsAs[o.Name], o.Spec)
		}
	}
	for name, uid := range w.running {
		if _, there := h.objects[uid]; !there && !slices.Contains(f.Unknown, uid) {
			w.t.Fatalf("%s (%s) runs, the hub does not have it, and nobody says so", name, uid)
		}
	}
}

// Whatever happens to hub, link and host, no Instance ends without its tombstone, and none stays once the hub
// that the host follows is back.
func TestModel(t *testing.T) {
	steps := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		before := map[string]string{}
		actions := w.actions()
		actions[""] = func(t *rapid.T) {
			steps++
			w.t = t
			w.remains(before)
			before = maps.Clone(w.running)
		}
		t.Repeat(actions)
		w.settle()
		w.remains(before)
	})
	t.Logf("%d steps", steps)
}

// remains checks that what ran before the step still runs, except for what has a tombstone, or stopped with
// the host and is to run again.
func (w *world) remains(before map[string]string) {
	var onDisk desired.State
	if err := json.Unmarshal(w.disk, &onDisk); err != nil {
		w.t.Fatal(err)
	}
	for name, uid := range before {
		_, runs := w.running[name]
		kept := func(i desired.Instance) bool { return i.Name == name }
		again := slices.ContainsFunc(slices.Collect(maps.Values(onDisk.Instances)), kept)
		if !w.ended(uid) && (!again || !runs && !w.faults["fell"]) {
			w.t.Fatalf("%s (%s) is no more, and has no tombstone; runs: %t, is to run: %t", name, uid, runs, again)
		}
	}
}
