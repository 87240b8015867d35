// Package enforce keeps lanes in force, and a journal of the changes. It puts placements in force, brings
// running workloads into their lanes, finds drift, and takes all back.
package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/enforce/merge"
	"isolane.dev/isolane/enforce/partition"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

const (
	journalName = "lanes"
	stateFile   = "lanes.json"
	appliedKind = "AppliedLanes"
)

// Lanes are the lanes in force on this host, with the journal of the changes. Only one process at a time can
// have them open.
type Lanes struct {
	Applied
	// Left are the steps that the last change was to take back and left alone, because somebody else has
	// changed the settings since.
	Left []*journal.LeftAlone
	// Allowed is what lanes may have. A caller that limits it does so before the first plan.
	Allowed    host.Allowance
	stateRead  string // the State from which Applied was read
	dir        string
	root       fs.FS
	ops        operations
	paths      []netpath.Path
	journal    *journal.Journal
	hostBefore *host.Host // nil until it is read
	// released are the lanes that the last change has removed.
	released  []plan.Lane
	questions *merge.Asked // questions for the next change; nil: Put asks itself
}

// Drivers do the work of putting lanes in force. All programs that open the lanes of a host must have the
// same ones, because what no driver wants any more is taken back.
type Drivers struct {
	Ops   map[string]journal.Op // kinds of steps
	Paths []netpath.Path        // network paths that lanes may have, the best first
}

// Open reads what is in force. It fails with a *journal.BusyError while another process changes the host.
func Open(dir string, root fs.FS, d Drivers) (*Lanes, error) {
	j, err := journal.Open(dir, journalName, d.Ops)
	return open(j, err, dir, root, d)
}

// OpenWait is like Open, but waits while another process changes the host, until ctx ends. It calls waiting,
// which may be nil, with each process for which it waits.
func OpenWait(
	ctx context.Context, dir string, root fs.FS, d Drivers, waiting func(*journal.BusyError),
) (*Lanes, error) {
	j, err := journal.OpenWait(ctx, dir, journalName, d.Ops, waiting)
	return open(j, err, dir, root, d)
}

// open reads what is in force, unless its journal could not be opened.
func open(j *journal.Journal, err error, dir string, root fs.FS, d Drivers) (*Lanes, error) {
	if err != nil {
		return nil, err
	}
	l := &Lanes{dir: dir, root: root, ops: d.Ops, paths: d.Paths, journal: j}
	if l.stateRead, err = State(dir); err == nil {
		l.Applied, err = readApplied(dir, l.stateRead)
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	j.Wanted = l.isWanted
	return l, nil
}

// Beside opens another journal, for changes that belong to no lane. The lanes must stay open meanwhile.
func (l *Lanes) Beside(name string) (*journal.Journal, error) { return l.journal.Beside(name) }

// Look reads what is in force, also while another process changes the host. It changes nothing.
func Look(dir string, root fs.FS, d Drivers) (*Lanes, error) {
	j, err := journal.Look(dir, journalName, d.Ops)
	return open(j, err, dir, root, d)
}

// Close lets other processes change the host.
func (l *Lanes) Close() error {
	l.questions.Close()
	return l.journal.Close()
}

// View returns the host as it was before any lane, without what lanes change. It reads the host once. That
// also updates the functions and interrupts of the lanes in force to those that the host has now.
func (l *Lanes) View() (knob.View, error) {
	v := knob.Before(l.root, l.ops, l.journal.Pending())
	if l.hostBefore == nil {
		h, err := host.ReadForPlan(v.Root)
		if err != nil {
			return v, err
		}
		h = h.Allowing(l.Allowed)
		l.hostBefore, l.Placement = &h, plan.WithDevices(h, l.Placement)
	}
	placed := l.Placement // what housekeeping has counts as free for lanes, but Others are none of theirs
	placed.Housekeeping = placed.Housekeeping.Difference(l.Allowed.Others)
	v.SetHost(*l.hostBefore, placed)
	l.fillView(&v)
	return v, nil
}

// fillView adds what is in force to v.
func (a Applied) fillView(v *knob.View) {
	v.Levels, v.Attached, v.Own, v.Alone = a.Levels, nil, map[string]string{}, nil
	for _, at := range a.Attached {
		if at.Group != "" {
			v.Attached = append(v.Attached, at.Group)
		}
		if at.Own && cgroup.Populated(v.Root, at.Group) {
			v.Own[at.Lane] = at.Group
			if at.Alone {
				v.Alone = append(v.Alone, at.Lane)
			}
		}
	}
}

// Apply puts p in force. It changes only what differs. If it fails it restores what was in force.
func (l *Lanes) Apply(ctx context.Context, p plan.Placement) error {
	if err := l.checkUndoable(p); err != nil {
		return err
	}
	return l.applyUnchecked(ctx, p, false)
}

// applyUnchecked is Apply without checkUndoable. With seen all that stays was just seen to be in force.
func (l *Lanes) applyUnchecked(ctx context.Context, p plan.Placement, seen bool) error {
	if err := l.DropEnded(ctx); err != nil {
		return err
	}
	next := Applied{APIVersion: plan.APIVersion, Kind: appliedKind, BootID: l.BootID, Placement: p,
		Runs: l.runsOf(p), Interrupts: l.Interrupts, NewInterrupts: l.NewInterrupts}
	for _, at := range l.Attached {
		if _, stays := p.Lane(at.Lane); !stays {
			if err := l.Detach(ctx, at); err != nil { // it stays out even if a later step fails
				return err
			}
			continue
		}
		next.Attached = append(next.Attached, at)
	}
	next.Returning = slices.DeleteFunc(slices.Clone(l.Returning), func(at attached.Workload) bool {
		_, stays := p.Lane(at.Lane)
		return !stays
	})
	if err := l.keepLevels(&next); err != nil {
		return err
	}
	comes := slices.ContainsFunc(p.Lanes, func(one plan.Lane) bool {
		_, had := l.Placement.Lane(one.Name)
		return !had
	})
	err := l.reconcile(ctx, &next, seen)
	if err != nil && !comes && ctx.Err() == nil {
		// Without this, one busy thing would make a release put its lanes in force again. Try the rest once more.
		err = l.reconcile(ctx, &next, false)
	}
	if err != nil {
		return errors.Join(err, l.rollBack(ctx))
	}
	if err := l.store(next); err != nil {
		return errors.Join(err, l.rollBack(ctx))
	}
	l.released = slices.DeleteFunc(slices.Clone(l.Placement.Lanes), func(was plan.Lane) bool {
		_, stays := p.Lane(was.Name)
		return stays
	})
	l.Applied = next
	return nil
}

// checkUndoable returns an error if a step that p no longer wants cannot be undone now. It changes nothing.
func (l *Lanes) checkUndoable(p plan.Placement) error {
	v, err := l.View()
	if err != nil {
		return err
	}
	want, err := l.wantedSteps(v, p, l.Applied)
	for _, s := range l.journal.Pending() {
		op, can := l.ops[s.Kind].(interface{ Held(s journal.Step) error })
		if err == nil && can && !slices.ContainsFunc(want, s.Same) {
			err = op.Held(s)
		}
	}
	return err
}

// rollBack restores what was in force before, even if the user has interrupted the change.
func (l *Lanes) rollBack(ctx context.Context) error {
	last := l.Applied
	if err := l.reconcile(context.WithoutCancel(ctx), &last, false); err != nil {
		return fmt.Errorf("and going back: %w", err)
	}
	return nil
}

// Settings returns how many settings of the host are changed for the lanes.
func (l *Lanes) Settings() int { return len(l.journal.Pending()) }

// Untested names the changes in force that had never been made on a real kernel when this was written.
func (l *Lanes) Untested() []string {
	for _, lane := range l.Placement.Lanes {
		if l.Levels[lane.Name] == knob.Balanced && !lane.Spec.Balanced() {
			return []string{"partitions that are root and not isolated (Linux 5.11 to 6.0)"}
		}
	}
	return nil
}

// Recover completes what a crash cut off: it restores what was in force, and attach brings in again workloads
// that were to return to their lanes. It returns what was not in force, and whether it is now.
func (l *Lanes) Recover(ctx context.Context, attach func(attached.Workload) error) ([]Drift, error) {
	cut := l.interruptedDrift()
	if _, err := l.EndHalfAttached(ctx); err != nil {
		return nil, err
	}
	if err := l.DropEnded(ctx); err != nil {
		return nil, err
	}
	drift, err := l.Drift(ctx)
	if err != nil {
		return nil, err
	}
	err = l.rollBack(ctx)
	l.markRepaired(ctx, drift)
	still, serr := l.Drift(ctx)
	for i, d := range drift { // some drift is repaired by no step of ours
		drift[i].Repaired = d.Repaired || serr == nil && d.Step == journal.Step{} &&
			!slices.ContainsFunc(still, func(s Drift) bool { return s.Name == d.Name })
	}
	if err == nil && len(l.Placement.Lanes) == 0 { // written by a command that was killed
		err = journal.RemoveState(l.dir, stateFile)
	}
	if err == nil {
		err = l.finishInterrupted(ctx, cut, attach)
	}
	return append(cut, drift...), err
}

// reconcile makes the host as a wants, and notes in a what the kernel refuses. When a partition comes or goes
// the kernel changes more than was asked for (see the order of the knobs), so there are phases:
//
//  1. demote: partitions whose CPUs change become plain cpusets
//  2. take back what is no longer wanted, and do what is: if all that stays was just seen, only what is new
//  3. get the next best for partitions that were refused
//  4. if anything has changed, look at all, and restore what the kernel has changed meanwhile
//  5. bring back attached workloads that somebody has taken out of their lanes
func (l *Lanes) reconcile(ctx context.Context, a *Applied, seen bool) error {
	v, err := l.adoptInterrupts(ctx, a)
	if err != nil {
		return err
	}
	a.fillView(&v)
	want, err := l.wantedSteps(v, a.Placement, *a)
	if err != nil {
		return err
	}
	parts := v.Partitions(a.Placement)
	made := l.journal.Made()
	if _, err = l.journal.Apply(ctx, partition.Demotions(l.root, l.journal.Pending(), parts, want)); err != nil {
		return err
	}
	if len(want) == 0 { // first, so that interrupts that come when a card loses functions get all CPUs
		alone, uerr := l.journal.UndoWhere(ctx, knob.ForNewInterrupts)
		if l.Left = append(l.Left, alone...); uerr != nil {
			return uerr
		}
	}
	if err = l.adoptAddedPages(ctx, want); err != nil {
		return err
	}
	refused, left, err := l.journal.Reconcile(ctx, want, seen)
	l.Left = append(l.Left, left...)
	if err == nil && len(want) > 0 && (hasFunctions(a.Placement) || hasFunctions(l.Placement)) {
		v, want, refused, err = l.withInterrupts(ctx, a)
	}
	a.keepRefused(v)
	for _, r := range refused {
		err = errors.Join(err, l.fallBack(ctx, a, parts, r))
	}
	if err != nil {
		return err
	}
	if seen || l.journal.Made() != made {
		taken := slices.DeleteFunc(want, func(s journal.Step) bool {
			return slices.ContainsFunc(refused, func(r journal.Refused) bool { return r.Step.Target == s.Target })
		})
		if _, err = l.journal.Apply(ctx, taken); err != nil {
			return err
		}
	}
	if err = l.clearReplaced(); err != nil {
		return err
	}
	return l.restoreAttached(ctx, a)
}

// LaneGroup is a lane's cgroup and what is in it.
type LaneGroup struct {
	knob.Place
	Lane      plan.Lane
	Memory    string // its cgroup in the v1 memory hierarchy; "" if it has none
	Partition string // as the kernel says, with its reason if it is invalid; "" with cgroup v1
	Processes int    // including those of attached cgroups
}

// Groups returns the cgroups of the lanes in force.
func (l *Lanes) Groups() (groups []LaneGroup, _ error) {
	v, err := l.View()
	if err != nil {
		return nil, err
	}
	for _, lane := range l.Placement.Lanes {
		g := LaneGroup{Lane: lane, Memory: knob.MemoryGroup(l.root, v.Host, lane.Name)}
		if g.Place, err = v.Place(lane); err != nil {
			return nil, err
		}
		if text, rerr := fs.ReadFile(l.root, path.Join(g.PartitionDir, knob.PartitionFile)[1:]); rerr == nil {
			g.Partition = strings.TrimSpace(string(text))
		}
		pids, err := cgroup.Processes(l.root, g.Dir)
		if err != nil {
			return nil, err
		}
		g.Processes = len(pids)
		for _, at := range l.Attached { // with cgroup v1 their processes stay in them
			if at.Lane == lane.Name && at.Group != "" && g.Partition == "" {
				if pids, err = cgroup.Processes(l.root, at.Group); err != nil {
					return nil, err
				}
				g.Processes += len(pids)
			}
		}
		groups = append(groups, g)
	}
	return groups, nil
}
