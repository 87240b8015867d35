package enforce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/enforce/attached"
)

// detachReturning is Detach with the workloads that are to come in again afterwards. It records both before
// it changes anything, so that a kill loses neither.
func (l *Lanes) detachReturning(ctx context.Context, at attached.Workload,
	returning []attached.Workload) error {
	leaving := l.Applied
	leaving.Attached, leaving.Returning = slices.Clone(l.Attached), returning
	for i, o := range leaving.Attached {
		leaving.Attached[i].Leaving = o.Leaving || o.Journal == at.Journal
	}
	if err := l.storeAsApplied(leaving); err != nil {
		return err
	}
	if err := l.detach(ctx, at); err != nil {
		return err
	}
	return l.storeAsApplied(l.withoutAttached(at))
}

// returningWith returns the workloads that are to come in again, plus at.
func (a Applied) returningWith(at attached.Workload) []attached.Workload {
	return append(slices.DeleteFunc(slices.Clone(a.Returning), at.Same), at)
}

// attachAll tries to attach all workloads to their lanes, and returns those for which that failed. If the
// user has interrupted it, the workloads stay recorded as returning.
func (l *Lanes) attachAll(ctx context.Context, all []attached.Workload, attach func(attached.Workload) error,
) (outside []Outside, err error) {
	for _, at := range all {
		if aerr := attach(at); aerr != nil {
			outside = append(outside, Outside{at.Lane, aerr.Error()})
		}
	}
	if len(l.Returning) > 0 && ctx.Err() == nil {
		l.Returning = slices.DeleteFunc(slices.Clone(l.Returning), func(at attached.Workload) bool {
			return !slices.ContainsFunc(l.Attached, func(o attached.Workload) bool { return o.Leaving && o.Same(at) })
		})
		err = l.store(l.Applied)
	}
	return outside, err
}

// interruptedDrift returns the workloads that a kill has left on their way into or out of a lane, or before
// they came in again.
func (l *Lanes) interruptedDrift() (found []Drift) {
	for _, at := range l.Attached {
		if at.Leaving && !slices.ContainsFunc(l.Returning, at.Same) {
			found = append(found, Drift{Name: "lane " + at.Lane, Expected: at.Name() + " out of it",
				Found: "on its way", Note: "that was cut off: isolane recover ends it"})
		}
	}
	for _, at := range l.halfAttached() {
		found = append(found, Drift{Name: "lane " + at.Lane, Expected: at.Name() + " in it",
			Found: "on its way", Note: "isolane attach was cut off: isolane recover ends it"})
	}
	for _, at := range l.notYetReturned() {
		found = append(found, Drift{Name: "lane " + at.Lane, Expected: at.Name() + " in it",
			Found: "out of it", Note: "a change of the lane was cut off: isolane recover brings it in"})
	}
	return found
}

// EndHalfAttached takes workloads back to where they were if attaching them was cut off. It returns the names
// of their journals.
func (l *Lanes) EndHalfAttached(ctx context.Context) ([]string, error) {
	all, err := l.journals().Names()
	half := slices.DeleteFunc(all, func(name string) bool {
		return slices.ContainsFunc(l.Attached, func(at attached.Workload) bool { return at.Journal == name })
	})
	for _, name := range half {
		if err == nil {
			err = l.detach(ctx, attached.Workload{Journal: name})
		}
	}
	return half, err
}

// Journals returns the names of the journals that Recover handles.
func (l *Lanes) Journals() ([]string, error) {
	names, err := l.journals().Names()
	return append(names, journalName), err
}

// halfAttached returns the workloads that have not ended, whose threads lack settings of the lane.
func (l *Lanes) halfAttached() []attached.Workload {
	return slices.DeleteFunc(slices.Clone(l.Attached), func(at attached.Workload) bool {
		return !at.Begun || at.Leaving || at.Gone(l.root)
	})
}

// notYetReturned returns the workloads that are to come in again and have not ended.
func (l *Lanes) notYetReturned() []attached.Workload {
	gone := func(at attached.Workload) bool { return at.Gone(l.root) }
	return slices.DeleteFunc(slices.Clone(l.Returning), gone)
}

// finishInterrupted completes what was cut off, and marks in cut what succeeded.
func (l *Lanes) finishInterrupted(ctx context.Context, cut []Drift,
	attach func(attached.Workload) error) error {
	failed := map[string]error{} // by lane, because a lane may have several workloads
	for _, at := range slices.Clone(l.Attached) {
		if at.Leaving { // still
			failed[at.Lane] = errors.Join(failed[at.Lane], l.Detach(ctx, at))
		}
	}
	outside, err := l.attachAll(ctx, slices.Concat(l.halfAttached(), l.notYetReturned()), attach)
	for _, o := range outside {
		failed[o.Lane] = errors.Join(failed[o.Lane], fmt.Errorf("its workload did not come in: %s", o.Reason))
	}
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		if why := failed[name]; why != nil {
			err = errors.Join(err, fmt.Errorf("lane %s: %w", name, why))
		}
	}
	for i, d := range cut {
		if name := strings.TrimPrefix(d.Name, "lane "); failed[name] == nil {
			cut[i].Repaired, cut[i].Note = true, ""
		}
	}
	return err
}
