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

// OwnedError says that a lane is in the cgroup of its workload, so that no other workload can be in it.
type OwnedError struct{ Lane, Group string }

func (e *OwnedError) Error() string {
	return fmt.Sprintf("lane %s is in %s, the cgroup of its workload: give this one a lane of its own, or "+
		"attach both with --move", e.Lane, e.Group)
}

// Attach brings a workload that runs already into its lane, and returns how: where at.Own asks for it and the
// kernel can, the lane moves into the workload's cgroup, else the workload into the lane's. why says what
// kept it from that. next returns the steps that are missing, dir being the lane's cgroup; it is called again
// until there are none, because processes may be born meanwhile. Where that fails, all is undone.
func (l *Lanes) Attach(ctx context.Context, at attached.Workload, next func(dir string,
	at attached.Workload) ([]journal.Step, error)) (_ attached.Workload, why string, err error) {
	if err = l.DropEnded(ctx); err != nil {
		return at, "", err
	}
	at.Leaving = false // it may come again from where a kill has cut it off
	for _, o := range slices.Clone(l.Attached) {
		switch {
		case o.Begun && at.Own && o.Same(at): // a kill has cut it off: it goes on
			at.Journal, l.Applied = o.Journal, l.without(o)
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
		why = l.noOwn(at)
		at.Own = why == ""
	}
	j, err := l.journal.Beside(at.Journal)
	if err != nil {
		return at, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.unattach(ctx, j))
		}
		err = errors.Join(err, j.Close())
	}()
	at.Begun = at.Own
	with, err := l.attaching(ctx, at) // with v1 the cgroups above it may have its CPUs again
	if err == nil && at.Own && with.Levels[at.Lane] == knob.Member {
		why, at.Own, at.Begun = with.reason(at.Group), false, false
		with, err = l.attaching(ctx, at)
	}
	if err == nil {
		var dir string
		if dir, _, err = l.dirOf(with, at.Lane); err == nil {
			err = attached.UntilNone(ctx, j, func() ([]journal.Step, error) { return next(dir, at) })
		}
	}
	if at.Begun = false; err == nil {
		with.Attached[len(with.Attached)-1] = at
		err = l.become(with)
	}
	return at, why, err
}

// unattach undoes an attachment that has failed, also when the user has lost patience.
func (l *Lanes) unattach(ctx context.Context, j *journal.Journal) error {
	left, err := attached.Home(context.WithoutCancel(ctx), l.root, j)
	for _, a := range left {
		err = errors.Join(err, a)
	}
	return errors.Join(err, l.back(ctx), l.store(l.Applied))
}

// dirOf is the cgroup of a lane as it will be with what is about to be in force, and the host before it.
func (l *Lanes) dirOf(with Applied, name string) (dir string, v knob.View, err error) {
	lane, err := with.Lane(name)
	if err != nil {
		return "", v, err
	}
	if v, err = l.View(); err != nil {
		return "", v, err
	}
	with.fill(&v)
	place, err := v.Place(lane)
	return place.Dir, v, err
}

// attaching puts in force what a further attachment needs of the lanes.
func (l *Lanes) attaching(ctx context.Context, at attached.Workload) (Applied, error) {
	with := l.Applied
	with.Attached = append(slices.Clone(l.Attached), at)
	with.Returning = slices.DeleteFunc(slices.Clone(l.Returning), at.Same)
	with.Levels = maps.Clone(l.Levels)
	delete(with.Levels, at.Lane) // another cgroup, which may get another kind
	if at.Begun {                // whoever comes after a kill leaves the lane with the workload
		if err := l.store(with); err != nil {
			return with, err
		}
	}
	err := l.reconcile(ctx, &with)
	return with, err
}

// reason is why the kernel has refused a partition.
func (a Applied) reason(dir string) string {
	for _, r := range a.Refused {
		if r.Target == path.Join(dir, knob.PartitionFile) {
			return r.Reason
		}
	}
	return "the kernel makes no partition of it"
}

// noOwn says what keeps a lane from being in the workload's own cgroup, "" if nothing does.
func (l *Lanes) noOwn(at attached.Workload) string {
	dir, v, err := l.dirOf(l.Applied, at.Lane)
	if err != nil {
		return err.Error()
	}
	switch lane, _ := l.Lane(at.Lane); { // which dirOf has found
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

// Running are the attached workloads that have not ended, and are not on their way out.
func (l *Lanes) Running(ctx context.Context) ([]attached.Workload, error) {
	var running []attached.Workload
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

// DropEnded forgets attached workloads that have ended, and what was set for them, and those that a kill has
// cut off on their way out. A lane that was in the cgroup of one is made anew by the next reconcile.
func (l *Lanes) DropEnded(ctx context.Context) error {
	running, err := l.Running(ctx)
	if err != nil {
		return err
	}
	for _, at := range slices.Clone(l.Attached) {
		if !slices.Contains(running, at) {
			if err = l.Detach(ctx, at); err != nil && !at.Leaving { // else no other lane would change either
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

// Detach lets a workload out of its lane, back to where it was.
func (l *Lanes) Detach(ctx context.Context, at attached.Workload) error {
	return l.leave(ctx, at, l.Returning)
}

// without is what is in force, without an attachment.
func (l *Lanes) without(at attached.Workload) Applied {
	without := l.Applied
	without.Attached = slices.DeleteFunc(slices.Clone(l.Attached),
		func(o attached.Workload) bool { return o.Journal == at.Journal })
	if at.Own { // another cgroup, which may get another kind of partition
		without.Levels = maps.Clone(l.Levels)
		delete(without.Levels, at.Lane)
	}
	return without
}

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
		if !slices.ContainsFunc(steps, s.Same) {
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
		if w.Step.Same(s) {
			err = errors.Join(err, w.Err)
		}
	}
	if len(refused) > 0 {
		err = refused[0].Err
	}
	return err
}
