package enforce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
)

// OwnedError says that a lane is in its workload's own cgroup, so that it cannot take another workload.
type OwnedError struct{ Lane, Group string }

func (e *OwnedError) Error() string {
	return fmt.Sprintf("lane %s is in %s, the cgroup of its workload: give this one a lane of its own, or "+
		"attach both with --move", e.Lane, e.Group)
}

// Attach brings a running workload into its lane and returns how. If at.Own asks for it and the kernel can,
// the lane moves into the workload's cgroup; why says what prevented that. Otherwise the workload moves into
// the lane's. next returns the missing steps; dir is the lane's cgroup then. Attach calls it until there are
// none, because new processes may start meanwhile. If Attach fails it undoes everything.
func (l *Lanes) Attach(ctx context.Context, at attached.Workload, next func(dir string,
	at attached.Workload) ([]journal.Step, error)) (_ attached.Workload, why string, err error) {
	if err = l.DropEnded(ctx); err != nil {
		return at, "", err
	}
	at.Leaving = false // a kill may have cut it off on its way out
	for _, o := range slices.Clone(l.Attached) {
		switch {
		case o.Begun && at.Own && o.Same(at): // attaching was interrupted by a kill: continue
			at.Journal, l.Applied = o.Journal, l.withoutAttached(o)
		case o.Same(at):
			err = l.Detach(ctx, o)
		case o.Own && (o.Lane == at.Lane || o.Group == at.Group):
			err = &OwnedError{o.Lane, o.Group}
		}
		if err != nil {
			return at, "", err
		}
	}
	for n := 1; at.Journal == "" || slices.ContainsFunc(l.Attached,
		func(o attached.Workload) bool { return o.Journal == at.Journal }); n++ {
		at.Journal = fmt.Sprintf("%s%s-%d", attached.Prefix, at.Lane, n)
	}
	if at.Own {
		why = l.whyNotOwn(at)
		at.Own = why == ""
	}
	j, err := l.journal.Beside(at.Journal)
	if err != nil {
		return at, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.undoAttach(ctx, j))
		}
		err = errors.Join(err, j.Close())
	}()
	at.Begun = at.Own
	with, err := l.prepareForAttach(ctx, at) // v1: the cgroups above it get the lane's CPUs too
	if err == nil && at.Own && with.Levels[at.Lane] == knob.Member {
		why, at.Own, at.Begun = with.partitionReason(at.Group), false, false
		with, err = l.prepareForAttach(ctx, at)
	}
	if err == nil {
		var dir string
		if dir, _, err = l.laneDir(with, at.Lane); err == nil {
			err = attached.UntilNone(ctx, j, func() ([]journal.Step, error) { return next(dir, at) })
		}
	}
	if at.Begun = false; err == nil {
		with.Attached[len(with.Attached)-1] = at
		err = l.storeAsApplied(with)
	}
	return at, why, err
}

// undoAttach undoes a failed attachment, even if the user has interrupted it.
func (l *Lanes) undoAttach(ctx context.Context, j *journal.Journal) error {
	left, err := attached.Home(context.WithoutCancel(ctx), l.root, j)
	for _, a := range left {
		err = errors.Join(err, a)
	}
	return errors.Join(err, l.rollBack(ctx), l.store(l.Applied))
}

// laneDir returns the cgroup that a lane will have once with is in force, and the host as before the lanes.
func (l *Lanes) laneDir(with Applied, name string) (dir string, v knob.View, err error) {
	lane, err := with.Lane(name)
	if err != nil {
		return "", v, err
	}
	if v, err = l.View(); err != nil {
		return "", v, err
	}
	with.fillView(&v)
	place, err := v.Place(lane)
	return place.Dir, v, err
}

// prepareForAttach puts in force what one more attachment requires of the lanes.
func (l *Lanes) prepareForAttach(ctx context.Context, at attached.Workload) (Applied, error) {
	with := l.Applied
	with.Attached = append(slices.Clone(l.Attached), at)
	with.Returning = slices.DeleteFunc(slices.Clone(l.Returning), at.Same)
	with.Levels = maps.Clone(l.Levels)
	delete(with.Levels, at.Lane) // the other cgroup may get another kind of partition
	if at.Begun {                // recorded first, so that the lane stays with the workload after a kill
		if err := l.store(with); err != nil {
			return with, err
		}
	}
	err := l.reconcile(ctx, &with, false)
	return with, err
}

// partitionReason returns why the kernel has refused the partition of a cgroup.
func (a Applied) partitionReason(dir string) string {
	for _, r := range a.Refused {
		if r.Target == path.Join(dir, knob.PartitionFile) {
			return r.Reason
		}
	}
	return "the kernel makes no partition of it"
}

// whyNotOwn returns why a lane cannot move into the workload's own cgroup, or "" if it can.
func (l *Lanes) whyNotOwn(at attached.Workload) string {
	dir, v, err := l.laneDir(l.Applied, at.Lane)
	if err != nil {
		return err.Error()
	}
	switch lane, _ := l.Lane(at.Lane); { // laneDir has checked that the lane exists
	case !knob.OwnGroups(v.Host, lane.Spec):
		return "before Linux 6.7 the kernel makes no partition of a cgroup whose parents are none"
	case lane.Spec.CPUs.Share > 1:
		return "lanes that share CPUs are in one partition"
	case slices.ContainsFunc(l.Attached, func(o attached.Workload) bool { return o.Lane == at.Lane }),
		cgroup.Populated(l.root, dir):
		return "other workloads are in this lane already"
	}
	return ""
}

func (l *Lanes) journals() attached.Journals {
	return attached.Journals{Dir: l.dir, Root: l.root, Ops: l.ops}
}

// Running returns the attached workloads that have not ended and are not leaving their lanes.
func (l *Lanes) Running(ctx context.Context) (running []attached.Workload, _ error) {
	for _, at := range l.Attached {
		ended, err := l.journals().Ended(ctx, at)
		if err != nil {
			return nil, err
		}
		if !ended && !at.Leaving {
			running = append(running, at)
		}
	}
	return running, nil
}

// DropEnded forgets attached workloads that have ended, and those that were leaving when a kill interrupted
// that. It undoes their settings. If a lane was in the cgroup of one, the next reconcile makes it a new one.
func (l *Lanes) DropEnded(ctx context.Context) error {
	running, err := l.Running(ctx)
	if err != nil {
		return err
	}
	for _, at := range slices.Clone(l.Attached) {
		if !slices.Contains(running, at) {
			if err = l.Detach(ctx, at); err != nil && !at.Leaving { // otherwise no other lane could change
				return err
			}
		}
	}
	return nil
}

func (l *Lanes) detach(ctx context.Context, at attached.Workload) error {
	j, err := l.journal.Beside(at.Journal)
	if err != nil {
		return err
	}
	left, err := attached.Home(context.WithoutCancel(ctx), l.root, j)
	l.Left = append(l.Left, left...)
	return errors.Join(err, j.Close())
}

// Detach takes a workload out of its lane, back to where it was.
func (l *Lanes) Detach(ctx context.Context, at attached.Workload) error {
	return l.detachReturning(ctx, at, l.Returning)
}

// withoutAttached returns what is in force, without one attachment.
func (l *Lanes) withoutAttached(at attached.Workload) Applied {
	without := l.Applied
	without.Attached = slices.DeleteFunc(slices.Clone(l.Attached),
		func(o attached.Workload) bool { return o.Journal == at.Journal })
	if at.Own { // the other cgroup may get another kind of partition
		without.Levels = maps.Clone(l.Levels)
		delete(without.Levels, at.Lane)
	}
	return without
}

// restoreAttached brings attached workloads back into their lanes if somebody else has taken them out.
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
		if err = l.redoStep(ctx, s); err != nil {
			r := l.ops.describeRefused(s, err)
			r.Subject, r.Cause, r.Reason = Workload, Errno, err.Error()
			a.Refused = append(a.Refused, r)
		}
	}
	return ctx.Err()
}

// Redo does steps of an attached workload that somebody else has undone. They restore what they find now.
func (l *Lanes) Redo(ctx context.Context, at attached.Workload, steps []journal.Step) error {
	return attached.Redo(ctx, l.journal, at, steps)
}

// redoStep does a step again in the journal that has it, so that the value to restore stays the original one.
func (l *Lanes) redoStep(ctx context.Context, s journal.Step) error {
	j, todo := l.journal, []journal.Step{s}
	for _, at := range l.Attached {
		steps, err := l.journals().StepsOf(at)
		lane, lerr := l.Lane(at.Lane)
		if err = errors.Join(err, lerr); err != nil {
			return err
		}
		if !slices.ContainsFunc(steps, s.Same) {
			continue
		}
		if j, err = l.journal.Beside(at.Journal); err != nil {
			return err
		}
		defer j.Close()
		todo[0].Optional = false // if it is refused now, it must still be undone later
		todo = append(attached.Widen(l.root, s, lane.CPUs), todo...)
		break
	}
	refused, err := j.Apply(ctx, todo)
	for _, w := range j.Waiting() {
		if w.Step.Same(s) {
			err = errors.Join(err, w.Err)
		}
	}
	if len(refused) > 0 {
		err = refused[0].Err
	}
	return err
}
