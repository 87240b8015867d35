package lanes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/runtime/running"
)

// TargetError says that what the user named is no workload that can be attached to a lane.
type TargetError struct{ Err error }

func (e *TargetError) Error() string { return e.Err.Error() }
func (e *TargetError) Unwrap() error { return e.Err }

// Attached is the result of attaching a workload to its lane.
type Attached struct {
	Threads  int      // in the lane
	Warnings []string // for the user
}

// Write prints the result for people.
func (a Attached) Write(w io.Writer, name string) {
	are := "are"
	if a.Threads == 1 {
		are = "is"
	}
	fmt.Fprintf(w, "%s %s in lane %s\n", quantity.Count(a.Threads, "thread"), are, name)
	for _, warning := range a.Warnings {
		fmt.Fprintln(w, "note:", warning)
	}
}

// Attach brings a running workload into a lane. With at.Own the lane comes to the workload's own cgroup if
// the kernel can, and the lane's network path leads to the workload's network namespace. Errors:
// *TargetError, *enforce.NoLaneError, *enforce.OwnedError.
func (l *Lanes) Attach(ctx context.Context, at attached.Workload) (Attached, error) {
	placed, err := l.Lane(at.Lane)
	if err == nil {
		at.Netns, at.Tap, err = l.network(ctx, placed, at)
	}
	if err != nil {
		return Attached{}, err
	}
	return l.attach(ctx, at)
}

// attach is Attach of a workload whose network namespace (at.Netns) and tap (at.Tap) are known, or stay as
// they are.
func (l *Lanes) attach(ctx context.Context, at attached.Workload) (Attached, error) {
	var a Attached
	placed, err := l.Lane(at.Lane)
	if err != nil {
		return a, err
	}
	root := l.o.root
	v, err := l.View() // putting the lane in force needs it too
	if err != nil {
		return a, err
	}
	h := v.Host
	if at, err = workload(h, root, placed.Spec, at); err != nil {
		return a, &TargetError{err}
	}
	if err = l.leaveOwn(ctx, h, at); err != nil {
		return a, err
	}
	wanted, lent := at.Own, at.Tap == "" || !placed.Spec.Network.HasTap()
	seen := map[int]bool{}
	at, why, err := l.Lanes.Attach(ctx, at, func(dir string, at attached.Workload) ([]journal.Step, error) {
		found, lerr := threadsOf(root, at)
		if errors.Is(lerr, running.ErrEmpty) || errors.Is(lerr, fs.ErrNotExist) {
			return nil, nil // all have moved or ended
		}
		for _, t := range found {
			seen[t.TID] = true
		}
		steps, more, serr := running.Steps(h, root, placed, dir, at, found)
		if !lent {
			steps, lent = append(steps, netdev.LentStep(l.On(placed).Netns(), netpath.Device, at.Tap)), true
		}
		for _, w := range more {
			if !slices.Contains(a.Warnings, w) {
				a.Warnings = append(a.Warnings, w)
			}
		}
		return steps, errors.Join(lerr, serr)
	})
	if err == nil && wanted && !at.Own {
		a.Warnings = append(a.Warnings, "the lane is not in the workload's own cgroup: "+why)
	}
	a.Threads = len(seen)
	return a, err
}

// workload resolves what a user names to a process or cgroup. It sets Own if the lane can be in that cgroup;
// for a process, only if no other process is in its cgroup.
func workload(h host.Host, root fs.FS, spec lane.Spec, at attached.Workload) (attached.Workload, error) {
	own := at.Own && knob.OwnGroups(h, spec)
	at.Own = false
	var err error
	if at.Group == "" {
		stat, serr := task.ReadStat(root, task.Dir(at.PID))
		dead := stat.Dead() && len(task.Threads(root, at.PID)) == 1 // a zombie
		if serr != nil || dead || at.Start != 0 && stat.Start != at.Start {
			return at, fmt.Errorf("process %d: has ended, or there is none", at.PID)
		}
		if stat.Kernel {
			return at, fmt.Errorf("process %d: a kernel thread cannot be attached", at.PID)
		}
		if at.Start = stat.Start; own {
			if group, ok := running.OwnGroup(h, root, at.PID); ok {
				at.Group, at.PID, at.Start = group, 0, 0
			}
		}
	} else if at.Group, err = running.Resolve(h, root, at.Group); err != nil {
		return at, err
	}
	at.Own = own && at.Group != ""
	_, err = threadsOf(root, at)
	return at, err
}

// declaredGroups returns an error if lanes name one cgroup twice, or one that cannot hold a lane. A lane that
// is in force with the same name is not checked for the latter.
func (l *Lanes) declaredGroups(p plan.Placement) error {
	all := attached.Declared(p)
	if len(all) == 0 {
		return nil
	}
	v, err := l.View()
	if err != nil {
		return err
	}
	h, named := v.Host, map[string]string{}
	for _, at := range all {
		group, _ := running.Resolve(h, l.o.root, at.Group) // "" if it is gone
		if o := named[group]; o != "" {
			return &TargetError{fmt.Errorf("lane %s: spec.cgroup.path: lane %s names %s too", at.Lane, o, at.Group)}
		}
		if group != "" {
			named[group] = at.Lane
		}
		if was, _ := l.Lane(at.Lane); was.Spec.Cgroup.Path == at.Group {
			continue
		}
		if _, err = workload(h, l.o.root, lane.Spec{}, at); err != nil {
			return &TargetError{fmt.Errorf("lane %s: spec.cgroup.path: %w", at.Lane, err)}
		}
	}
	return nil
}

// leaveOwn detaches a process that is to move, if its lane has been in the process's own cgroup until now.
func (l *Lanes) leaveOwn(ctx context.Context, h host.Host, at attached.Workload) error {
	if at.PID == 0 {
		return nil
	}
	group, alone := running.OwnGroup(h, l.o.root, at.PID)
	for _, o := range slices.Clone(l.Attached) {
		if alone && o.Own && o.Lane == at.Lane && o.Group == group {
			return l.Detach(ctx, o)
		}
	}
	return nil
}

func threadsOf(root fs.FS, at attached.Workload) ([]running.Thread, error) {
	if at.Group != "" {
		return running.Cgroup(root, at.Group)
	}
	return running.Tree(root, at.PID)
}

// Limited returns the steps that lift CPU quotas which somebody has set since workloads came into lanes that
// want none (attached.Workload.NoQuota), by the name of the workload's journal. It reads two files for each.
func (l *Lanes) Limited() (map[string][]journal.Step, error) {
	found := map[string][]journal.Step{}
	for _, at := range l.Attached {
		if !at.NoQuota || at.Begun || at.Leaving {
			continue
		}
		steps, err := running.NoQuota(l.o.root, at.Group)
		if err != nil {
			return nil, err
		}
		if len(steps) > 0 {
			found[at.Journal] = steps
		}
	}
	return found, nil
}

// LiftQuotas lifts the CPU quotas that Limited finds, and returns the lanes where it did. A workload that
// leaves its lane gets back the quota that was found last.
func (l *Lanes) LiftQuotas(ctx context.Context) (of []string, err error) {
	found, err := l.Limited()
	for _, at := range l.Attached {
		steps := found[at.Journal]
		if err != nil || len(steps) == 0 {
			continue
		}
		if err = l.Redo(ctx, at, steps); err == nil {
			of = append(of, at.Lane)
		}
	}
	return of, err
}
