package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/enforce/partition"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// Drift is something that is not, or no longer, as the lanes want it.
type Drift struct {
	Name     string `json:"name"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
	By       string `json:"by,omitempty"` // who wrote there last, if known
	Repaired bool   `json:"repaired"`
	Note     string `json:"note,omitempty"`
	// Step puts it back. It is zero if only the setting's owner can do that.
	Step journal.Step `json:"-"`
}

// Text says in one line what is not as it should be.
func (d Drift) Text() string {
	return fmt.Sprintf("%s: expected %s, found %s", d.Name, d.Expected, cmp.Or(d.Found, "nothing"))
}

// Wanted is all that lanes want of the host. It is planned once, and compared with the host repeatedly.
type Wanted struct {
	lanes     *Lanes
	view      knob.View
	placement plan.Placement
	steps     []journal.Step // of the placement
	attached  []journal.Step // that brought running workloads into the lanes
}

// Wanted returns what the lanes in force want.
func (l *Lanes) Wanted() (*Wanted, error) { return l.planWanted(l.Placement) }

func (l *Lanes) planWanted(p plan.Placement) (w *Wanted, err error) {
	w = &Wanted{lanes: l, placement: p}
	if w.view, err = l.View(); err != nil {
		return nil, err
	}
	if w.steps, err = l.wantedSteps(w.view, p, l.Applied); err != nil {
		return nil, err
	}
	w.attached, err = l.journals().StepsOf(l.Attached...)
	return w, err
}

// AddThread adds what the lanes want of the thread pid, if that is a new kernel thread.
func (w *Wanted) AddThread(pid int) error {
	more, err := knob.Thread(w.view, w.placement, pid)
	w.steps = append(w.steps, more...)
	return err
}

// Steps returns all wanted steps.
func (w *Wanted) Steps() []journal.Step { return slices.Concat(w.steps, w.attached) }

// Member reports whether a process is to be in a lane's cgroup.
func (w *Wanted) Member(pid int, start uint64) bool {
	return slices.ContainsFunc(w.attached, func(s journal.Step) bool {
		return s.Kind == change.KindMember && s.Target == change.TaskTarget(pid, start)
	})
}

// Drift returns what is not in force. has is a fast check that a file has a text. If it returns false, Drift
// reads the file in the usual way.
func (w *Wanted) Drift(ctx context.Context, has func(file, text string) bool) ([]Drift, error) {
	var open []journal.Step
	for _, s := range w.steps {
		if file := w.lanes.ops.file(s); file == "" || !has(file, s.After) {
			open = append(open, s)
		}
	}
	missing, err := w.lanes.journal.NotInForce(ctx, open, nil)
	if err != nil {
		return nil, err
	}
	more, err := w.attachedMissing(ctx)
	if err != nil {
		return nil, err
	}
	return w.lanes.describeMissing(append(missing, more...))
}

// attachedMissing returns the steps of attached workloads that are not in force. For a workload that has
// ended it returns none.
func (w *Wanted) attachedMissing(ctx context.Context) ([]journal.Step, error) {
	return w.lanes.journal.NotInForce(ctx, w.attached, func(journal.Step) bool { return true })
}

// Missing returns the steps that would put p in force now, as far as they can be known: those that take back
// what is no longer wanted, and those not in force, including those of attached workloads. With a
// *journal.UnreadError it returns the steps that it could read.
func (l *Lanes) Missing(ctx context.Context, p plan.Placement) ([]journal.Step, error) {
	w, err := l.planWanted(p)
	if err != nil {
		return nil, err
	}
	missing, merr := l.journal.Missing(ctx, w.steps)
	if _, unread := errors.AsType[*journal.UnreadError](merr); merr != nil && !unread {
		return nil, merr
	}
	more, err := w.attachedMissing(ctx)
	return append(missing, more...), errors.Join(merr, err)
}

// Drift returns what is not as the lanes in force want it, and what a crash has left half done.
func (l *Lanes) Drift(ctx context.Context) ([]Drift, error) {
	missing, err := l.Missing(ctx, l.Placement)
	if err != nil {
		return nil, err
	}
	return l.describeMissing(missing)
}

// describeMissing describes steps that are not in force, except those that the kernel has refused. If a lane
// was in the cgroup of a workload that has ended, all its steps are one drift: its CPUs are open to all.
func (l *Lanes) describeMissing(missing []journal.Step) ([]Drift, error) {
	var found []Drift
	for _, look := range []func() ([]Drift, error){l.offlineDrift, l.queueDrift, l.uplinkDrift} {
		more, err := look()
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	if !journal.Busy(l.dir) { // otherwise another process is completing what looks cut off
		now, err := State(l.dir)
		if err != nil {
			return nil, err
		}
		if now == l.stateRead {
			found = append(found, l.interruptedDrift()...)
		}
	}
	var gone []journal.Step
	for _, at := range l.Attached {
		lane, err := l.Lane(at.Lane)
		if !at.Own || err != nil || cgroup.Populated(l.root, at.Group) {
			continue
		}
		found = append(found, Drift{Name: "lane " + at.Lane,
			Expected: "CPUs " + lane.CPUs.String() + " for itself", Found: "everybody's",
			Note: "its workload " + at.Group + " has ended: isolane apply, or watch --repair, closes them again"})
		steps, err := l.cgroupSteps(at, lane)
		if err != nil {
			return nil, err
		}
		gone = append(gone, steps...)
	}
	for _, s := range missing {
		if !l.isRefused(s) && !slices.ContainsFunc(gone, s.Same) {
			found = append(found, l.describeDrift(s))
		}
	}
	return found, nil
}

// offlineDrift returns one drift that names all lanes that have lost CPUs, if any.
func (l *Lanes) offlineDrift() ([]Drift, error) {
	if len(l.Placement.Lanes) == 0 {
		return nil, nil
	}
	online, err := host.Online(l.root)
	var lost []string
	for _, placed := range l.Placement.Lanes {
		if gone := placed.Owned().Difference(online); !gone.IsEmpty() {
			lost = append(lost, fmt.Sprintf("lane %s has lost CPUs %s, which are offline", placed.Name, gone))
		}
	}
	if err != nil || len(lost) == 0 {
		return nil, err
	}
	return []Drift{{Name: "/sys/devices/system/cpu/online", Expected: l.Placement.CPUs().String() + " online",
		Found: online.String(), Note: strings.Join(lost, "; ") + ": bring them online, or release the lane"}}, nil
}

// queueDrift returns the lanes whose device has fewer queues than they want.
func (l *Lanes) queueDrift() (found []Drift, err error) {
	if len(l.Placement.Lanes) == 0 {
		return nil, nil
	}
	v, err := l.View()
	for _, placed := range l.Placement.Lanes {
		n := placed.Spec.Network
		if has, known := plan.QueuesOf(v.Host, placed); known && has < n.Queues {
			found = append(found, Drift{Name: "lane " + placed.Name,
				Expected: fmt.Sprintf("queues of %s: %d", n.Device, n.Queues), Found: strconv.Itoa(has),
				Note: "give the card more (ethtool -L), then isolane apply"})
		}
	}
	return found, err
}

// uplinkDrift returns the uplinks that carry no frames, because somebody has set them down or they are gone.
func (l *Lanes) uplinkDrift() (found []Drift, err error) {
	for _, placed := range l.Placement.Lanes {
		device := placed.Spec.Network.Device
		state, serr := netpath.UplinkState(l.paths, l.On(placed))
		d := Drift{Name: "uplink " + device, Expected: "up", Found: state, Note: netpath.Remedy(state, device)}
		if err = errors.Join(err, serr); d.Note != "" && !slices.Contains(found, d) {
			found = append(found, d)
		}
	}
	return found, err
}

// cgroupSteps returns the steps of a lane's cgroup, for both the cgroup of its former workload and its own.
func (l *Lanes) cgroupSteps(at attached.Workload, lane plan.Lane) (all []journal.Step, err error) {
	v, err := l.View()
	if err != nil {
		return nil, err
	}
	for _, own := range []map[string]string{{at.Lane: at.Group}, nil} {
		v.Own = own
		steps, err := knob.Cpusets(v, plan.Placement{Lanes: []plan.Lane{lane}})
		if err != nil {
			return nil, err
		}
		all = append(all, steps...)
	}
	return all, nil
}

// describeDrift describes a step that is not in force. Its Before is the value of the host now.
func (l *Lanes) describeDrift(s journal.Step) Drift {
	d := l.ops.describeDrift(s)
	if knob.IsPartition(s) && invalidCause(d.Found) == NotExclusive {
		if o := partition.Overlapping(l.root, s.Target); o != nil {
			d.Note = o.String() + ", then isolane apply"
		}
	}
	return d
}

// PutBack restores drift of the lanes in force, as w describes them, and sets Repaired or Note in each.
func (l *Lanes) PutBack(ctx context.Context, w *Wanted, found []*Drift) error {
	for _, d := range found {
		if err := l.redoStep(ctx, d.Step); err != nil { // for example the CPUs of a cpuset while they are offline
			d.Note = "cannot be put back: " + err.Error()
			continue
		}
		d.Repaired = true
	}
	return l.journal.Finish(ctx, w.steps)
}
