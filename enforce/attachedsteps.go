package enforce

import (
	"context"
	"errors"
	"slices"

	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/journal"
)

// restoreAttached brings attached workloads back into their lanes that somebody else has taken out.
func (l *Lanes) restoreAttached(ctx context.Context, a *Applied) error {
	steps, err := l.journals().StepsOf(a.Attached...)
	if err != nil {
		return err
	}
	missing, err := (&Wanted{lanes: l, attached: steps}).attachedMissing(ctx)
	if err != nil {
		return err
	}
	for _, s := range missing {
		if err = l.redo(ctx, s); err != nil {
			r := l.ops.refused(s, err)
			r.Subject, r.Cause, r.Reason = Workload, Errno, err.Error()
			a.Refused = append(a.Refused, r)
		}
	}
	return ctx.Err()
}

// redo does a step once more, in the journal that it is in: the value to come back to stays that of the
// first time.
func (l *Lanes) redo(ctx context.Context, s journal.Step) error {
	j, todo := l.journal, []journal.Step{s}
	for _, at := range l.Attached {
		steps, err := l.journals().StepsOf(at)
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
		todo[0].Optional = false // refused now, it is still to be undone some day
		lane, err := l.Lane(at.Lane)
		if err != nil {
			return err
		}
		todo = append(attached.Widen(l.root, s, lane.CPUs), todo...)
		break
	}
	refused, err := j.Apply(ctx, todo)
	for _, w := range j.Waiting() {
		if w.Step.Kind == s.Kind && w.Step.Target == s.Target {
			err = errors.Join(err, w.Err)
		}
	}
	if len(refused) > 0 {
		err = refused[0].Err
	}
	return err
}
