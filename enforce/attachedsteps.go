package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
)

// attachedSteps are the steps that have brought workloads into their lanes.
func (l *Lanes) attachedSteps(attached []Attachment) ([]journal.Step, error) {
	var steps []journal.Step
	for _, at := range attached {
		j, err := journal.Look(l.dir, at.Journal, l.ops)
		if err != nil {
			return nil, err
		}
		for _, s := range j.Pending() {
			if s.Kind != change.KindCgroup && s.Kind != change.KindKeeper { // which go with the scope that they are in
				steps = append(steps, s)
			}
		}
	}
	return steps, nil
}

// restoreAttached brings attached workloads back into their lanes that somebody else has taken out.
func (l *Lanes) restoreAttached(ctx context.Context, a *Applied) error {
	steps, err := l.attachedSteps(a.Attached)
	if err != nil {
		return err
	}
	missing, err := (&Wanted{lanes: l, attached: steps}).attachedMissing(ctx)
	if err != nil {
		return err
	}
	for _, s := range missing {
		if err = l.redo(ctx, s); err != nil {
			r := l.ops.refusal(s, err)
			r.Subject = Workload
			a.Refused = append(a.Refused, r)
		}
	}
	return ctx.Err()
}

// redo does a step once more, in the journal that it is in: the value to come back to stays that of the
// first time.
func (l *Lanes) redo(ctx context.Context, s journal.Step) error {
	j := l.journal
	for _, at := range l.Attached {
		steps, err := l.attachedSteps([]Attachment{at})
		if err != nil {
			return err
		}
		same := func(o journal.Step) bool { return o.Kind == s.Kind && o.Target == s.Target }
		if !slices.ContainsFunc(steps, same) {
			continue
		}
		if j, err = l.journal.Beside(at.Journal); err != nil {
			return err
		}
		defer j.Close()
		s.Optional = false // refused now, it is still to be undone some day
		break
	}
	refused, err := j.Apply(ctx, []journal.Step{s})
	if len(refused) > 0 {
		err = refused[0].Err
	}
	return err
}

// rounds is how often Attach searches for processes that were born meanwhile.
const rounds = 20

func untilNone(ctx context.Context, j *journal.Journal, next func() ([]journal.Step, error)) error {
	var last journal.Step
	for range rounds {
		steps, err := next()
		if err != nil || len(steps) == 0 {
			return err
		}
		last = steps[0]
		refused, err := j.Apply(ctx, steps)
		for _, r := range refused {
			if !errors.Is(r.Err, fs.ErrNotExist) { // else it has ended
				err = errors.Join(err, r.Err)
			}
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("processes are born there faster than they can be attached, or somebody else sets what "+
		"the lane wants, such as %s %s: try again", last.Kind, last.Target)
}
