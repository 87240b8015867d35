package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

const (
	journalName = "lanes"
	stateFile   = "lanes.json"
	appliedKind = "AppliedLanes"
)

// Lanes are the lanes in force on this host, and the journal of what that took. Only one process at a time
// has them.
type Lanes struct {
	Applied
	// Left is what the last change of the lanes was to take back and did not, because it is somebody else's by
	// now.
	Left []*journal.LeftAlone
	// Allowed is what lanes may have, where a caller says it before the first plan.
	Allowed host.Allowance
	dir     string
	root    fs.FS
	ops     operations
	journal *journal.Journal
	before  *host.Host // nil until it is read
}

// Open reads what is in force. It fails with a *journal.BusyError while another process changes the host.
func Open(dir string, root fs.FS, ops map[string]journal.Op) (*Lanes, error) {
	j, err := journal.Open(dir, journalName, ops)
	return opened(j, err, dir, root, ops)
}

// OpenWait is Open that waits while another process changes the host, until ctx ends. It calls waiting, which
// may be nil, with each process that it waits for.
func OpenWait(
	ctx context.Context, dir string, root fs.FS, ops map[string]journal.Op, waiting func(*journal.BusyError),
) (*Lanes, error) {
	j, err := journal.OpenWait(ctx, dir, journalName, ops, waiting)
	return opened(j, err, dir, root, ops)
}

func opened(j *journal.Journal, err error, dir string, root fs.FS, ops map[string]journal.Op) (*Lanes,
	error) {
	if err != nil {
		return nil, err
	}
	l := &Lanes{dir: dir, root: root, ops: ops, journal: j}
	if l.Applied, err = readApplied(dir); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return l, nil
}

// Beside opens a journal of other changes, which belong to no lane, as long as the lanes are open.
func (l *Lanes) Beside(name string) (*journal.Journal, error) { return l.journal.Beside(name) }

// Look reads what is in force and changes nothing, also while another process changes the host.
func Look(dir string, root fs.FS, ops map[string]journal.Op) (*Lanes, error) {
	j, err := journal.Look(dir, journalName, ops)
	if err != nil {
		return nil, err
	}
	l := &Lanes{dir: dir, root: root, ops: ops, journal: j}
	l.Applied, err = readApplied(dir)
	return l, err
}

// Close lets other processes change the host.
func (l *Lanes) Close() error { return l.journal.Close() }

// View is the host as it was before any lane. It is read once: what lanes change in it is not in it.
func (l *Lanes) View() (View, error) {
	v := l.viewBefore()
	if l.before == nil {
		h, err := host.Read(v.Root)
		if err != nil {
			return v, err
		}
		h = h.Allowing(l.Allowed)
		l.before = &h
	}
	v.host(*l.before, l.Placement)
	l.fill(&v)
	return v, nil
}

func (a Applied) fill(v *View) {
	v.Levels, v.Attached, v.Own, v.ownCPUs = a.Levels, nil, map[string]string{}, map[string]cpuset.Set{}
	for _, at := range a.Attached {
		if at.Group != "" {
			v.Attached = append(v.Attached, at.Group)
		}
		if at.Own && populated(v.Root, at.Group) {
			if lane, err := a.Lane(at.Lane); err == nil {
				v.Own[at.Lane], v.ownCPUs[at.Lane] = at.Group, lane.CPUs
			}
		}
	}
}

// Missing returns the steps that would make p true now, as far as they can be told before: those that
// take back what is no longer wanted, and those that are not in force, of the attached workloads too. With a
// *journal.UnreadError it returns those that it could read.
func (l *Lanes) Missing(ctx context.Context, p plan.Placement) ([]journal.Step, error) {
	v, err := l.View()
	if err != nil {
		return nil, err
	}
	want, err := want(v, p)
	if err != nil {
		return nil, err
	}
	var unread *journal.UnreadError
	missing, merr := l.journal.Missing(ctx, want)
	if merr != nil && !errors.As(merr, &unread) {
		return nil, merr
	}
	attached, err := l.attachedSteps(l.Attached)
	if err != nil {
		return nil, err
	}
	more, err := l.stepsNotInForce(ctx, attached)
	return append(missing, more...), errors.Join(merr, err)
}

// want are the steps of a placement; none without lanes.
func want(v View, p plan.Placement) ([]journal.Step, error) {
	if len(p.Lanes) == 0 {
		return nil, nil
	}
	return Steps(v, p)
}

// Apply makes p true: only what differs from what is in force changes. Where that fails the host comes back
// to what was in force before.
func (l *Lanes) Apply(ctx context.Context, p plan.Placement) error {
	if err := l.dropEnded(ctx); err != nil {
		return err
	}
	next := Applied{APIVersion: plan.APIVersion, Kind: appliedKind, BootID: l.BootID, Placement: p,
		Runs: l.runsOf(p)}
	for _, lane := range p.Lanes { // a level that was refused for the same CPUs is not asked for again
		i := slices.IndexFunc(l.Placement.Lanes, func(o plan.Lane) bool {
			return o.Name == lane.Name && o.Owned() == lane.Owned() && o.Spec.Balanced() == lane.Spec.Balanced()
		})
		if level, ok := l.Levels[lane.Name]; ok && i >= 0 && l.stillRefused(lane.Name) {
			next.grant(lane.Name, level)
			next.Refused = l.Refused // see lowerRefusals
		}
	}
	for _, at := range l.Attached {
		if !slices.ContainsFunc(p.Lanes, func(o plan.Lane) bool { return o.Name == at.Lane }) {
			if err := l.Detach(ctx, at); err != nil { // stored: whatever comes, it is out
				return err
			}
			continue
		}
		next.Attached = append(next.Attached, at)
	}
	if err := l.reconcile(ctx, &next); err != nil {
		return errors.Join(err, l.back(ctx))
	}
	if err := l.store(next); err != nil {
		return errors.Join(err, l.back(ctx))
	}
	l.Applied = next
	return nil
}

// back returns to what was in force before, also when the user has lost patience.
func (l *Lanes) back(ctx context.Context) error {
	last := l.Applied
	if err := l.reconcile(context.WithoutCancel(ctx), &last); err != nil {
		return fmt.Errorf("and going back: %w", err)
	}
	return nil
}

// Settings is how many settings of the host are changed for the lanes.
func (l *Lanes) Settings() int { return len(l.journal.Pending()) }

// Untested names those of the changes in force that were never made on a real kernel when this was written.
func (l *Lanes) Untested() []string {
	for _, lane := range l.Placement.Lanes {
		if l.Levels[lane.Name] == rootOnly && !lane.Spec.Balanced() {
			return []string{"partitions that are root and not isolated (Linux 5.11 to 6.0)"}
		}
	}
	return nil
}

// Recover ends what a crash cut off: what was in force before it, is again. It returns what was not.
func (l *Lanes) Recover(ctx context.Context) ([]Drift, error) {
	left, err := filepath.Glob(filepath.Join(l.dir, attaching+"*.journal"))
	if err != nil {
		return nil, err
	}
	for _, file := range left {
		name := strings.TrimSuffix(filepath.Base(file), ".journal")
		if !slices.ContainsFunc(l.Attached, func(at Attachment) bool { return at.Journal == name }) {
			if err = l.detach(ctx, Attachment{Journal: name}); err != nil {
				return nil, err
			}
		}
	}
	if err = l.dropEnded(ctx); err != nil {
		return nil, err
	}
	drift, err := l.Drift(ctx)
	if err != nil {
		return nil, err
	}
	return drift, l.back(ctx)
}

// reconcile makes what is wanted true and notes in a what the kernel refuses.
func (l *Lanes) reconcile(ctx context.Context, a *Applied) error {
	v, err := l.View()
	if err != nil {
		return err
	}
	a.fill(&v)
	want, err := want(v, a.Placement)
	if err != nil {
		return err
	}
	made := l.journal.Made()
	if _, err = l.journal.Apply(ctx, l.demotions(want)); err != nil {
		return err
	}
	refused, left, err := l.journal.Reconcile(ctx, want)
	l.Left = append(l.Left, left...)
	a.Refused = a.lowerRefusals()
	if v.granted(isolated) == member {
		a.noteUnsupported(want)
	}
	for _, r := range refused {
		r.Err = l.partitionReason(r)
		a.refuse(r)
		if r.Step.After != member && isPartition(r.Step.Target) {
			more, lerr := l.lower(ctx, a, r)
			a.Refused = append(a.Refused, more...)
			err = errors.Join(err, lerr)
		}
	}
	if err != nil {
		return err
	}
	if l.journal.Made() == made {
		return l.restoreAttached(ctx, a)
	}
	// What the kernel has changed with the cpusets, see Steps.
	if _, err = l.journal.Apply(ctx, slices.DeleteFunc(slices.Clone(want), func(s journal.Step) bool {
		return slices.ContainsFunc(refused, func(r journal.Refused) bool { return r.Step.Target == s.Target })
	})); err != nil {
		return err
	}
	return l.restoreAttached(ctx, a)
}

// LaneGroup is a lane's cgroup and what is in it.
type LaneGroup struct {
	Lane      plan.Lane
	Dir       string
	Memory    string // its cgroup in the v1 memory hierarchy; "" where it has none
	Own       bool   // it is the workload's, as its service manager or container runtime has made it
	Balance   string // who spreads the threads over the lane's CPUs
	Spread    bool   // Isolane does
	Partition string // as the kernel says, with its reason where it is invalid; "" with cgroup v1
	Processes int
}

// Groups returns the cgroups of the lanes in force.
func (l *Lanes) Groups() ([]LaneGroup, error) {
	v, err := l.View()
	if err != nil || len(l.Placement.Lanes) == 0 {
		return nil, err
	}
	root, v2, err := cpusetRoot(v.Host)
	if err != nil {
		return nil, err
	}
	var groups []LaneGroup
	for _, lane := range l.Placement.Lanes {
		g := LaneGroup{Lane: lane, Dir: v.laneDir(root, v2, lane), Own: v.Own[lane.Name] != "",
			Memory: MemoryGroup(l.root, v.Host, lane.Name), Spread: v.spreads(lane), Balance: v.describeBalance(lane)}
		part := g.Dir
		if v2 && shares(lane) {
			part = path.Dir(part)
		}
		if text, rerr := fs.ReadFile(l.root, path.Join(part, partitionFile)[1:]); rerr == nil {
			g.Partition = trim(text)
		}
		pids, err := cgroup.Processes(l.root, g.Dir)
		if err != nil {
			return nil, err
		}
		g.Processes = len(pids)
		groups = append(groups, g)
	}
	return groups, nil
}

// populated says whether a cgroup, or one in it, has processes.
func populated(root fs.FS, dir string) bool {
	pids, err := cgroup.Processes(root, dir)
	return err == nil && len(pids) > 0
}
