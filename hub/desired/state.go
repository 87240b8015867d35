// Package desired is what one host is to run, as its agent keeps it on disk, and what a hub may change in it.
//
// A host goes on with what it has, whatever happens to its hub. It recognizes the hub whose changes it has
// taken over by an identity, and by a mark that the host has left there. Anything without both is another
// hub, or an older state of this one, and changes nothing. An Instance that a hub no longer lists runs on:
// only a tombstone ends it. No wall clock decides anything here, because clocks jump.
package desired

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// State is what a host is to run. It is written to disk before anything is done about it.
type State struct {
	Version   int                 `json:"version"`
	Hub       Hub                 `json:"hub"`
	Hold      *Hold               `json:"hold,omitempty"` // nil: changes are taken over
	Instances map[string]Instance `json:"instances"`      // by the UID of their object at the hub
}

// Hub is how a host recognizes its hub.
type Hub struct {
	ID       string   `json:"id"`              // a UID that no other hub has; "": no hub is known
	Revision uint64   `json:"revision"`        // of its store, when the host last took something over
	Mark     string   `json:"mark"`            // the last mark that this host has left there; "": none yet
	Asked    []string `json:"asked,omitempty"` // marks that the hub may have: it has not answered
}

// Hold puts all changes off, for people at the site.
type Hold struct {
	Left   time.Duration `json:"leftNanoseconds"` // time in which the host runs; independent of the wall clock
	Reason string        `json:"reason"`
	Since  Moment        `json:"since"` // when that much was left; zero: from the agent's next look
}

// Moment is a moment of a boot, by the clock that counts from the boot.
type Moment struct {
	Boot string        `json:"boot"` // boot_id
	At   time.Duration `json:"atNanoseconds"`
}

// Instance is what runs on the host for one object of the hub.
type Instance struct {
	Name       string          `json:"name"`       // unique on this host
	Generation int64           `json:"generation"` // taken over last; Foreign: by another hub
	Spec       json.RawMessage `json:"spec"`
	Ending     bool            `json:"ending,omitempty"` // its tombstone was seen
}

// Foreign is the generation of an Instance about which the present hub has not said anything. The first
// generation that this hub names is taken as the present one, and changes nothing.
const Foreign = -1

// View is what a hub says to a host.
type View struct {
	Hub      string // its identity
	Revision uint64 // of its store
	Mark     string // the last mark that this host has left there
	Objects  []Object
}

// Object is an Instance at the hub.
type Object struct {
	UID, Name  string
	Generation int64
	Deleted    bool   // it has a deletionTimestamp, the tombstone
	Adopts     string // UID of the Instance whose place it takes while that runs on
	Spec       json.RawMessage
}

// Findings are what a host finds in a view. The lists have UIDs.
type Findings struct {
	Regressed string            // why nothing of the view counts; "": it counts
	Changed   bool              // the state changes: the hub must have a mark before that
	Waiting   []string          // changes that a hold puts off
	Unknown   []string          // Instances that the view lacks; they run on
	Refused   map[string]string // objects that are not taken over, and why
	Differs   []string          // Instances that run as another hub has said, not as this view says
	Gone      []string          // objects with a tombstone of which nothing runs: drop their finalizer
}

// remedy tells people what to do about a hub that is not trusted.
const remedy = "; nothing of it is taken over and what runs goes on: isolane-hub rehome, with a new token, " +
	"has this host follow it"

// Take returns the state after a view of a hub. mark is a new mark, to be left at the hub. Take itself
// changes nothing: see Agent.
func (s State) Take(v View, mark string) (State, Findings) {
	if reason := s.distrust(v); reason != "" {
		return s, Findings{Regressed: reason + remedy}
	}
	f := Findings{Refused: map[string]string{}}
	objects := slices.SortedFunc(slices.Values(v.Objects), func(a, b Object) int {
		return strings.Compare(a.UID, b.UID)
	})
	counted, was := s.count(objects)
	next := counted.clone()
	var changed []string
	listed := map[string]bool{}
	for _, o := range objects {
		listed[o.UID] = true
		if next.take(o, &f) {
			changed = append(changed, o.UID)
		}
	}
	for uid := range next.Instances {
		if !listed[uid] {
			f.Unknown = append(f.Unknown, uid)
		}
	}
	slices.Sort(f.Unknown)
	if f.Changed = was || len(changed) > 0; s.Hold != nil {
		next, f.Changed, f.Waiting = counted, was, changed
	}
	next.Hub.Mark = v.Mark
	if f.Changed {
		next.Hub.Mark, next.Hub.Revision, next.Hub.Asked = mark, v.Revision, nil
	}
	return next, f
}

// count takes the generations of objects as the present ones where the hub has said none before, and reports
// whether there were any. That changes nothing that runs, so a hold does not put it off: what is declared
// during the hold is newer, and is done after it.
func (s State) count(objects []Object) (next State, some bool) {
	next = s.clone()
	for _, o := range objects {
		if i, known := next.Instances[o.UID]; known && i.Generation == Foreign {
			i.Generation, some = o.Generation, true
			next.Instances[o.UID] = i
		}
	}
	return next, some
}

// distrust says why a view is not of the hub that the host knows, or is older than what the host knows of it.
// It returns "" for a view to trust.
func (s State) distrust(v View) string {
	switch {
	case v.Hub != s.Hub.ID:
		return "this is another hub: expected the identity " + s.Hub.ID + ", found " + v.Hub
	case v.Mark != s.Hub.Mark && !slices.Contains(s.Hub.Asked, v.Mark):
		return "the hub does not have the mark that this host left there last: it was restored, or is a copy"
	case v.Revision < s.Hub.Revision:
		return "the hub's store is older than what this host has seen of it"
	}
	return ""
}

// take takes over one object, and reports whether that changes the state.
func (s *State) take(o Object, f *Findings) bool {
	i, known := s.Instances[o.UID]
	switch {
	case o.Deleted && !known:
		f.Gone = append(f.Gone, o.UID)
		return false
	case o.Deleted:
		was := i.Ending
		i.Ending = true
		s.Instances[o.UID] = i
		return !was
	case !known:
		return s.admit(o, f)
	case i.Ending:
		return false
	case o.Generation > i.Generation:
		i.Generation, i.Spec = o.Generation, o.Spec
		s.Instances[o.UID] = i
		return true
	case i.Generation == o.Generation && string(i.Spec) != string(o.Spec):
		f.Differs = append(f.Differs, o.UID)
	}
	return false
}

// admit takes over an object that the host does not have yet.
func (s *State) admit(o Object, f *Findings) bool {
	for uid, i := range s.Instances {
		if i.Name != o.Name {
			continue
		}
		if o.Adopts != uid || i.Ending {
			f.Refused[o.UID] = "the host runs an Instance " + o.Name + " with UID " + uid +
				": spec.adopts: " + uid + " takes it over as it runs"
			return false
		}
		delete(s.Instances, uid)
		s.Instances[o.UID] = Instance{Name: o.Name, Generation: o.Generation, Spec: i.Spec}
		return true
	}
	s.Instances[o.UID] = Instance{Name: o.Name, Generation: o.Generation, Spec: o.Spec}
	return true
}

// Rehome returns the state for another hub, or for this one in its present state. What runs stays as it is.
func (s State) Rehome(v View) State {
	next := s.clone()
	asked := next.Hub.Asked
	next.Hub = Hub{ID: v.Hub, Revision: v.Revision, Mark: v.Mark}
	if v.Hub == s.Hub.ID {
		next.Hub.Asked = asked // they may still arrive
	}
	for uid, i := range next.Instances {
		i.Generation = Foreign
		next.Instances[uid] = i
	}
	return next
}

// Elapsed returns the state at a later moment. Time in which the host was off does not count.
func (s State) Elapsed(now Moment) State {
	if s.Hold == nil {
		return s
	}
	h := *s.Hold
	switch h.Since.Boot {
	case now.Boot:
		h.Left -= max(0, now.At-h.Since.At)
	case "": // it begins now
	default:
		h.Left -= now.At
	}
	h.Since = now
	next := s.clone()
	if next.Hold = &h; h.Left <= 0 {
		next.Hold = nil
	}
	return next
}

func (s State) clone() State {
	s.Instances, s.Hub.Asked = maps.Clone(s.Instances), slices.Clone(s.Hub.Asked)
	if s.Instances == nil {
		s.Instances = map[string]Instance{}
	}
	return s
}
