package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
)

// Attachment is a workload that ran already when it came into its lane. Its steps are in a journal of
// their own, so that it can leave without the lane.
type Attachment struct {
	Lane  string `json:"lane"`
	Group string `json:"group,omitempty"` // the cgroup that was attached as a whole
	// Own: the lane is in that cgroup, and its processes stay there (cgroup v2).
	Own bool `json:"own,omitempty"`
	// Declared: the declaration of the lane names the cgroup (spec.cgroup.path).
	Declared bool `json:"declared,omitempty"`
	PID      int  `json:"pid,omitempty"` // or the process, with
	// Start is when it started (task.StartTime): its number may become another's.
	Start uint64 `json:"start,omitempty"`
	// Netns is the network namespace of the workload that the lane's path leads to (netdev.OfProcess); "" where
	// its network is none of the lane's.
	Netns   string `json:"netns,omitempty"`
	Journal string `json:"journal"`
}

// same says whether two attachments are of the same workload and lane.
func (at Attachment) same(o Attachment) bool {
	return at.Lane == o.Lane && at.Group == o.Group && at.PID == o.PID && at.Start == o.Start
}

// attaching begins the names of journals of attachments.
const attaching = "attach-"

// MovedGroup is the cgroup within the lane's that the processes of an attachment are moved to, with cgroup
// v2.
func MovedGroup(lane string, at Attachment) string {
	return path.Join(lane, change.GroupPrefix+at.Journal)
}

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
func (l *Lanes) Attach(ctx context.Context, at Attachment, next func(dir string,
	at Attachment) ([]journal.Step, error)) (_ Attachment, why string, err error) {
	if err = l.DropEnded(ctx); err != nil {
		return at, "", err
	}
	for _, o := range slices.Clone(l.Attached) {
		switch {
		case o.same(at):
			err = l.Detach(ctx, o)
		case o.Own && (o.Lane == at.Lane || o.Group == at.Group):
			err = &OwnedError{o.Lane, o.Group}
		}
		if err != nil {
			return at, "", err
		}
	}
	for n := 1; ; n++ {
		at.Journal = fmt.Sprintf("%s%s-%d", attaching, at.Lane, n)
		if !slices.ContainsFunc(l.Attached, func(o Attachment) bool { return o.Journal == at.Journal }) {
			break
		}
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
			err = errors.Join(err, j.Undo(context.WithoutCancel(ctx)), l.back(ctx))
		}
		err = errors.Join(err, j.Close())
	}()
	with, err := l.attaching(ctx, at) // with v1 the cgroups above it may have its CPUs again
	if err == nil && at.Own && with.Levels[at.Lane] == knob.Member {
		why, at.Own = with.reason(at.Group), false
		with, err = l.attaching(ctx, at)
	}
	if err == nil {
		var dir string
		if dir, err = l.dirOf(with, at.Lane); err == nil {
			err = untilNone(ctx, j, func() ([]journal.Step, error) { return next(dir, at) })
		}
	}
	if err == nil {
		err = l.store(with)
	}
	if err == nil {
		l.Applied = with
	}
	return at, why, err
}

// dirOf is the cgroup of a lane as it will be with what is about to be in force.
func (l *Lanes) dirOf(with Applied, name string) (string, error) {
	lane, err := with.Lane(name)
	if err != nil {
		return "", err
	}
	v, err := l.View()
	if err != nil {
		return "", err
	}
	with.fill(&v)
	place, err := v.Place(lane)
	return place.Dir, err
}

// attaching puts in force what a further attachment needs of the lanes.
func (l *Lanes) attaching(ctx context.Context, at Attachment) (Applied, error) {
	with := l.Applied
	with.Attached = append(slices.Clone(l.Attached), at)
	with.Levels = maps.Clone(l.Levels)
	delete(with.Levels, at.Lane) // another cgroup, which may get another kind
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
func (l *Lanes) noOwn(at Attachment) string {
	v, err := l.View()
	if err != nil {
		return err.Error()
	}
	lane, err := l.Lane(at.Lane)
	if err != nil {
		return err.Error()
	}
	place, err := v.Place(lane)
	if err != nil {
		return err.Error()
	}
	switch {
	case !knob.OwnGroups(v.Host, lane.Spec):
		return "before Linux 6.7 the kernel makes no partition of a cgroup whose parents are none"
	case lane.Spec.CPUs.Share > 1:
		return "lanes that share CPUs are in one partition"
	case slices.ContainsFunc(l.Attached, func(o Attachment) bool { return o.Lane == at.Lane }),
		Populated(l.root, place.Dir):
		return "other workloads are in this lane already"
	}
	return ""
}

// ended says whether nothing of an attached workload runs any more.
func (l *Lanes) ended(ctx context.Context, at Attachment) (bool, error) {
	if at.Netns != "" && at.Group != "" && l.elsewhere(at) {
		return true, nil
	}
	if at.Own {
		return !Populated(l.root, at.Group), nil
	}
	j, err := journal.Look(l.dir, at.Journal, l.ops)
	if err != nil {
		return false, err
	}
	steps := 0
	for _, s := range j.Pending() {
		switch s.Kind {
		case change.KindCgroup:
			if !change.IsKeeperGroup(s.Target) && Populated(l.root, s.Target) {
				return false, nil
			}
		case change.KindKeeper:
		default:
			steps++
			if _, _, err := l.journal.InForce(ctx, s); !errors.Is(err, fs.ErrNotExist) {
				return false, nil
			}
		}
	}
	if steps == 0 && at.Group != "" { // it had all that the lane wants
		return !Populated(l.root, at.Group), nil
	}
	if steps == 0 {
		start, err := task.StartTime(l.root, at.PID)
		return err != nil || start != at.Start, nil
	}
	return true, nil
}

// elsewhere says whether a container was started anew in its cgroup: what runs there has another network
// namespace than what was attached.
func (l *Lanes) elsewhere(at Attachment) bool {
	pids, _ := cgroup.Processes(l.root, at.Group) // none where it is gone
	return len(pids) > 0 && !slices.ContainsFunc(pids, func(pid int) bool {
		has, err := netdev.OfProcess(l.root, pid)
		return err == nil && netdev.Inode(has) == netdev.Inode(at.Netns)
	})
}

// Running are the attached workloads that have not ended.
func (l *Lanes) Running(ctx context.Context) ([]Attachment, error) {
	var running []Attachment
	for _, at := range l.Attached {
		ended, err := l.ended(ctx, at)
		if err != nil {
			return nil, err
		}
		if !ended {
			running = append(running, at)
		}
	}
	return running, nil
}

// DropEnded forgets attached workloads that have ended, and what was set for them. A lane that was in the
// cgroup of one is made anew by the next reconcile.
func (l *Lanes) DropEnded(ctx context.Context) error {
	running, err := l.Running(ctx)
	if err != nil {
		return err
	}
	for _, at := range slices.Clone(l.Attached) {
		if !slices.Contains(running, at) {
			if err = l.Detach(ctx, at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Lanes) detach(ctx context.Context, at Attachment) error {
	j, err := l.journal.Beside(at.Journal)
	if err != nil {
		return err
	}
	if err = l.homeward(j); err != nil {
		return errors.Join(err, j.Close())
	}
	_, left, err := j.Reconcile(context.WithoutCancel(ctx), nil)
	// A thread's affinity comes back with the cpuset, whatever it was in the lane.
	left = slices.DeleteFunc(left, func(a *journal.LeftAlone) bool { return a.Step.Kind == change.KindTask })
	l.Left = append(l.Left, left...)
	return errors.Join(err, j.Close())
}

// homeward has processes that were born in the lane go where those that they come from go.
func (l *Lanes) homeward(j *journal.Journal) error {
	moved, home, steps := map[string]bool{}, "", j.Pending()
	for _, s := range steps {
		if s.Kind == change.KindMember {
			moved[s.Target] = true
			home, _, _ = strings.Cut(s.Before, "\n") // without what single threads have
		}
	}
	if home == "" {
		return nil
	}
	for _, s := range steps {
		if s.Kind != change.KindCgroup || change.IsKeeperGroup(s.Target) {
			continue
		}
		pids, err := cgroup.Processes(l.root, s.Target)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			start, err := task.StartTime(l.root, pid)
			if target := change.TaskTarget(pid, start); err == nil && !moved[target] {
				if err = j.Adopt(journal.Step{Kind: change.KindMember, Target: target, Before: home,
					After: s.Target}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Detach lets a workload out of its lane, back to where it was.
func (l *Lanes) Detach(ctx context.Context, at Attachment) error {
	without := l.Applied
	without.Attached = slices.DeleteFunc(slices.Clone(l.Attached), func(o Attachment) bool { return o == at })
	if at.Own { // another cgroup, which may get another kind of partition
		without.Levels = maps.Clone(l.Levels)
		delete(without.Levels, at.Lane)
	}
	if err := l.detach(ctx, at); err != nil {
		return err
	}
	if err := l.store(without); err != nil {
		return err
	}
	l.Applied = without
	return nil
}
