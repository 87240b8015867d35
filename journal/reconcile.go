package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// LeftAlone is a step that was not taken back: somebody else has changed the target since, or needs it.
type LeftAlone struct {
	Step     Step
	Now      string
	NeededBy string // or ""
}

func (l *LeftAlone) Error() string {
	why := fmt.Sprintf("somebody changed it from %q to %q since", l.Step.After, l.Now)
	if l.NeededBy != "" {
		why = l.NeededBy + " needs it"
	}
	return fmt.Sprintf("undo %s %s: left alone: %s (it was %q before)", l.Step.Kind, l.Step.Target, why,
		l.Step.Before)
}

// NeededError is the error of an Op that cannot take a step back, because somebody else relies on it.
type NeededError struct{ By string }

func (n *NeededError) Error() string { return n.By + " needs it" }

// Reconcile makes the done steps equal to the wanted ones: it takes back those no longer wanted, the last
// first, and then does those that are missing. With seen the caller has just seen that all done steps are in
// force, and applies all steps later: then nothing is read of those that stay. A step that is left alone is
// no error.
func (j *Journal) Reconcile(ctx context.Context, want []Step, seen bool) ([]Refused, []*LeftAlone, error) {
	do := want
	if seen {
		do = slices.DeleteFunc(slices.Clone(want), func(s Step) bool {
			done, open := j.log.find(s)
			return open && done.After == s.After
		})
	}
	wanted := byTarget(want)
	left, err := j.UndoWhere(ctx, func(s Step) bool {
		after, is := wanted[s.key()]
		_, anew := j.ops[s.Kind].(maker)
		return !is || anew && after != s.After
	})
	refused, aerr := j.Apply(ctx, do)
	return refused, left, errors.Join(err, aerr)
}

// byTarget returns the wanted values by kind and target; for a target with several steps, the last.
func byTarget(steps []Step) map[[2]string]string {
	all := map[[2]string]string{}
	for _, s := range steps {
		all[s.key()] = s.After
	}
	return all
}

// UnreadError names targets that this user may not read, so their state is unknown.
type UnreadError struct{ Targets []string }

func (u *UnreadError) Error() string {
	return "needs root to read " + strings.Join(u.Targets, ", ")
}

// Missing returns what Reconcile would do now, in its order: the inverses of the steps to take back, then the
// steps to do. It changes nothing. With a *UnreadError it returns the steps that it could read.
func (j *Journal) Missing(ctx context.Context, want []Step) ([]Step, error) {
	var missing []Step
	wanted := byTarget(want)
	for _, s := range slices.Backward(j.log.open()) {
		_, stays := wanted[s.key()]
		d, is := j.ops[s.Kind].(dependent)
		if stays || is && d.UndoneWithOther(s) {
			continue
		}
		if _, _, err := j.InForce(ctx, s); !errors.Is(err, fs.ErrNotExist) { // a task may have ended
			missing = append(missing, s.Inverse())
		}
	}
	more, err := j.NotInForce(ctx, want, nil)
	return append(missing, more...), err
}

// ends reports whether the target of a step may end by itself.
func (j *Journal) ends(s Step) bool {
	e, is := j.ops[s.Kind].(ender)
	return is && e.Ends(s)
}

// NotInForce returns the steps that are not in force, with the present value in Before. It includes steps
// whose target does not exist, because an earlier step may make it, unless ends reports that the target may
// end by itself; if ends is nil, the step's operation decides. With a *UnreadError it returns the steps that
// it could read.
func (j *Journal) NotInForce(ctx context.Context, steps []Step, ends func(Step) bool) ([]Step, error) {
	if ends == nil {
		ends = j.ends
	}
	var missing []Step
	var unread UnreadError
	for _, s := range steps {
		inForce, now, err := j.InForce(ctx, s)
		gone := errors.Is(err, fs.ErrNotExist)
		if errors.Is(err, fs.ErrPermission) {
			unread.Targets = append(unread.Targets, s.Target)
			continue
		}
		if err != nil && !gone {
			return missing, fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
		}
		if !inForce && (!gone || !ends(s)) {
			s.Before = now
			missing = append(missing, s)
		}
	}
	if len(unread.Targets) > 0 {
		return missing, &unread
	}
	return missing, nil
}
