package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/enforce/merge"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// Change is the result of putting lanes in force.
type Change struct {
	Added     []string  `json:"added"`   // lanes
	Removed   []string  `json:"removed"` // lanes
	Moved     []Moved   `json:"moved"`
	PutBack   []Drift   `json:"putBack"`   // settings that somebody else had changed
	Changed   int       `json:"changed"`   // settings that have another value now, for the lanes
	TakenBack int       `json:"takenBack"` // settings that are as before the lanes again
	Outside   []Outside `json:"outside"`   // attached workloads that did not return to their lane
}

// Moved is a lane that has other CPUs than before.
type Moved struct {
	Lane      string `json:"lane"`
	From      string `json:"from"`
	To        string `json:"to"`
	Processes int    `json:"processes"` // that moved with it
}

// Outside is an attached workload that is no longer in its lane.
type Outside struct {
	Lane   string `json:"lane"`
	Reason string `json:"reason"`
}

// Put puts a placement in force. If a lane gets other CPUs, memory, scheduling or cgroup, its attached
// workloads leave it first; attach then brings them in again, with the roles of the lane's new place. It also
// brings in the cgroups that declarations name. If Put fails it restores what was in force. Errors: a
// *NoRecordError if there are lanes without a record, because what they changed would be taken for the state
// before; a *plan.Refusal if somebody else on a lane's segment has its address.
func (l *Lanes) Put(ctx context.Context, p plan.Placement, attach func(attached.Workload) error) (Change,
	error) {
	if err := l.Recorded(); err != nil {
		return Change{}, err
	}
	asked := l.questions.For(ctx, l.root, l.Placement, p) // asks while the rest is read
	l.questions = nil
	defer asked.Close()
	drift, err := []Drift(nil), l.checkUndoable(p)
	if err == nil && len(l.Placement.Lanes) > 0 {
		drift, err = l.Drift(ctx)
	}
	changes, before := l.laneChanges(p), l.journal.Pending()
	moving := attached.Moving(l.Attached, l.Placement, p)
	stay, serr := l.journals().StepsOf(slices.DeleteFunc(slices.Clone(l.Attached),
		func(at attached.Workload) bool { return slices.Contains(moving, at) })...)
	if err = cmp.Or(asked.Answers(), err, serr); err != nil { // nothing has changed so far
		return Change{}, err
	}
	for _, at := range moving {
		err = errors.Join(err, l.detachReturning(ctx, at, l.returningWith(at)))
	}
	if err == nil {
		seen := len(l.Placement.Lanes) > 0 && len(drift)+len(moving) == 0 && // lanes only come
			!slices.ContainsFunc(changes, func(c LaneChange) bool { return c.Change != laneAdded })
		err = l.applyUnchecked(ctx, p, seen)
	}
	c := Change{Added: []string{}, Removed: []string{}, Moved: []Moved{}, PutBack: []Drift{},
		Outside: []Outside{}}
	coming := slices.Clone(l.Returning)
	if err == nil {
		coming = slices.DeleteFunc(coming, func(at attached.Workload) bool { return at.Declared })
		for _, at := range attached.Declared(p) {
			if !attached.DeclaredOf(at.Lane, l.Attached) || attached.DeclaredOf(at.Lane, l.halfAttached()) {
				coming = append(coming, at)
			}
		}
	}
	outside, oerr := l.attachAll(ctx, coming, attach)
	c.Outside, err = append(c.Outside, outside...), errors.Join(err, oerr)
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted: %w", err)
	}
	if err != nil {
		return c, err
	}
	c.countSteps(before, l.journal.Pending(), len(l.Left))
	l.markRepaired(ctx, drift)
	for _, d := range drift {
		if d.Repaired && slices.ContainsFunc(slices.Concat(before, stay), func(s journal.Step) bool {
			return s.Same(d.Step) && s.After == d.Step.After
		}) {
			c.PutBack = append(c.PutBack, d)
		}
	}
	return c, c.compareLanes(changes, l)
}

// Ask starts asking who has the addresses of lanes that will be planned and then put in force.
func (l *Lanes) Ask(ctx context.Context, wanted []lane.Lane, prune bool) {
	if merge.Refuse(l.paths, wanted) == nil {
		l.questions = l.questions.For(ctx, l.root, l.Placement, merge.Unplaced(l.Placement, wanted, prune))
	}
}

// markRepaired sets Repaired in each drift that is in force again.
func (l *Lanes) markRepaired(ctx context.Context, drift []Drift) {
	for i, d := range drift {
		inForce, _, err := l.journal.InForce(ctx, d.Step)
		drift[i].Repaired = err == nil && inForce
	}
}

// countSteps compares the steps that were in force with those that are.
func (c *Change) countSteps(before, after []journal.Step, left int) {
	values := map[[2]string]string{}
	for _, s := range before {
		values[[2]string{s.Kind, s.Target}] = s.After
	}
	for _, s := range after {
		if value, ok := values[[2]string{s.Kind, s.Target}]; !ok || value != s.After {
			c.Changed++
		}
		delete(values, [2]string{s.Kind, s.Target})
	}
	c.TakenBack = len(values) - left
}

// compareLanes adds the lanes that have come, gone and moved.
func (c *Change) compareLanes(changes []LaneChange, l *Lanes) error {
	groups, err := l.Groups()
	if err != nil {
		return err
	}
	for _, now := range changes {
		switch {
		case now.Change == laneAdded:
			c.Added = append(c.Added, now.Name)
		case now.Change == laneRemoved:
			c.Removed = append(c.Removed, now.Name)
		case now.From != now.To:
			at := slices.IndexFunc(groups, func(g LaneGroup) bool { return g.Lane.Name == now.Name })
			c.Moved = append(c.Moved, Moved{now.Name, now.From, now.To, groups[at].Processes})
		}
	}
	return nil
}
