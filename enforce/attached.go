package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"isolane.dev/isolane/journal"
)

// Attachment is a workload that ran already when it came into its lane. Its steps are in a journal of
// their own, so that it can leave without the lane.
type Attachment struct {
	Lane    string `json:"lane"`
	Group   string `json:"group,omitempty"` // the cgroup that was attached as a whole; it keeps its processes with cgroup v1
	PID     int    `json:"pid,omitempty"`   // or the process, with
	Start   uint64 `json:"start,omitempty"` // when it started (journal.StartTime): its number may become another's
	Journal string `json:"journal"`
}

// attaching begins the names of journals of attachments.
const attaching = "attach-"

// Attach brings a workload that runs already into its lane. next returns the steps that are missing; it is
// asked again until there are none, because processes may be born meanwhile. Where that fails, all is undone.
func (l *Lanes) Attach(ctx context.Context, at Attachment, next func() ([]journal.Step, error)) (err error) {
	for n := 1; ; n++ {
		at.Journal = fmt.Sprintf("%s%s-%d", attaching, at.Lane, n)
		if !slices.ContainsFunc(l.Attached, func(o Attachment) bool { return o.Journal == at.Journal }) {
			break
		}
	}
	with := l.Applied
	with.Attached = append(slices.Clone(l.Attached), at)
	j, err := l.journal.Beside(at.Journal)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.Undo(context.WithoutCancel(ctx)), l.back(ctx))
		}
		err = errors.Join(err, j.Close())
	}()
	if err = l.reconcile(ctx, &with); err != nil { // the cgroups above it may have its CPUs again
		return err
	}
	if err = untilNone(ctx, j, next); err != nil {
		return err
	}
	if err = l.store(with); err == nil {
		l.Applied = with
	}
	return err
}

// rounds is how often Attach looks for processes that were born meanwhile.
const rounds = 20

func untilNone(ctx context.Context, j *journal.Journal, next func() ([]journal.Step, error)) error {
	for range rounds {
		steps, err := next()
		if err != nil || len(steps) == 0 {
			return err
		}
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
	return errors.New("processes are born there faster than they can be attached")
}

func (l *Lanes) detach(ctx context.Context, at Attachment) error {
	j, err := l.journal.Beside(at.Journal)
	if err != nil {
		return err
	}
	_, left, err := j.Reconcile(context.WithoutCancel(ctx), nil)
	// A thread's affinity comes back with the cpuset, whatever it was in the lane.
	left = slices.DeleteFunc(left, func(a *journal.LeftAlone) bool { return a.Step.Kind == "task" })
	l.Left = append(l.Left, left...)
	return errors.Join(err, j.Close())
}

// Detach lets a workload out of its lane, back to where it was.
func (l *Lanes) Detach(ctx context.Context, at Attachment) error {
	without := l.Applied
	without.Attached = slices.DeleteFunc(slices.Clone(l.Attached), func(o Attachment) bool { return o == at })
	if err := l.detach(ctx, at); err != nil {
		return err
	}
	if err := l.store(without); err != nil {
		return err
	}
	l.Applied = without
	return nil
}

// kept are the steps that have brought workloads into their lanes.
func (l *Lanes) kept(attached []Attachment) ([]journal.Step, error) {
	var steps []journal.Step
	for _, at := range attached {
		j, err := journal.Look(l.dir, at.Journal, l.ops)
		if err != nil {
			return nil, err
		}
		for _, s := range j.Pending() {
			if s.Kind != "cgroup" && s.Kind != "keeper" { // which go with the scope that they are in
				steps = append(steps, s)
			}
		}
	}
	return steps, nil
}

// strayed returns those of the steps that are no longer in force, and in Before what is there now. A workload that
// has ended has not strayed.
func (l *Lanes) strayed(ctx context.Context, kept []journal.Step) ([]journal.Step, error) {
	var strayed []journal.Step
	for _, s := range kept {
		stands, now, err := l.journal.Stands(ctx, s)
		if errors.Is(err, fs.ErrNotExist) || stands {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
		}
		s.Before = now
		strayed = append(strayed, s)
	}
	return strayed, nil
}

// keep brings attached workloads back into their lanes that have strayed.
func (l *Lanes) keep(ctx context.Context, a *Applied) error {
	kept, err := l.kept(a.Attached)
	if err != nil {
		return err
	}
	strayed, err := l.strayed(ctx, kept)
	if err != nil {
		return err
	}
	for _, s := range strayed {
		if err = l.again(ctx, s); err != nil {
			a.Refused = append(a.Refused, Refusal{Named(s), s.After, err.Error()})
		}
	}
	return ctx.Err()
}

// again does a step once more, in the journal that it is in: the value to come back to stays that of the first time.
func (l *Lanes) again(ctx context.Context, s journal.Step) error {
	j := l.journal
	for _, at := range l.Attached {
		kept, err := l.kept([]Attachment{at})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(kept, func(o journal.Step) bool { return o.Kind == s.Kind && o.Target == s.Target }) {
			continue
		}
		if j, err = l.journal.Beside(at.Journal); err != nil {
			return err
		}
		defer j.Close()    //nolint:errcheck // each step is on disk
		s.Optional = false // refused now, it is still to be undone some day
		break
	}
	refused, err := j.Apply(ctx, []journal.Step{s})
	if len(refused) > 0 {
		err = refused[0].Err
	}
	return err
}

// Named says for people what a step sets: a file, or what of a thread.
func Named(s journal.Step) string {
	what := map[string]string{"task": "CPUs of thread", "scheduling": "scheduling of thread", "member": "cgroup of process"}[s.Kind]
	if what == "" {
		return s.Target
	}
	id, _, _ := strings.Cut(s.Target, ":")
	name, err := os.ReadFile("/proc/" + id + "/comm")
	if err != nil {
		return what + " " + id + ", which has ended"
	}
	return fmt.Sprintf("%s %s (%s)", what, id, strings.TrimSpace(string(name)))
}
