package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/cgroup"
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
		todo[0].Optional = false // refused now, it is still to be undone some day
		lane, err := l.Lane(at.Lane)
		if err != nil {
			return err
		}
		todo = append(l.widen(s, lane.CPUs), todo...)
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

// widen returns the step that gives the threaded cgroup of a thread these CPUs, where somebody has taken from
// it all that s wants, as libvirt does with a vCPU that it pins; none otherwise.
func (l *Lanes) widen(s journal.Step, cpus cpuset.Set) []journal.Step {
	if s.Kind != change.KindTask {
		return nil
	}
	tid, _, _ := strings.Cut(s.Target, ":")
	mounted, err := cgroup.Mounted(l.root)
	top, v2 := mounted.Cpuset()
	if err != nil || !v2 {
		return nil
	}
	h, err := cgroup.HierarchyOf(l.root, top)
	group, gerr := h.Of(l.root, "proc/"+tid)
	all, cerr := h.CPUs(l.root, group)
	kind, kerr := fs.ReadFile(l.root, path.Join(group, "cgroup.type")[1:])
	want, perr := cpuset.Parse(s.After)
	if errors.Join(err, gerr, cerr, kerr, perr) != nil || want.Intersects(all) ||
		strings.TrimSpace(string(kind)) != "threaded" {
		return nil
	}
	return []journal.Step{{Kind: change.KindFile, Target: path.Join(group, "cpuset.cpus"), After: cpus.String()}}
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
